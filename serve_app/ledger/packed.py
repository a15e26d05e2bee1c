"""Accounts and holds as the scripts pack them.

Invariant: names and order are those of ``lua/lib/ledger.lua`` and ``lua/lib/holds.lua``, whose
texts the tests compare; what is stored in Redis has this format and must stay readable.
"""

import struct
from typing import NamedTuple

from serve_app.domain.credits import Balance
from serve_app.store.client import from_ms


class AccountState(NamedTuple):
    """The numbers of an account in their packed order; times in Unix milliseconds."""

    grant: int
    packs: int
    debt: int
    negative_since: int
    period: int
    period_ends: int
    granted: int
    monthly_grant: int
    journal_length: int
    lookups_used: int
    held: int
    open_jobs: int
    floor: int
    topup_threshold: int
    has_plan: int


class HoldState(NamedTuple):
    """A hold in its packed order: its parts of grant, packs, debt; ``job`` is 1 for a job's."""

    state: str
    cost: int
    final: int
    grant: int
    packs: int
    debt: int
    job: int
    fingerprint: str


ACCOUNT = struct.Struct("<" + "d" * len(AccountState._fields))
NO_ACCOUNT = ACCOUNT.pack(*[0] * 13, -1, 0)
NO_PLAN = struct.pack("<d", 0)
FORMAT_1_BYTES = ACCOUNT.size - len(NO_PLAN)
"""Size of format 1, which had no `has_plan`."""

HOLD_COST = struct.Struct("<d")
HOLD = struct.Struct("<5dB")
HELD = b"held\0"
"""First bytes of an open hold."""


def unpack_account(packed: bytes) -> AccountState:
    """Read a packed account."""
    if len(packed) == FORMAT_1_BYTES:
        packed += NO_PLAN
    return AccountState._make(map(int, ACCOUNT.unpack(packed)))


def unpack_hold(packed: bytes) -> tuple[str, int]:
    """Return the state and cost of a packed hold."""
    state, _, rest = packed.partition(b"\0")
    return state.decode(), int(HOLD_COST.unpack_from(rest)[0])


def unpack_whole_hold(packed: bytes) -> HoldState:
    """Read a packed hold."""
    state, _, rest = packed.partition(b"\0")
    cost, final, grant, packs, debt, job = map(int, HOLD.unpack_from(rest))
    fingerprint = rest[HOLD.size :].decode()
    return HoldState(state.decode(), cost, final, grant, packs, debt, job, fingerprint)


def pack_hold(hold: HoldState) -> bytes:
    """Pack a hold as the scripts do."""
    state, *numbers, fingerprint = hold
    return state.encode() + b"\0" + HOLD.pack(*numbers) + fingerprint.encode()


def parse_balance(account: str, packed: bytes | None) -> Balance:
    """Read a packed account as the balance that its owner sees."""
    if packed is None:
        raise ValueError(f"account {account} has no balance yet")
    state = unpack_account(packed)
    return Balance(
        account=account,
        grant=state.grant,
        packs=state.packs,
        debt=state.debt,
        held=state.held,
        period=f"{state.period // 100:04d}-{state.period % 100:02d}",
        granted=state.granted,
        lookups_used=state.lookups_used,
        open_jobs=state.open_jobs,
        journal_length=state.journal_length,
        negative_since=from_ms(state.negative_since) if state.negative_since else None,
        period_ends=from_ms(state.period_ends),
    )
