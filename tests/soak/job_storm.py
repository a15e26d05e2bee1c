"""Many jobs, and a worker killed every second; then every job and every credit is accounted for."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import JobRecord, JobState, NewJob
from serve_app.ledger.journal import Journal
from serve_app.local.embedded_redis import is_alive
from serve_app.store.client import Store, connect
from serve_app.store.keys import lane_key
from tests.soak.job_worker import POLICY, SHARDS
from tests.soak.power import Victim
from tests.store.setting import rich_tiers, some_work

REPOSITORY = Path(__file__).parents[2]
WORKERS = 2
OWNERS = 20
DEEDS = ("complete", "complete", "complete", "cheaper", "fail", "retry", "recover")
KILL_EVERY_S = 1.0
SUBMITS_AT_ONCE = 32


class Storm:
    """One storm on a Redis of its own."""

    def __init__(self, folder: Path, jobs: int, limit_s: float) -> None:
        self.victim = Victim(folder)
        self.count = jobs
        self.limit_s = limit_s
        self.kills = 0
        self.pids: dict[str, int] = {}
        self.nursery: subprocess.Popen[str] | None = None

    def start_worker(self, name: str) -> None:
        assert self.nursery is not None
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(f"{name}\n")
        self.nursery.stdin.flush()
        self.pids[name] = int(self.nursery.stdout.readline())

    def plan(self, number: int) -> NewJob:
        deed = DEEDS[number % len(DEEDS)]
        cost = 1 + number % 10
        return NewJob(f"j{number}", f"owner{number % OWNERS}", "pro", "test", some_work(deed), cost)

    async def submit_all(self, jobs: Jobs) -> None:
        numbers = iter(range(self.count))

        async def submit() -> None:
            for number in numbers:
                await jobs.submit(self.plan(number))

        await asyncio.gather(*(submit() for _ in range(SUBMITS_AT_ONCE)))

    async def kill_and_recover(self, jobs: Jobs) -> None:
        serial, last = WORKERS, time.monotonic()
        while True:
            await jobs.recover()
            dead = {name for name, pid in self.pids.items() if not is_alive(pid)}
            if time.monotonic() - last >= KILL_EVERY_S:
                last = time.monotonic()
                name = random.choice(sorted(self.pids))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[name], signal.SIGKILL)
                dead.add(name)
            for name in dead:
                self.kills += 1
                del self.pids[name]
                self.start_worker(f"w{serial}")
                serial += 1
            await asyncio.sleep(0.1)

    async def go(self) -> None:
        self.victim.start()
        store = connect(self.victim.url, shards=SHARDS, timeout_s=30)
        jobs = Jobs(store, rich_tiers(), POLICY)
        command = [sys.executable, "-m", "tests.soak.job_worker", self.victim.url]
        self.nursery = subprocess.Popen(  # noqa: ASYNC220 - once, before anything else runs
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            for number in range(WORKERS):
                self.start_worker(f"w{number}")
            trouble = asyncio.create_task(self.kill_and_recover(jobs))
            await self.submit_all(jobs)
            deadline = time.monotonic() + self.limit_s
            while await open_jobs(store) and time.monotonic() < deadline:
                await asyncio.wait([trouble], timeout=0.2)
                if trouble.done():
                    await trouble
            while not trouble.done():
                trouble.cancel()
                await asyncio.wait([trouble], timeout=0.1)
            left = await open_jobs(store)
            assert left == 0, f"{left} jobs had not ended after {self.limit_s} s"
            await self.reckon(store, jobs)
        finally:
            for pid in self.pids.values():
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            self.nursery.communicate()
            await jobs.close()
            await store.close()
            self.victim.stop()

    async def reckon(self, store: Store, jobs: Jobs) -> None:
        """Fail unless every job ended once, with one charge or one refund."""
        journal = Journal(store)
        report = await journal.audit()
        assert report.mismatches == ()
        assert report.open_holds == 0
        entries = [e for n in range(OWNERS) for e in await journal.entries(f"owner{n}")]
        found = Counter((e.account, e.kind, e.entry_id) for e in entries if e.kind != "grant")
        assert set(found.values()) == {1}
        used: Counter[str] = Counter()
        for number in range(self.count):
            job = self.plan(number)
            record = await jobs.get(job.account, job.job_id)
            assert record is not None
            self.check(record, number)
            kind = "commit" if record.state is JobState.COMPLETE else "void"
            other = {"commit": "void", "void": "commit"}[kind]
            assert found[job.account, "reserve", f"job:{job.job_id}"] == 1
            assert found[job.account, kind, f"job:{job.job_id}"] == 1
            assert found[job.account, other, f"job:{job.job_id}"] == 0
            used[job.account] += record.credits_used
        for account, credits in used.items():
            packed = await store.command("GET", store.keys.balance(account))
            assert packed is not None
            assert sum(e.grant for e in entries if e.account == account) == 10**9 - credits
        assert sum(map(int, await store.command("HVALS", lane_key("depth")))) == 0

    def check(self, record: JobRecord, number: int) -> None:
        assert record.state.is_terminal, record
        deed = DEEDS[number % len(DEEDS)]
        if record.state is JobState.COMPLETE:
            assert deed in ("complete", "cheaper", "recover")
            expected = record.cost // 2 if deed == "cheaper" else record.cost
            assert record.credits_used == expected
            assert record.result == b"{}"
        else:
            assert record.error is not None
            crashed = record.error.code == "internal_error" and record.attempts == 3
            assert crashed or deed in ("fail", "retry")
            assert record.credits_used == 0


async def open_jobs(store: Store) -> int:
    """Count the jobs that have not ended."""
    keys = store.keys
    tags = [keys.shard_tag(shard) for shard in range(SHARDS)]
    return sum(await store.batch([("ZCARD", keys.job_index(tag, "open")) for tag in tags]))
