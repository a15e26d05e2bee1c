"""Random operations on a fresh ledger while service and Redis are killed; then all is checked."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from serve_app.domain.credits import JournalEntry
from serve_app.ledger.journal import Journal
from serve_app.ledger.packed import unpack_account
from serve_app.store.client import connect
from serve_app.store.keys import Keyspace
from tests.soak.power import Victim
from tests.soak.worker import SHARDS, Plan
from tests.store.setting import rich_tiers

REPOSITORY = Path(__file__).parents[2]
WORKERS = 2
SHORTEST_S, LONGEST_S = 0.05, 0.25
EPOCH_LIMIT_S = 900.0


@dataclass
class Reckoning:
    """The differences between the journal and what was acknowledged."""

    operations: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    bytes_cut: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.mismatches)


@dataclass
class Epoch:
    """One run on a fresh folder.

    Attributes:
        folder: A new folder with a short path, on a real file system.
        operations: Run until at least this many operations are acknowledged.
        actions: ``service``, ``redis`` or ``power``; each is done as often as it is listed.
        lua: Folder of scripts to use instead of the product's.
    """

    folder: Path
    operations: int
    actions: list[str]
    fsync: str = "always"
    shim: Path | None = None
    lua: Path | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        self.victim = Victim(self.folder, self.fsync, self.shim)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.result = Reckoning()
        self.sizes: dict[str, int] = {}
        self.chance = random.Random(self.seed)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start_worker(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.soak.worker", self.victim.url]
        command += [str(self.log(name)), name, *([str(self.lua)] if self.lua else [])]
        self.processes[name] = subprocess.Popen(command, cwd=REPOSITORY)

    def acknowledged(self) -> int:
        """Estimate the operations so far from the length of the logs, at 28 bytes each."""
        sizes = [
            self.log(name).stat().st_size for name in self.processes if self.log(name).exists()
        ]
        return sum(sizes) // 28

    def act(self, action: str) -> None:
        self.result.kills[action] += 1
        if action == "service":
            name = self.chance.choice(sorted(self.processes))
            os.kill(self.processes[name].pid, signal.SIGKILL)
            self.processes[name].wait()
            self.start_worker(name)
        elif action == "redis":
            self.victim.kill()
            self.victim.start()
        else:
            self.result.bytes_cut += self.victim.cut_power()
            self.victim.start()

    def run(self) -> Reckoning:
        """Run the epoch and return its reckoning."""
        deadline = time.monotonic() + EPOCH_LIMIT_S
        self.victim.start()
        try:
            for number in range(WORKERS):
                self.start_worker(f"w{number}")
            order = self.chance.sample(self.actions, len(self.actions))
            for number, action in enumerate(order, 1):
                due = number * self.operations // (len(order) + 1)
                while self.acknowledged() < due and time.monotonic() < deadline:
                    time.sleep(0.01)
                time.sleep(self.chance.uniform(SHORTEST_S, LONGEST_S))
                self.act(action)
            while self.acknowledged() < self.operations and time.monotonic() < deadline:
                time.sleep(0.02)
            for name in self.processes:
                self.log(name).with_suffix(".stop").touch()
            for process in self.processes.values():
                assert process.wait(timeout=120) == 0
            asyncio.run(self.reckon())
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            self.victim.stop()
        return self.result

    async def reckon(self) -> None:
        """Compare logs, journal and balances."""
        store = connect(self.victim.url, shards=SHARDS, timeout_s=30)
        journal = Journal(store)
        lines = [
            line.split(" ")
            for name in self.processes
            for line in self.log(name).read_text(encoding="utf-8").splitlines()
        ]
        answers = [line for line in lines if line[0] != "begin"]
        self.result.operations = len(answers)
        found: Counter[tuple[str, str]] = Counter()
        per_account: Counter[tuple[str, str, str]] = Counter()
        entries: list[JournalEntry] = []
        for shard in range(SHARDS):
            async for page in journal.pages(Keyspace.shard_tag(shard)):
                entries += [entry for call in page for entry in call.entries]
        found.update((entry.kind, entry.entry_id) for entry in entries)
        per_account.update((entry.account, entry.kind, entry.entry_id) for entry in entries)
        for step, flow_id, answer in answers:
            if answer != "ok":
                self.result.lost.append(f"{step} {flow_id}: {answer}")
            elif found[step, flow_id] == 0:
                self.result.lost.append(f"{step} {flow_id}: not in the journal")
        self.result.doubled = [" ".join(entry) for entry, n in per_account.items() if n > 1]
        report = await journal.audit()
        self.result.mismatches = [f"{m.account} {m.rule}: {m.detail}" for m in report.mismatches]
        expected = Counter[str]()
        for flow_id in {flow_id for _, flow_id, *_ in answers}:
            plan = Plan.of(flow_id)
            expected[plan.account] += plan.cost if plan.steps == ("topup",) else -plan.final
        monthly = rich_tiers()["pro"].monthly_credits
        for account, change in expected.items():
            packed = await store.command("GET", store.keys.balance(account))
            state = unpack_account(packed) if packed else None
            left = state.grant + state.packs - state.debt if state else 0
            months = sum(e.account == account and e.kind == "grant" for e in entries)
            if months == 1 and left != monthly + change:
                self.result.mismatches.append(f"{account}: {left}, not {monthly + change}")
        await store.close()
