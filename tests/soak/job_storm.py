"""Many jobs, some of whose workers are killed; then every job and every credit is accounted for.

Only the time to wait for the next job to end is limited: a slow machine takes longer, and does not
fail for that.
"""

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
from serve_app.store.keys import lane_key, split_member
from tests.soak.job_worker import POLICY, SHARDS
from tests.soak.power import Victim
from tests.store.setting import rich_tiers, some_work

REPOSITORY = Path(__file__).parents[2]
WORKERS = 2
OWNERS = 20
DEEDS = ("complete", "complete", "complete", "cheaper", "fail", "retry", "recover")
KILL_EVERY = 200
"""Jobs that end between two kills; if workers were killed by the clock, none might ever end."""

ROUNDS_AHEAD = 4
"""The jobs of at most this many rounds are in the queue; each further round needs a kill."""

PATIENCE_S = 120.0
"""Longest time in which no job ends before the test fails."""

SUBMITS_AT_ONCE = 32


class Storm:
    """One storm on its own Redis."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.victim = Victim(folder)
        self.count = jobs
        self.submitted = self.rounds = self.deaths = 0
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
        return NewJob(f"j{number}", f"owner{number % OWNERS}", "pro", some_work(deed), cost)

    async def submit_all(self, jobs: Jobs) -> None:
        numbers = iter(range(self.count))

        async def submit() -> None:
            for number in numbers:
                while number >= KILL_EVERY * (self.rounds + ROUNDS_AHEAD):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                await jobs.submit(self.plan(number))
                self.submitted += 1

        await asyncio.gather(*(submit() for _ in range(SUBMITS_AT_ONCE)))

    async def kill_and_recover(self, store: Store, jobs: Jobs) -> None:
        """Recover jobs, and kill a worker per `KILL_EVERY` ended jobs, until all have ended."""
        serial, ended, seen_s = WORKERS, 0, time.monotonic()
        while ended < self.count:
            await jobs.recover()
            before, submitted = ended, self.submitted
            ended = submitted - await open_jobs(store)
            if ended > before:
                seen_s = time.monotonic()
            assert time.monotonic() - seen_s < PATIENCE_S, await left_open(store)
            dead = {name for name, pid in self.pids.items() if not is_alive(pid)}
            if ended >= KILL_EVERY * (self.rounds + 1):
                self.rounds += 1
                name = random.choice(sorted(self.pids))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[name], signal.SIGKILL)
                dead.add(name)
            for name in dead:
                self.deaths += 1
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
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.submit_all(jobs))
                tasks.create_task(self.kill_and_recover(store, jobs))
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
        async with asyncio.timeout(PATIENCE_S):  # the workers remove surplus places
            while any(map(int, await store.command("HVALS", lane_key("depth")))):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

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


def open_indexes(store: Store) -> list[str]:
    """Return each shard's index of unfinished jobs."""
    keys = store.keys
    return [keys.job_index(keys.shard_tag(shard), "open") for shard in range(SHARDS)]


async def open_jobs(store: Store) -> int:
    """Return the number of jobs that have not ended."""
    return sum(await store.batch([("ZCARD", index) for index in open_indexes(store)]))


async def left_open(store: Store) -> str:
    """Describe the jobs that have not ended: state, attempts, and place in the lanes."""
    found = await store.batch([("ZRANGE", index, 0, -1) for index in open_indexes(store)])
    jobs = [split_member(raw) for members in found for raw in members]
    told = [f"{len(jobs)} jobs have not ended, and none has in {PATIENCE_S:.0f} s"]
    for account, job_id in jobs[:20]:
        key = store.keys.job(account, job_id)
        record = await store.command("HMGET", key, "state", "attempts", "worker", "queued", "lease")
        told.append(f"{job_id}: {record} {await store.command('HGET', lane_key('where'), job_id)}")
    return "\n".join(told)
