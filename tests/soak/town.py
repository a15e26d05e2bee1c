"""Months of many accounts on a Redis whose replica lags and takes over, while everything is killed.

In the end, the archive is restored into an empty Redis and compared with the live ledger and an
oracle that implements only the specification. The scripts' clock stands still within a phase and
moves between phases. A phase gives each account a list of operations; processes carry them out, and
the oracle gets the operations and the answers.
"""

import copy
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.restore import restore, verify
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.packed import unpack_account, unpack_whole_hold
from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import Store, connect
from serve_app.store.keys import split_member
from tests.ledger.oracle import Customer, Terms
from tests.ledger.restore_cases import ledger_state
from tests.soak.pair import start_pair
from tests.soak.town_worker import PEPPER, read_log
from tests.store.setting import CLOCK, SHARDS, small_tiers, stamp_ms

REPOSITORY = Path(__file__).parents[2]
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
TIERS = ("basic", "pro", "free")
KINDS = {
    "reserve": 10,
    "commit": 8,
    "void": 3,
    "hit": 6,
    "topup": 1,
    "grant": 1,
    "adjust": 1,
    "plan": 1,
    "autobuy": 1,
    "paid": 2,
    "declined": 2,
}
DAYS = (3, 17, 27)
PHASE_LIMIT_S = 600.0
LOOK_S = 0.03
SENT_AT_ONCE = 3
"""The Redis client itself sends a script again if the connection broke."""


@dataclass
class Figures:
    """What happened in an epoch."""

    operations: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    failovers: int = 0
    lost_archived: int = 0
    lost_for_good: int = 0
    reconciled: Counter[str] = field(default_factory=Counter)
    archived: int = 0
    differences: list[str] = field(default_factory=list)


