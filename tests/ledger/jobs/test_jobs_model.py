"""Random histories of jobs with crashes between any two steps; every invariant after every step."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from serve_app.domain.errors import InsufficientCreditsError
from serve_app.ledger.jobs.records import JobPolicy
from serve_app.ledger.jobs.types import Claim, JobState, NewJob
from serve_app.ledger.packed import unpack_hold
from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import connect
from serve_app.store.keys import split_member
from tests.store.setting import CLOCK, START_MS, Setting, small_tiers, some_work

pytestmark = pytest.mark.redis

POLICY = JobPolicy(owner_in_flight=3, max_wait_s=10**9)
LEASE_MS = 30_000
RUN_MS = 300_000
QUEUE_MS = 900_000
OWNERS = {"anna": "basic", "bert": "pro", "carl": "scale"}
HOLD_STATES = {
    JobState.QUEUED: "held",
    JobState.RUNNING: "held",
    JobState.COMPLETE: "committed",
    JobState.FAILED: "voided",
}


@dataclass
class ModelJob:
    """What must be true of one job."""

    account: str
    cost: int
    state: JobState = JobState.QUEUED
    fence: int = 0
    attempts: int = 0
    lease: int = 0
    started: int = 0
    queued: int = 0
    used: int = 0
    result: bytes | None = None


class JobsMachine(RuleBasedStateMachine):
    """Three owners, any number of workers, a sweep, and a clock."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        store = connect(self.url, shards=1, clock=CLOCK, timeout_s=5)
        self.s = Setting(store, small_tiers(), POLICY)
        self.model: dict[str, ModelJob] = {}
        self.claims: list[Claim] = []

    def run(self, call: Awaitable[Any]) -> Any:
        return self.loop.get_loop().run_until_complete(call)

    def teardown(self) -> None:
        self.run(self.s.jobs.close())
        self.run(self.s.store.close())
        self.loop.close()

    @initialize()
    def begin(self) -> None:
        self.run(self.s.store.command("FLUSHALL"))
        self.run(self.s.at(START_MS))

    @rule(owner=st.sampled_from(sorted(OWNERS)), cost=st.integers(0, 12), number=st.integers(0, 9))
    def submit(self, owner: str, cost: int, number: int) -> None:
        job_id = f"{owner}-{number}-{cost}"
        job = NewJob(job_id, owner, OWNERS[owner], some_work(), cost, "f")
        try:
            self.run(self.s.jobs.submit(job))
        except InsufficientCreditsError:
            assert job_id not in self.model
            return
        self.model.setdefault(job_id, ModelJob(owner, cost, queued=self.s.now_ms, used=cost))

    @rule(worker=st.sampled_from(["w1", "w2", "w3"]))
    def claim(self, worker: str) -> None:
        claim = self.run(self.s.jobs.claim(worker))
        if claim is None:
            return
        job = self.model[claim.job_id]
        assert job.state is JobState.QUEUED
        assert claim.fence == job.fence + 1
        assert claim.attempt == job.attempts + 1 <= POLICY.max_attempts
        job.state, job.fence, job.attempts = JobState.RUNNING, claim.fence, claim.attempt
        job.lease, job.started = self.s.now_ms + LEASE_MS, self.s.now_ms
        self.claims.append(claim)

    @rule()
    def worker_dies_between_lane_and_start(self) -> None:
        self.run(self.s.jobs._lanes["analyse"].claim("w9"))

    def is_current(self, claim: Claim) -> bool:
        job = self.model[claim.job_id]
        return job.state is JobState.RUNNING and job.fence == claim.fence

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        job = self.model[claim.job_id]
        expected = self.is_current(claim)
        if expected and self.s.now_ms >= job.started + RUN_MS:
            job.lease, expected = self.s.now_ms, False
        elif expected:
            job.lease = self.s.now_ms + LEASE_MS
        assert self.run(self.s.jobs.heartbeat(claim, 0.5, "mood")) == expected

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), final=st.none() | st.integers(0, 12), leaves=st.booleans())
    def finish(self, data: st.DataObject, final: int | None, leaves: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        job = self.model[claim.job_id]
        was_current = self.is_current(claim)
        expected = was_current or (job.state is JobState.COMPLETE and job.fence == claim.fence)
        result = f"{claim.fence}".encode()
        said = self.run(self.s.jobs.finish(claim, result, final))
        assert said == expected
        if was_current:
            job.state, job.result = JobState.COMPLETE, result
            job.used = job.cost if final is None else min(final, job.cost)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), retryable=st.booleans())
    def fail(self, data: st.DataObject, retryable: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        job = self.model[claim.job_id]
        was_current = self.is_current(claim)
        self.run(self.s.jobs.fail(claim, "internal_error", "x", retryable))
        if was_current and retryable and claim.attempt < POLICY.max_attempts:
            job.state, job.queued = JobState.QUEUED, self.s.now_ms
        elif was_current:
            job.state, job.used = JobState.FAILED, 0

    def lose(self, job: ModelJob) -> None:
        if self.s.now_ms >= job.started + RUN_MS or job.attempts >= POLICY.max_attempts:
            job.state, job.used = JobState.FAILED, 0
        else:
            job.state, job.queued = JobState.QUEUED, self.s.now_ms

    @rule()
    def recover(self) -> None:
        self.run(self.s.jobs.recover())
        for job in self.model.values():
            if job.state is JobState.QUEUED and self.s.now_ms >= job.queued + QUEUE_MS:
                job.state, job.used = JobState.FAILED, 0
            elif job.state is JobState.RUNNING and self.s.now_ms >= job.lease:
                self.lose(job)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.run(self.s.jobs.give_back(claim))
        if self.is_current(claim):
            job = self.model[claim.job_id]
            job.state, job.queued, job.attempts = JobState.QUEUED, self.s.now_ms, job.attempts - 1

    @rule()
    def lanes_are_lost(self) -> None:
        names = self.run(self.s.store.command("KEYS", "{lanes}:*"))
        if names:
            self.run(self.s.store.command("DEL", *names))

    @rule(ms=st.sampled_from([1, 1_000, 2_000, LEASE_MS - 1, LEASE_MS, RUN_MS, QUEUE_MS]))
    def wait(self, ms: int) -> None:
        self.run(self.s.after(ms))

    @precondition(lambda self: any(j.state is JobState.RUNNING for j in self.model.values()))
    @rule(off=st.sampled_from([-1, 0]))
    def wait_for_a_lease(self, off: int) -> None:
        leases = [job.lease for job in self.model.values() if job.state is JobState.RUNNING]
        self.run(self.s.at(max(self.s.now_ms, min(leases) + off)))

    @invariant()
    def records_follow_the_model(self) -> None:
        for job_id, job in self.model.items():
            record = self.run(self.s.jobs.get(job.account, job_id))
            assert record.state is job.state, job_id
            assert record.credits_used == job.used
            assert (record.attempts, record.result) == (job.attempts, job.result)
            hold = self.run(
                self.s.store.command("GET", self.s.store.keys.hold(job.account, f"job:{job_id}"))
            )
            assert unpack_hold(hold)[0] == HOLD_STATES[job.state]

    @invariant()
    def money_and_indexes_agree(self) -> None:
        open_jobs = {name for name, job in self.model.items() if not job.state.is_terminal}
        tag = self.s.store.keys.shard_tag(0)
        indexed = self.run(
            self.s.store.command("ZRANGE", self.s.store.keys.job_index(tag, "open"), 0, -1)
        )
        assert {split_member(raw)[1] for raw in indexed} == open_jobs
        assert self.run(self.s.journal.audit()).mismatches == ()
        for owner in {job.account for job in self.model.values()}:
            mine = [job for job in self.model.values() if job.account == owner]
            balance = self.run(self.s.ledger.balance(owner))
            assert balance.open_jobs == sum(not job.state.is_terminal for job in mine)
            assert balance.remaining == balance.granted - sum(job.used for job in mine)


def test_random_histories_follow_the_model(redis_server: LocalRedis) -> None:
    machine = type("Machine", (JobsMachine,), {"url": redis_server.url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
