"""What tests of the store's scripts work with: small tiers, and a clock that they move."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from configs.tables import load_table
from serve_app.domain.credits import AccountPayer, Balance
from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.records import JobPolicy
from serve_app.ledger.jobs.types import AnalysisJob, FileSource
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.store.client import Store, connect
from serve_app.store.lua import lua_source

SHARDS = 4
CLOCK = "local function now_ms() return tonumber(redis.call('GET', 'test:now')) end"
START_MS = int(datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp() * 1000)
ACCOUNT = "acme"
PAYER = AccountPayer(ACCOUNT, "basic")


def small_tiers() -> Tiers:
    """Tiers so small that tests reach every limit."""
    table = load_table("tiers")
    for name, monthly, lookups, grace, open_jobs in (
        ("free", 40, 3, 0, 5),
        ("basic", 60, 5, 30, 1000),
        ("pro", 200, 8, 50, 100_000),
        ("scale", 500, 10, 100, 100_000),
    ):
        table[name].update(
            monthly_credits=monthly,
            cache_lookups=lookups,
            grace_credits=grace,
            owner_jobs=open_jobs,
        )
    return Tiers(table)


def rich_tiers() -> Tiers:
    """Tiers whose credits and backlog never run out."""
    table = load_table("tiers")
    for row in table.values():
        row.update(monthly_credits=10**9, owner_jobs=10**6)
    return Tiers(table)


def some_work(name: str = "song.wav") -> AnalysisJob:
    """Return work that differs from other work by its name."""
    return AnalysisJob(FileSource(name), max_audio_s=60, max_bytes=1000)


def stamp_ms(*moment: int) -> int:
    """Return a UTC moment as Unix milliseconds."""
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)


@dataclass
class Setting:
    """An empty ledger role, and the classes that use it."""

    store: Store
    tiers: Tiers
    policy: JobPolicy = field(default_factory=JobPolicy)
    now_ms: int = START_MS

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.store, self.tiers)
        self.jobs = Jobs(self.store, self.tiers, self.policy)
        self.journal = Journal(self.store)
        self.topups = Topups(self.store, self.ledger)

    async def at(self, now_ms: int) -> None:
        """Set the scripts' clock."""
        self.now_ms = now_ms
        await self.store.command("SET", "test:now", now_ms)

    async def after(self, ms: int) -> None:
        """Move the scripts' clock on."""
        await self.at(self.now_ms + ms)

    async def audit(self) -> None:
        """Fail on any broken invariant of any account."""
        report = await self.journal.audit()
        assert report.mismatches == ()

    async def lines(self) -> list[tuple[str, str, int, int, int]]:
        """Return kind, id and deltas of the account's journal."""
        entries = await self.journal.entries(ACCOUNT)
        return [(e.kind, e.entry_id, e.grant, e.packs, e.debt) for e in entries]


def buckets(balance: Balance) -> tuple[int, int, int]:
    """Return grant, packs and debt."""
    return balance.grant, balance.packs, balance.debt


@asynccontextmanager
async def open_setting(
    url: str,
    *,
    source: Callable[[str], str] = lua_source,
    tiers: Tiers | None = None,
    policy: JobPolicy | None = None,
) -> AsyncIterator[Setting]:
    """Empty the server, and yield a setting on it."""
    store = connect(url, shards=SHARDS, clock=CLOCK, timeout_s=5, source=source)
    try:
        await store.command("FLUSHALL")
        setting = Setting(store, tiers or small_tiers(), policy or JobPolicy())
        await setting.at(START_MS)
        yield setting
        await setting.jobs.close()
    finally:
        await store.close()
