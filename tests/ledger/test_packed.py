"""Scripts and Python pack in one layout: the Lua files name the same fields in the same order."""

import re
import struct

from serve_app.ledger import hold_operations
from serve_app.ledger.hold_operations import LAYOUT, HoldOperation
from serve_app.ledger.journal import DELTAS
from serve_app.ledger.packed import ACCOUNT, AccountState, unpack_account, unpack_hold
from serve_app.store.lua import lua_source

# Lua's struct writes the count after a letter, Python's before it.
LUA_TYPES = {"c1": "c", "d": "d", "s": "s", "H": "H", "B": "B"}


def lua_types(script: str, constant: str) -> list[str]:
    """Return the types of a layout that a script declares, in Python's letters."""
    found = re.search(rf"^local {constant} = '<(\w+)'$", lua_source(script), re.MULTILINE)
    assert found is not None
    return [LUA_TYPES[letter] for letter in re.findall(r"[a-zA-Z]\d*", found[1])]


def test_an_account_has_one_layout() -> None:
    text = lua_source("lib/ledger")
    described = re.findall(r"^--   (\w+)(?:  |$)", text, re.MULTILINE)
    read = re.search(r"local ([\w,\s]+?) =\s+struct\.unpack\(ACCOUNT, raw\)", text)
    kept = re.search(r"return (\{name = name.+?\})", text, re.DOTALL)
    written = re.search(r"struct\.pack\(ACCOUNT, (A\.[^)]+)\)", text)
    assert read is not None
    assert kept is not None
    assert written is not None
    fields = list(AccountState._fields)
    assert described == fields
    assert re.findall(r"\w+", read[1]) == fields
    assert [name for name in re.findall(r"\b(\w+) = \1\b", kept[1]) if name in fields] == fields
    assert re.findall(r"A\.(\w+)", written[1]) == fields


def test_an_account_is_whole_doubles() -> None:
    assert lua_types("lib/ledger", "ACCOUNT") == ["d"] * len(AccountState._fields)
    numbers = range(1, len(AccountState._fields) + 1)
    packed = struct.pack("<15d", *numbers)
    assert ACCOUNT.size == len(packed)
    assert unpack_account(packed) == tuple(numbers)


def test_a_hold_operation_has_one_layout() -> None:
    text = lua_source("hold_operations")
    found = re.search(r"local ((?:\w+, )+)next_at =\s+unpack_operation\(LAYOUT, ", text)
    assert found is not None
    names = found[1].removesuffix(", ").split(", ")
    assert list(LAYOUT) == list(zip(names, lua_types("hold_operations", "LAYOUT"), strict=True))


def test_a_hold_operation_is_packed_as_its_layout_says() -> None:
    operation = HoldOperation(b"r", "acme", "h1", 3, 4, 5, 6, 7, "print")
    raw, found = operation.packed(1, 2), {}
    for name, kind in LAYOUT:
        if kind == "s":
            text, _, raw = raw.partition(b"\0")
            found[name] = text.decode()
        else:
            (found[name],) = struct.unpack_from("<" + kind, raw)
            raw = raw[struct.calcsize("<" + kind) :]
    assert raw == b""
    assert found == {
        "command": b"r",
        "account": 1,
        "hold": 2,
        "amount": 3,
        "term": 4,
        "monthly": 5,
        "floor": 6,
        "price": 7,
        "member": "acme\x1fh1",
        "fingerprint": "print",
    }


def test_commands_have_one_letter() -> None:
    found = re.search(
        r"^local ([A-Z, ]+) = ((?:'\w'(?:, )?)+)$", lua_source("hold_operations"), re.MULTILINE
    )
    assert found is not None
    letters = [letter.strip("'").encode() for letter in found[2].split(", ")]
    commands = dict(zip(found[1].split(", "), letters, strict=True))
    assert commands == {"RESERVE": b"r", "COMMIT": b"c", "VOID": b"v", "REAP": b"x", "HIT": b"h"}
    assert commands == {name: getattr(hold_operations, name) for name in commands}


def test_what_an_older_ledger_holds_is_still_read() -> None:
    assert unpack_account(struct.pack("<14d", *range(1, 15))) == (*range(1, 15), 0)
    assert lua_types("lib/holds", "HOLD") == ["s", "d", "d", "d", "d", "d", "B"]
    hold = b"held\0" + struct.pack("<dddddB", 7, 0, 4, 2, 1, 0) + b"print"
    assert unpack_hold(hold) == ("held", 7)
    assert "struct.unpack('<dddd'" in lua_source("journal_trim")
    assert DELTAS.size == struct.calcsize("<dddd")