class Town:
    """One epoch in its own folder."""

    def __init__(self, folder: Path, accounts: int, rate: int, kills: int, seed: int) -> None:
        """Plan an epoch.

        Args:
            folder: An empty folder with a short path.
            accounts: Number of accounts.
            rate: Operations of each account in a phase.
            kills: Number of kills in a phase, of any victim.
            seed: Determines what is done; when something is killed depends on the machine.
        """
        self.folder, self.rate, self.kills = folder, rate, kills
        self.random = random.Random(seed)
        self.figures = Figures()
        self.tiers = {f"owner{number:03d}": "basic" for number in range(accounts)}
        self.oracle = {name: Customer(Terms(0, 0, 0)) for name in self.tiers}
        self.now = 0
        self.n_ids = self.n_phases = 0
        self.journal = folder / "journal"
        self.archive = Archive(self.journal.as_uri())

    @staticmethod
    def terms(tier: str) -> Terms:
        row = small_tiers()[tier]
        return Terms(row.monthly_credits, row.cache_lookups, row.grace_credits)

    def connect(self, url: str) -> Store:
        return connect(url, shards=SHARDS, timeout_s=10, clock=CLOCK)

    async def at(self, *moment: int) -> None:
        """Move the scripts' clock, and do what has become due."""
        self.now = stamp_ms(*moment)
        store = self.connect(self.pair.primary.url)
        await store.command("SET", "test:now", self.now)
        while await Ledger(store, small_tiers()).reap_due():
            pass
        await store.close()
        for customer in self.oracle.values():
            customer.reap(self.now)

    def new_id(self) -> str:
        self.n_ids += 1
        return f"id{self.n_ids}"

    def plan(self, customer: Customer, name: str) -> list[list[Any]]:
        """Make up operations, tried on a copy of the account's expected state."""
        guess, operations = copy.deepcopy(customer), []
        while len(operations) < self.rate:
            kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
            if not guess.terms.credits:
                kind = "plan"  # an account with a key always has a plan
            words = self.words(guess, kind)
            if kind == "plan":
                self.tiers[name] = self.random.choice(TIERS)
            operations.append([self.tiers[name], kind, *words])
            self.carry(guess, operations[-1])
        return operations

    def words(self, guess: Customer, kind: str) -> list[Any]:
        chance = self.random
        known = [name for name, hold in guess.holds.items() if hold.state == "held"]
        if chance.random() < 0.05 and guess.holds:
            known = list(guess.holds)
        match kind:
            case "reserve":
                lives = (HOUR_MS, 10 * DAY_MS, 60 * DAY_MS)
                return [self.new_id(), chance.randint(0, 30), chance.choice(lives)]
            case "commit":
                hold_id = chance.choice(known or ["nobody"])
                hold = guess.holds.get(hold_id)
                return [hold_id, chance.randint(0, hold.cost) if hold else 0]
            case "void":
                return [chance.choice(known or ["nobody"])]
            case "hit":
                return [self.new_id(), chance.randint(1, 3)]
            case "topup" | "grant":
                return [self.new_id(), chance.randint(1, 40)]
            case "adjust":
                return [self.new_id(), chance.choice((-20, -5, 10))]
            case "autobuy":
                return [chance.randint(1, 20), 25, 500, 1200]
        return []

    def carry(self, customer: Customer, operation: list[Any]) -> Any:
        tier, kind, *words = operation
        if kind == "plan":
            terms = self.terms(tier)
            words = [terms.credits, terms.lookups, terms.grace]
        return customer.do(self.now, kind, *words)

    def phase(
        self, *, is_lost: bool = False, cuts_off: bool = False, beside: list[str] | None = None
    ) -> None:
        """Have every account do its operations, and compare the answers with the oracle's.

        Args:
            is_lost: No keeper runs, and the oracle does not get the operations.
            cuts_off: From some moment on, the replica receives nothing.
            beside: A command to run meanwhile; Redis is not killed then.
        """
        self.n_phases += 1
        plan = self.folder / f"plan{self.n_phases}.json"
        log = plan.with_suffix(".log")
        tiers = dict(self.tiers)
        plans = {name: self.plan(customer, name) for name, customer in self.oracle.items()}
        plan.write_text(json.dumps(plans))
        kills = self.figures.kills["redis"]
        other = subprocess.Popen(beside, env=self.environment()) if beside else None
        victims = ["clients", *(["keeper"] * (not is_lost)), *(["redis"] * (other is None))]
        crew = Crew(self, plan, log, victims)
        if cuts_off:
            crew.plan_for("replica")
        crew.work()
        assert other is None or other.wait(timeout=PHASE_LIMIT_S) == 0
        sent, answers = read_log(log)
        most = SENT_AT_ONCE if self.figures.kills["redis"] > kills else 1
        assert len(answers) == sum(map(len, plans.values()))
        if is_lost:
            self.tiers = tiers
            self.figures.lost_for_good += len(answers)
            return
        self.figures.operations += len(answers)
        for name, operations in plans.items():
            for number, operation in enumerate(operations):
                place = f"{name}/{number}"
                self.tell(name, operation, answers[place], most * sent[place])

    def tell(self, name: str, operation: list[Any], answer: Any, sent: int) -> None:
        """Compare an answer with the oracle's; an operation sent twice may already be done."""
        kind = operation[1]
        self.figures.answers[answer if isinstance(answer, str) else "OK"] += 1
        expected = self.carry(self.oracle[name], operation)
        is_again = sent > 1 and kind in ("paid", "declined") and answer == "NONE"
        if expected != answer and not is_again:
            self.figures.differences.append(
                f"{name} {operation}: {answer!r}, the oracle says {expected!r}"
            )

    async def export(self) -> None:
        """Archive everything."""
        store = self.connect(self.pair.primary.url)
        await Exporter(store, self.archive).export()
        await store.close()

    async def lose_the_primary(self, next_month: tuple[int, ...] | None) -> None:
        """Lose what the replica has not received: some of it was archived, some was not."""
        self.phase(cuts_off=True)
        if next_month is not None:
            await self.at(*next_month)
            self.phase()
        await self.export()
        self.phase(is_lost=True)
        self.pair.fail_over()
        self.figures.failovers += 1
        store = self.connect(self.pair.primary.url)
        await store.command("SET", "test:now", self.now)
        done = await Reconciler(store, self.archive).reconcile()
        self.figures.reconciled.update(one.outcome for one in done)
        self.figures.lost_archived += sum(one.n_entries for one in done)
        await self.compare(store, "after a failover")
        await store.close()

    async def compare(self, store: Store, when: str) -> None:
        """Note every difference between a ledger and the oracle, and what an audit finds."""
        open_holds: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in self.oracle}
        keys = store.keys
        for shard in range(SHARDS):
            due = keys.shard(keys.shard_tag(shard), "due")
            for member, deadline in await store.command("ZRANGE", due, 0, -1, "WITHSCORES"):
                name, hold_id = split_member(member)
                packed = await store.command("GET", keys.hold(name, hold_id))
                open_holds[name][hold_id] = (unpack_whole_hold(packed).cost, int(deadline))
        for name, customer in self.oracle.items():
            packed = await store.command("GET", keys.balance(name))
            auto = await store.command("HMGET", keys.topup(name), "on", "spent", "iprice", "fails")
            found = (
                seen(packed),
                open_holds[name],
                [None if raw is None else int(raw) for raw in auto],
            )
            expected = told(customer)
            if found != expected:
                self.figures.differences.append(f"{when} {name}: {found}, the oracle: {expected}")
        report = await Journal(store).audit()
        self.figures.differences += [f"{when} {m.account} {m.rule}" for m in report.mismatches]

    async def restore_archive(self) -> None:
        """Rebuild the ledger from its archive alone: identical to the live one and the oracle."""
        await self.export()
        found = await verify(self.archive)
        self.figures.archived = found.entries
        self.figures.differences += found.problems
        live = self.connect(self.pair.primary.url)
        server = embedded_redis.start(self.folder / "empty", extra=("--appendonly", "no"))
        empty = self.connect(server.url)
        try:
            await empty.command("SET", "test:now", self.now)
            await restore(empty, self.archive)
            lived, restored = await ledger_state(live), await ledger_state(empty)
            self.figures.differences += [
                f"{key!r} is {lived.get(key)!r}, restored {restored.get(key)!r}"
                for key in lived.keys() | restored.keys()
                if lived.get(key) != restored.get(key)
            ]
            await self.compare(live, "at the end")
            await self.compare(empty, "from the archive")
        finally:
            await live.close()
            await empty.close()
            server.stop()

    def environment(self, data_dir: str = "none") -> dict[str, str]:
        """Return the settings of an installation that uses the primary, or of one in a folder."""
        settings = {
            "AFA_DATA_DIR": str(self.folder / data_dir),
            "AFA_JOURNAL_STORE": str(self.journal),
            "AFA_LEDGER_SHARDS": str(SHARDS),
            "AFA_KEY_PEPPER": PEPPER,
        }
        if data_dir == "none":
            settings["AFA_REDIS_URL"] = self.pair.primary.url
        return os.environ | {"PYTHONPATH": str(REPOSITORY)} | settings

    def brought_back(self) -> LocalRedis:
        """Run `afa restore` into a new folder, and start Redis there."""
        command = afa("restore", str(self.folder / "backup"))
        subprocess.run(command, env=self.environment("back"), check=True, timeout=PHASE_LIMIT_S)
        return embedded_redis.start(self.folder / "back")

    async def restore_backup(self) -> None:
        """Restore the backup, with what the archive has of the time since."""
        server = self.brought_back()
        store = self.connect(server.url)
        try:
            await store.command("SET", "test:now", self.now)
            await self.compare(store, "from the backup")
        finally:
            await store.close()
            server.stop()

    async def epoch(self, months: int, lose_at: Mapping[int, bool], backup_at: int = -1) -> Figures:
        """Live for some months of 2026.

        Args:
            months: Number of months, starting with May.
            lose_at: The months in which the primary is lost; True: across the change of the month.
            backup_at: The month in which a backup is made.
        """
        with start_pair(self.folder) as self.pair:
            store = self.connect(self.pair.primary.url)
            await store.claim_shards()
            await store.close()
            for number in range(months):
                month = 5 + number
                for day in DAYS:
                    await self.at(2026, month, day)
                    self.phase()
                if number == backup_at:
                    await self.at(2026, month, DAYS[-1] + 1)
                    self.phase(beside=afa("backup", str(self.folder / "backup")))
                if number in lose_at:
                    await self.lose_the_primary((2026, month + 1, 1) if lose_at[number] else None)
            await self.restore_archive()
            if backup_at >= 0:
                await self.restore_backup()
        return self.figures


