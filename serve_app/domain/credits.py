"""Credits: balances, holds, what an audit finds, and the words of the ledger.

An account's credits are in three buckets: the monthly ``grant``, prepaid ``packs``, and ``debt``.
A hold takes grant, then packs, then makes debt within the tier's grace. It ends exactly once:
committed, voided, or reaped when its time is over.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from serve_app.domain.errors import InternalError

MOST_CREDITS = 10**12
"""Most that one operation brings, and most that an account has of grant or of packs.

The local tier grants as many. Scripts calculate in doubles, which are exact to 2^53: sums of the
journal stay far below.
"""

GRACE = timedelta(hours=24)
"""How long an account may make debt, from its first debt on."""

GRACE_MS = GRACE // timedelta(milliseconds=1)


class Payer(Protocol):
    """Who pays: an account and the name of its tier (a ``Caller`` is one)."""

    @property
    def account(self) -> str:
        """The account that is charged."""
        ...

    @property
    def tier(self) -> str:
        """Name of the account's tier."""
        ...


@dataclass(frozen=True, slots=True)
class AccountPayer:
    """A payer without a key: workers and operators."""

    account: str
    tier: str


class HoldClosedError(InternalError):
    """A hold was used after it had ended another way; a programming error, never charged."""

    def __init__(self, hold_id: str, state: str) -> None:
        Exception.__init__(self, hold_id, state)
        self.message = f"hold {hold_id} is {state}"
        self.hold_id = hold_id
        self.state = state


class HoldMismatchError(InternalError):
    """An id was reused with another cost or request; a programming error, never charged."""


class TooManyCreditsError(ValueError):
    """An amount, or what an account would then hold, is above `MOST_CREDITS`."""


@dataclass(frozen=True, slots=True)
class Balance:
    """An account's credits at one moment; ``remaining`` is negative while debt is open."""

    account: str
    grant: int
    packs: int
    debt: int
    held: int
    period: str
    granted: int
    lookups_used: int
    open_jobs: int
    journal_length: int
    negative_since: datetime | None
    period_ends: datetime

    @property
    def remaining(self) -> int:
        """Credits left to spend before grace; what ``credits_remaining`` shows."""
        return self.grant + self.packs - self.debt

    @property
    def grace_ends(self) -> datetime | None:
        """When no more debt may be made; None while there is none."""
        return None if self.negative_since is None else self.negative_since + GRACE


@dataclass(frozen=True, slots=True)
class Charge:
    """What an operation cost, and the account after it."""

    credits: int
    balance: Balance


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One broken invariant of one account."""

    account: str
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit looked at and found."""

    accounts: int
    entries: int
    open_holds: int
    mismatches: tuple[Mismatch, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every invariant held."""
        return not self.mismatches


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of the append-only journal; the deltas are of grant, packs and debt."""

    account: str
    number: int
    kind: str
    entry_id: str
    grant: int
    packs: int
    debt: int
    note: str = ""
