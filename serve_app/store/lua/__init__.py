"""The Lua scripts of all rooms, each joined with the libraries that it uses."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SERVE_APP = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script with its libraries, ready to be sent."""

    name: str
    text: bytes
    digest: str


@cache
def lua_files() -> Mapping[str, Path]:
    """Return every script and library by name; each room keeps its own in ``lua/``.

    Raises:
        ValueError: Two rooms have one with the same name.
    """
    found: dict[str, Path] = {}
    for folder in sorted(SERVE_APP.glob("*/lua")):
        for path in sorted(folder.rglob("*.lua")):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name in found:
                raise ValueError(f"{path} and {found[name]} have one name")
            found[name] = path
    return found


@cache
def lua_source(name: str) -> str:
    """Read a script or a library."""
    return lua_files()[name].read_text(encoding="utf-8")


def compose(
    name: str, clock: str | None = None, source: Callable[[str], str] = lua_source
) -> Script:
    """Join a script with the libraries its ``-- uses:`` line names.

    Args:
        name: File name without ending.
        clock: Lua text that replaces ``lib/clock``; tests move time with it.
        source: Returns the text of a file by name.
    """
    body = source(name)
    first = body.partition("\n")[0]
    parts = []
    if first.startswith("-- uses:"):
        for library in first.removeprefix("-- uses:").split():
            stand_in = clock if library == "clock" else None
            parts.append(stand_in if stand_in is not None else source(f"lib/{library}"))
    text = "\n".join([*parts, body]).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())