class Crew:
    """Clients and a keeper in separate processes; they and Redis are killed at random."""

    def __init__(self, town: Town, plan: Path, log: Path, victims: list[str]) -> None:
        self.town, self.plan, self.log, self.victims = town, plan, log, victims
        self.expected = sum(map(len, json.loads(plan.read_text()).values()))
        self.due: list[tuple[int, str]] = []
        for _ in range(town.kills):
            self.plan_for(town.random.choice(victims))

    def plan_for(self, victim: str) -> None:
        """Schedule something to happen to a victim at a random moment."""
        self.due.append((self.town.random.randrange(self.expected), victim))
        self.due.sort()

    def work(self) -> None:
        """Carry the plan out."""
        self.clients = self.start_clients()
        self.keeper = self.start_keeper()
        deadline = time.monotonic() + PHASE_LIMIT_S
        try:
            while self.clients.poll() is None:
                assert time.monotonic() < deadline
                if self.due and len(read_log(self.log)[1]) >= self.due[0][0]:
                    self.strike(self.due.pop(0)[1])
                time.sleep(LOOK_S)
            assert self.clients.returncode == 0
            for _, victim in self.due:
                self.strike(victim)
        finally:
            end(self.clients)
            end(self.keeper)

    def strike(self, victim: str) -> None:
        """Cut off the replica, or kill the victim."""
        if victim == "replica":
            self.town.pair.cut_off()
            return
        self.town.figures.kills[victim] += 1
        match victim:
            case "redis":
                self.town.pair.restart()
            case "keeper":
                end(self.keeper)
                self.keeper = self.start_keeper()
            case "clients":
                end(self.clients)
                self.clients = self.start_clients()

    def start_clients(self) -> "subprocess.Popen[bytes]":
        return self.start(str(self.plan), str(self.log))

    def start_keeper(self) -> "subprocess.Popen[bytes] | None":
        return self.start(str(self.town.journal)) if "keeper" in self.victims else None

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.soak.town_worker", self.town.pair.primary.url]
        return subprocess.Popen([*command, *words], cwd=REPOSITORY)


def end(process: "subprocess.Popen[bytes] | None") -> None:
    """Kill a process, which may have ended already."""
    if process is not None:
        process.kill()
        process.wait()


def afa(*words: str) -> list[str]:
    return [sys.executable, "-c", "from serve_app.cli.main import main; main()", *words]


Said = tuple[tuple[int, ...], dict[str, tuple[int, int]], list[int | None]]


def seen(packed: bytes | None) -> tuple[int, ...]:
    """Return what the ledger says about an account, in the order of `told`."""
    if packed is None:
        return (0,) * 8
    state = unpack_account(packed)
    return (
        *(state.grant, state.packs, state.debt, state.negative_since, state.period),
        *(state.granted, state.lookups_used, state.held),
    )


def told(
    customer: Customer,
) -> tuple[tuple[int, ...], dict[str, tuple[int, int]], list[int | None]]:
    """Return what the oracle says: the account, its open holds, its automatic top-up."""
    account = (
        *(customer.grant, customer.packs, customer.debt, customer.below_since, customer.month),
        *(customer.granted, customer.lookups, customer.held),
    )
    holds = {n: (h.cost, h.deadline) for n, h in customer.holds.items() if h.state == "held"}
    auto = customer.autobuy
    if auto is None:
        return account, holds, [None] * 4
    spent = auto.spent if auto.month else None
    price = auto.due[1] if auto.due else None
    return account, holds, [int(auto.is_on), spent, price, auto.declined]
