"""Directed cases of jobs and lanes; run like those of the ledger."""

import asyncio
import json
from dataclasses import replace

import pytest

from serve_app.domain.credits import HoldClosedError
from serve_app.domain.errors import (
    IdempotencyMismatchError,
    InsufficientCreditsError,
    ServiceUnavailableError,
)
from serve_app.ledger.jobs import queue
from serve_app.ledger.jobs.lanes import Lanes, Load
from serve_app.ledger.jobs.sweep import CRASH_MESSAGE, FIRST_LOOK_MS
from serve_app.ledger.jobs.types import (
    Claim,
    JobRecord,
    JobState,
    NewJob,
    ObjectSource,
    UrlSource,
)
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.store.keys import lane_key, split_member
from tests.store.setting import ACCOUNT, Setting, buckets, small_tiers, some_work, stamp_ms

LEASE_MS = 30_000
DAY_S = 24 * 3600


def new_job(job_id: str, account: str = ACCOUNT, tier: str = "basic", cost: int = 10) -> NewJob:
    return NewJob(job_id, account, tier, some_work(job_id), cost, "print")


async def read(s: Setting, job_id: str, account: str = ACCOUNT) -> JobRecord:
    record = await s.jobs.get(account, job_id)
    assert record is not None
    return record


async def claim(s: Setting, worker: str = "w1") -> Claim:
    found = await s.jobs.claim(worker)
    assert found is not None
    return found


async def index(s: Setting, name: str, account: str = ACCOUNT) -> dict[str, int]:
    keys = s.store.keys
    pairs = await s.store.redis.zrange(
        keys.job_index(keys.tag(account), name), 0, -1, withscores=True
    )
    return {split_member(raw)[1]: int(score) for raw, score in pairs}


async def dead_letters(s: Setting) -> list[str]:
    keys = s.store.keys
    found = await s.store.command("LRANGE", keys.job_index(keys.tag(ACCOUNT), "dead"), 0, -1)
    return [split_member(raw)[1] for raw in found]


async def n_waiting(s: Setting) -> int:
    """Count the queued jobs over all lanes."""
    return sum(map(int, await s.store.command("HVALS", lane_key("depth"))))


async def n_claimed(s: Setting, lane: str) -> int:
    return int(await s.store.command("HGET", lane_key("busy"), f"n:{lane}") or 0)


async def claimant(s: Setting, job_id: str) -> str | None:
    """Name the worker that has claimed a job."""
    place = await s.store.command("HGET", lane_key("where"), job_id)
    return None if place is None else split_member(place)[5]


async def jobs_per_s(s: Setting) -> float:
    load = await Lanes(s.store, s.tiers).load("basic", ACCOUNT)
    return load.mean_busy / load.mean_service_s


async def job_runs_from_submit_to_complete(s: Setting) -> None:
    record = await s.jobs.submit(new_job("j1"))
    assert (record.state, record.cost, record.credits_used) == (JobState.QUEUED, 10, 10)
    assert (record.attempts, record.work, record.tier) == (0, some_work("j1"), "basic")
    stored = await s.jobs.get(ACCOUNT, "j1")
    assert stored is not None
    assert stored.created_at.timestamp() * 1000 == s.now_ms
    assert replace(record, created_at=stored.created_at, balance=None) == stored
    balance = await s.ledger.balance(ACCOUNT)
    assert record.balance == balance
    assert (balance.remaining, balance.held, balance.open_jobs) == (50, 10, 1)
    held = await claim(s)
    assert (held.attempt, held.fence, held.work, held.cost) == (1, 1, some_work("j1"), 10)
    assert (await read(s, "j1")).state is JobState.RUNNING
    assert await index(s, "open") == {"j1": s.now_ms + LEASE_MS}
    assert (await s.jobs.recover()).requeued == 0
    assert await s.jobs.claim("w2") is None
    assert await s.jobs.heartbeat(held, 0.5, "mood")
    running = await read(s, "j1")
    assert (running.progress, running.stage) == (0.5, "mood")
    await s.after(1_000)
    assert await s.jobs.finish(held, b"\x00result")
    done = await read(s, "j1")
    assert (done.state, done.result, done.credits_used) == (JobState.COMPLETE, b"\x00result", 10)
    assert (done.progress, done.attempts, done.error) == (1.0, 1, None)
    assert done.finished_at is not None
    assert done.finished_at.timestamp() * 1000 == s.now_ms
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.held, balance.open_jobs) == (50, 0, 0)
    assert await index(s, "open") == {}
    assert (await s.lines())[-1] == ("commit", "job:j1", 0, 0, 0)
    await s.audit()


async def submit_is_idempotent(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    again = await s.jobs.submit(new_job("j1"))
    assert again.state is JobState.QUEUED
    with pytest.raises(IdempotencyMismatchError):
        await s.jobs.submit(new_job("j1", cost=11))
    with pytest.raises(IdempotencyMismatchError):
        await s.jobs.submit(NewJob("j1", ACCOUNT, "basic", some_work(), 10, "other"))
    held = await claim(s)
    await s.jobs.finish(held, b"{}")
    assert (await s.jobs.submit(new_job("j1"))).state is JobState.COMPLETE
    assert await s.jobs.claim("w1") is None
    assert (await s.ledger.balance(ACCOUNT)).remaining == 50
    await s.audit()


async def withdrawn_jobs_are_refunded(s: Setting) -> None:
    for job_id in ("running", "waiting"):
        await s.jobs.submit(new_job(job_id))
    held = await claim(s)
    for job_id in ("running", "waiting"):
        assert await s.jobs.withdraw(ACCOUNT, job_id)
        assert await s.jobs.withdraw(ACCOUNT, job_id)
        record = await read(s, job_id)
        assert (record.state, record.credits_used) == (JobState.FAILED, 0)
        assert record.error is not None
        assert record.error.code == "internal_error"
    assert not await s.jobs.finish(held, b"{}")
    assert await s.jobs.claim("w2") is None
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.held, balance.open_jobs) == (60, 0, 0)
    assert await index(s, "open") == {}
    assert await dead_letters(s) == []
    await s.audit()


async def ended_jobs_are_not_withdrawn(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.jobs.finish(await claim(s), b"{}")
    assert not await s.jobs.withdraw(ACCOUNT, "j1")
    assert (await read(s, "j1")).state is JobState.COMPLETE
    assert (await s.ledger.balance(ACCOUNT)).remaining == 50
    await s.audit()


async def withdrawn_ids_are_not_taken_later(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    assert await s.jobs.withdraw(ACCOUNT, "j1")
    assert await s.jobs.withdraw(ACCOUNT, "j1")
    with pytest.raises(IdempotencyMismatchError):
        await s.jobs.submit(new_job("j1"))
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.held, balance.open_jobs) == (60, 0, 0)
    name = s.store.keys.job(ACCOUNT, "j1")
    assert 3_590_000 < await s.store.command("PTTL", name) <= 3_600_000
    await s.audit()


async def jobs_are_listed_newest_first(s: Setting) -> None:
    for n in range(5):
        await s.jobs.submit(new_job(f"j{n}"))
        await asyncio.sleep(0.002)
    await s.jobs.submit(new_job("other", account="bob"))
    quiet = new_job("quiet")
    await s.jobs.submit(replace(quiet, work=replace(quiet.work, is_for_lookup=True)))
    await s.jobs.forget(ACCOUNT, "j3")
    first = await s.jobs.page(ACCOUNT, 2, None)
    assert [one.position.job_id for one in first] == ["j4", "j2"]
    assert {(one.state, one.credits_used) for one in first} == {(JobState.QUEUED, 10)}
    rest = await s.jobs.page(ACCOUNT, 9, first[-1].position)
    assert [one.position.job_id for one in rest] == ["j1", "j0"]
    assert await s.jobs.get(ACCOUNT, "j3") is None


async def the_list_forgets_what_is_long_gone(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    name = s.store.keys.job_list(ACCOUNT)
    now_ms = await s.store.now_ms()
    kept_ms = small_tiers()["basic"].asset_lifetime_s * 1000 + DAY_S * 1000
    await s.store.command("ZADD", name, now_ms - kept_ms - 1000, "old")
    await s.store.command("ZADD", name, now_ms - kept_ms + 60_000, "young")
    await s.jobs.submit(new_job("j2"))
    assert await s.store.command("ZRANGE", name, 0, -1) == [b"young", b"j1", b"j2"]
    assert [one.position.job_id for one in await s.jobs.page(ACCOUNT, 9, None)] == ["j2", "j1"]
    assert await s.store.command("ZRANGE", name, 0, -1) == [b"j1", b"j2"]


async def a_list_is_read_whole_while_another_call_shortens_it(s: Setting) -> None:
    for job_id in ("j1", "j2"):
        await s.jobs.submit(new_job(job_id))
    name, now_ms = s.store.keys.job_list(ACCOUNT), await s.store.now_ms()
    for number in range(40):
        await s.store.command("ZADD", name, now_ms + 1000, f"expired-{number}")
    pages = await asyncio.gather(*(s.jobs.page(ACCOUNT, limit, None) for limit in (2, 50)))
    for page in pages:
        assert [one.position.job_id for one in page] == ["j2", "j1"]


async def refused_jobs_leave_nothing(s: Setting) -> None:
    with pytest.raises(InsufficientCreditsError):
        await s.jobs.submit(new_job("big", cost=91))
    assert await s.jobs.get(ACCOUNT, "big") is None
    assert await index(s, "open") == {}
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.held, balance.open_jobs) == (60, 0, 0)
    for number in range(5):
        await s.jobs.submit(new_job(f"f{number}", "poor", "free", 1))
    with pytest.raises(ServiceUnavailableError, match="5 of your jobs"):
        await s.jobs.submit(new_job("f5", "poor", "free", 1))
    assert (await s.ledger.balance("poor")).remaining == 35
    await s.jobs.finish(await claim(s), b"")
    await s.jobs.submit(new_job("f5", "poor", "free", 1))
    await s.audit()


async def lease_ends_exactly(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    held = await claim(s)
    await s.after(10_000)
    assert await s.jobs.heartbeat(held, 0.25, "decode")
    assert await index(s, "open") == {"j1": s.now_ms + LEASE_MS}
    await s.after(LEASE_MS - 1)
    assert (await s.jobs.recover()).requeued == 0
    assert (await read(s, "j1")).state is JobState.RUNNING
    await s.after(1)
    assert (await s.jobs.recover()).requeued == 1
    assert await index(s, "open") == {"j1": s.now_ms + FIRST_LOOK_MS}
    again = await read(s, "j1")
    assert (again.state, again.progress, again.stage) == (JobState.QUEUED, 0.0, "queued")
    assert not await s.jobs.heartbeat(held, 0.5, "mood")
    second = await claim(s, "w2")
    assert (second.attempt, second.fence) == (2, 2)
    # The first worker comes back: it changes nothing.
    assert not await s.jobs.heartbeat(held, 0.5, "mood")
    assert not await s.jobs.finish(held, b"late")
    await s.jobs.fail(held, "unprocessable_audio", "late")
    assert (await read(s, "j1")).state is JobState.RUNNING
    assert await s.jobs.finish(second, b"good")
    assert not await s.jobs.finish(held, b"late")
    assert (await read(s, "j1")).result == b"good"
    assert (await s.ledger.balance(ACCOUNT)).remaining == 50
    await s.audit()


async def finish_again_changes_nothing(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    held = await claim(s)
    assert await s.jobs.finish(held, b"one", 4)
    assert await s.jobs.finish(held, b"two", 4)
    record = await read(s, "j1")
    assert (record.result, record.credits_used) == (b"one", 4)
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.open_jobs) == (56, 0)
    await s.jobs.fail(held, "internal_error", "too late")
    assert (await read(s, "j1")).state is JobState.COMPLETE
    await s.audit()


async def id_of_an_expired_record_is_not_taken_again(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    keys = s.store.keys
    due = await s.store.redis.zscore(keys.shard(keys.tag(ACCOUNT), "due"), f"{ACCOUNT}\x1fjob:j1")
    assert due == s.now_ms + 3_600_000
    await s.jobs.finish(await claim(s), b"r")
    hold = await s.store.command("GET", keys.hold(ACCOUNT, "job:j1"))
    await s.store.command("DEL", keys.hold(ACCOUNT, "job:j1"))
    assert (await s.jobs.submit(new_job("j1"))).result == b"r"
    await s.store.command("SET", keys.hold(ACCOUNT, "job:j1"), hold)
    await s.store.command("DEL", keys.job(ACCOUNT, "j1"))
    with pytest.raises(IdempotencyMismatchError):
        await s.jobs.submit(new_job("j1"))
    assert (await s.ledger.balance(ACCOUNT)).remaining == 50


async def month_turns_under_a_job(s: Setting) -> None:
    await s.at(stamp_ms(2026, 12, 31, 23, 59))
    for number in range(2):
        await s.jobs.submit(new_job(f"j{number}"))
    first, second = await claim(s), await claim(s)
    await s.at(stamp_ms(2027, 1, 1))
    assert await s.jobs.finish(first, b"", 4)
    assert buckets(await s.ledger.balance(ACCOUNT)) == (66, 0, 0)
    await s.jobs.fail(second, "internal_error", "x")
    assert buckets(await s.ledger.balance(ACCOUNT)) == (76, 0, 0)
    await s.at(stamp_ms(2027, 1, 31))
    await s.jobs.submit(new_job("j2"))
    third = await claim(s)
    await s.at(stamp_ms(2027, 2, 1))
    await s.jobs.fail(third, "internal_error", "x")
    assert buckets(await s.ledger.balance(ACCOUNT)) == (70, 0, 0)
    await s.audit()


async def lost_place_of_a_pausing_job_keeps_its_pause(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.jobs.fail(await claim(s), "internal_error", "again", retryable=True)
    key = s.store.keys.job(ACCOUNT, "j1")
    await s.store.command("HSET", key, "ready", s.now_ms + 5_000)
    await s.store.command("DEL", *await s.store.command("KEYS", "{lanes}:*"))
    await s.jobs.recover()
    assert await s.jobs.claim("w1") is None
    await s.after(5_000)
    assert (await claim(s)).attempt == 2
    assert await s.jobs.claim("w2") is None
    assert await n_waiting(s) == 0


async def an_address_is_fetched_before_it_is_analysed(s: Setting) -> None:
    work = replace(some_work(), source=UrlSource("http://a.example/x"))
    for job_id in ("j1", "j2", "j3"):
        await s.jobs.submit(replace(new_job(job_id), work=work))
    assert await s.jobs.claim("w1") is None
    held = [await s.jobs.claim("f1", stage="fetch") for _ in range(3)]
    assert held[2] is None  # at most two of one owner at once
    first = held[0]
    assert first is not None
    await s.after(5_000)
    fetched = replace(work, source=ObjectSource("uploads/j1"))
    assert not await s.jobs.pass_on(replace(first, fence=7), fetched)
    third = await s.jobs.claim("f1", stage="fetch")  # a lost job makes room too
    assert third is not None
    assert third.job_id == "j3"
    assert await s.jobs.pass_on(first, fetched)
    assert not await s.jobs.pass_on(first, fetched)
    assert (await index(s, "open"))["j1"] == s.now_ms + 2_000
    record = await read(s, "j1")
    assert (record.state, record.attempts, record.work) == (JobState.QUEUED, 0, fetched)
    held_1 = await claim(s)
    assert (held_1.job_id, held_1.attempt, held_1.work) == ("j1", 1, fetched)
    assert await s.jobs.finish(held_1, b"found")


async def a_fetch_whose_worker_died_is_made_again(s: Setting) -> None:
    work = replace(some_work(), source=UrlSource("http://a.example/x"))
    await s.jobs.submit(replace(new_job("j1"), work=work))
    assert await s.jobs.claim("f1", stage="fetch") is not None
    await s.after(31_000)
    assert (await s.jobs.recover()).requeued == 1
    assert await s.jobs.claim("w1") is None
    again = await s.jobs.claim("f2", stage="fetch")
    assert again is not None
    assert again.attempt == 2


async def a_place_that_a_passed_job_left_behind_goes(s: Setting) -> None:
    work = replace(some_work(), source=UrlSource("http://a.example/x"))
    await s.jobs.submit(replace(new_job("j1"), work=work))
    held = await s.jobs.claim("f1", stage="fetch")
    assert held is not None
    leave = s.jobs._leave

    async def die(claim: Claim) -> None: ...

    s.jobs._leave = die  # type: ignore[method-assign]
    await s.jobs.pass_on(held, replace(work, source=ObjectSource("uploads/j1")))
    s.jobs._leave = leave  # type: ignore[method-assign]
    running = await claim(s)
    await s.after(20_000)
    assert await s.jobs.heartbeat(running, 0.5, "analyse")
    await s.after(11_000)
    await s.jobs.recover()
    assert await s.store.command("EXISTS", "{fetches}:leases", "{fetches}:where") == 0
    assert await s.jobs.finish(running, b"")


async def failed_jobs_tell_what_they_leave_behind(s: Setting) -> None:
    work = replace(some_work(), source=ObjectSource("uploads/j1"))
    await s.jobs.submit(replace(new_job("j1"), work=work))
    for _ in range(3):
        await claim(s)
        await s.after(31_000)
        found = await s.jobs.recover()
    assert (found.failed, found.left_behind) == (1, ("uploads/j1",))


async def vanished_record_leaves_the_index(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.store.command("DEL", s.store.keys.job(ACCOUNT, "j1"))
    await s.after(2_000)
    await s.jobs.recover()
    assert await index(s, "open") == {}
    assert await n_waiting(s) == 0


async def final_cost_is_at_most_the_hold(s: Setting) -> None:
    for number, (final, used) in enumerate(((None, 10), (0, 0), (10, 10), (11, 10))):
        await s.jobs.submit(new_job(f"j{number}"))
        await s.jobs.finish(await claim(s), b"", final)
        assert (await read(s, f"j{number}")).credits_used == used
    assert (await s.ledger.balance(ACCOUNT)).remaining == 30
    await s.audit()


async def three_crashes_end_a_job(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    for attempt in (1, 2, 3):
        assert (await claim(s)).attempt == attempt
        await s.after(LEASE_MS)
        found = await s.jobs.recover()
        assert (found.requeued, found.failed) == ((1, 0) if attempt < 3 else (0, 1))
    record = await read(s, "j1")
    assert (record.state, record.credits_used, record.attempts) == (JobState.FAILED, 0, 3)
    assert record.error is not None
    assert (record.error.code, record.error.message) == ("internal_error", CRASH_MESSAGE)
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.held, balance.open_jobs) == (60, 0, 0)
    assert await dead_letters(s) == ["j1"]
    assert await s.jobs.claim("w1") is None
    await s.audit()


async def bad_input_fails_at_once(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    held = await claim(s)
    await s.jobs.fail(held, "unprocessable_audio", "not audio")
    record = await read(s, "j1")
    assert (record.state, record.credits_used) == (JobState.FAILED, 0)
    assert record.error is not None
    assert (record.error.code, record.error.message) == ("unprocessable_audio", "not audio")
    assert not await s.jobs.finish(held, b"")
    await s.jobs.fail(held, "internal_error", "again")
    assert (await s.ledger.balance(ACCOUNT)).remaining == 60
    assert await dead_letters(s) == []
    assert (await s.lines())[-1] == ("void", "job:j1", 10, 0, 0)
    await s.audit()


async def retryable_errors_back_off(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    for attempt in (1, 2):
        held = await claim(s)
        await s.jobs.fail(held, "url_fetch_failed", "no answer", retryable=True)
        record = await read(s, "j1")
        assert (record.state, record.attempts, record.credits_used) == (
            JobState.QUEUED,
            attempt,
            10,
        )
        ready = int(await s.store.redis.hget(s.store.keys.job(ACCOUNT, "j1"), "ready"))
        assert s.now_ms <= ready <= s.now_ms + 1_000 * 2 ** (attempt - 1)
        if ready > s.now_ms:
            await s.at(ready - 1)
            assert await s.jobs.claim("w1") is None
        await s.at(ready)
    await s.jobs.fail(await claim(s), "url_fetch_failed", "no answer", retryable=True)
    record = await read(s, "j1")
    assert record.error is not None
    assert (record.state, record.error.code) == (JobState.FAILED, "url_fetch_failed")
    assert await dead_letters(s) == ["j1"]
    assert (await s.ledger.balance(ACCOUNT)).remaining == 60
    await s.audit()


async def pause_half_a_second(s: Setting, lane_delay_ms: int) -> None:
    """Fail a job, which then waits .5 s by its record and ``lane_delay_ms`` in its lane."""
    await s.jobs.submit(new_job("j1"))
    await s.jobs.fail(await claim(s), "internal_error", "again", retryable=True)
    key = s.store.keys.job(ACCOUNT, "j1")
    await s.store.command("HSET", key, "ready", s.now_ms + 500)
    lanes = Lanes(s.store, s.tiers)
    await lanes.drop("j1")
    await lanes.put("basic", ACCOUNT, "j1", lane_delay_ms)


async def early_lane_place_is_refused_by_the_record(s: Setting) -> None:
    await pause_half_a_second(s, lane_delay_ms=0)
    assert await s.jobs.claim("w1") is None
    await s.after(2_000)
    await s.jobs.recover()
    assert (await claim(s)).attempt == 2


async def a_clock_that_is_set_back_holds_up_no_job_that_waits(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.after(-3_600_000)
    held = await claim(s)
    assert await s.jobs.finish(held, b"{}")
    assert (await read(s, "j1")).state is JobState.COMPLETE
    await s.audit()


async def a_clock_that_is_set_back_holds_up_no_job_whose_worker_died(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.jobs.submit(new_job("j2"))
    lost, alive = await claim(s), await claim(s)
    await s.after(-3_600_000)
    await s.jobs.recover()
    lease = await s.store.command("HGET", s.store.keys.job(ACCOUNT, lost.job_id), "lease")
    assert int(lease) == s.now_ms + 30_000
    await s.after(29_999)
    assert await s.jobs.heartbeat(alive, 0.5, "mood")
    await s.jobs.recover()
    assert (await read(s, lost.job_id)).state is JobState.RUNNING
    await s.after(1)
    assert (await s.jobs.recover()).requeued == 1
    again = await claim(s)
    assert (again.job_id, again.attempt) == (lost.job_id, 2)
    assert await s.jobs.finish(again, b"{}")
    assert await s.jobs.finish(alive, b"{}")
    await s.audit()


async def a_clock_that_is_set_back_lengthens_no_pause(s: Setting) -> None:
    await pause_half_a_second(s, lane_delay_ms=500)
    await s.after(-3_600_000)
    await s.jobs.recover()
    assert (await claim(s)).attempt == 2


async def queue_limit_is_exact(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.after(2_000)
    await s.jobs.recover()
    await s.after(900_000 - 2_001)
    await s.jobs.recover()
    assert (await read(s, "j1")).state is JobState.QUEUED
    await s.after(1)
    assert (await s.jobs.recover()).failed == 1
    record = await read(s, "j1")
    assert record.error is not None
    assert (record.state, record.error.code) == (JobState.FAILED, "service_unavailable")
    assert (await s.ledger.balance(ACCOUNT)).remaining == 60
    assert await s.jobs.claim("w1") is None
    assert await n_waiting(s) == 0
    assert await s.store.command("HLEN", "{lanes}:where") == 0
    assert await dead_letters(s) == []
    await s.audit()


async def run_limit_is_exact(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    held = await claim(s)
    for _ in range(14):
        await s.after(20_000)
        assert await s.jobs.heartbeat(held, 0.5, "mood")
    await s.after(19_999)
    assert await s.jobs.heartbeat(held, 0.5, "mood")
    await s.after(1)
    assert not await s.jobs.heartbeat(held, 0.5, "mood")
    assert await index(s, "open") == {"j1": s.now_ms}
    assert (await s.jobs.recover()).failed == 1
    record = await read(s, "j1")
    assert record.error is not None
    assert (record.error.code, record.attempts) == ("internal_error", 1)
    assert "longer than allowed" in record.error.message
    assert await dead_letters(s) == []
    assert not await s.jobs.finish(held, b"late")
    await s.audit()


async def records_live_as_long_as_assets(s: Setting) -> None:
    for tier, days in (("basic", 1), ("pro", 7)):
        for ending in ("finish", "fail"):
            job_id = f"{tier}-{ending}"
            await s.jobs.submit(new_job(job_id, tier, tier))
            key = s.store.keys.job(tier, job_id)
            assert await s.store.command("PTTL", key) == -1
            held = await claim(s)
            assert await s.store.command("PTTL", key) == -1
            if ending == "finish":
                await s.jobs.finish(held, b"")
            else:
                await s.jobs.fail(held, "internal_error", "")
            ttl_ms = await s.store.command("PTTL", key)
            assert days * DAY_S * 1000 - 60_000 < ttl_ms <= days * DAY_S * 1000


async def foreign_jobs_are_absent(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    for other in ("other", "acme2", f"test~{ACCOUNT}"):
        assert await s.jobs.get(other, "j1") is None
        assert await s.jobs.wait(other, "j1", 0) is None


async def jobs_that_are_given_back_can_be_claimed_at_once(s: Setting) -> None:
    for number in range(3):
        await s.jobs.submit(new_job(f"j{number}"))
    first, second = await claim(s, "w1"), await claim(s, "w1")
    third = await claim(s, "w10")
    for held in (first, second):
        await s.jobs.give_back(held)
    assert await s.jobs.heartbeat(third, 0.1, "decode")
    assert not await s.jobs.heartbeat(first, 0.1, "decode")
    await s.jobs.give_back(first)
    again = [await claim(s, "w2"), await claim(s, "w2")]
    assert {(c.job_id, c.attempt) for c in again} == {(first.job_id, 1), (second.job_id, 1)}
    assert await s.jobs.claim("w2") is None
    for held in (*again, third):
        assert await s.jobs.finish(held, b"")
    await s.audit()


async def claim_without_start_is_found(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    lanes = Lanes(s.store, s.tiers)
    assert await lanes.claim("w1") is not None
    await s.after(LEASE_MS - 1)
    await s.jobs.recover()
    assert await s.jobs.claim("w2") is None
    await s.after(1)
    await s.jobs.recover()
    assert (await claim(s, "w2")).attempt == 1


async def submit_without_enqueue_is_found(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.store.command(
        "DEL", *[f"{{lanes}}:{n}" for n in ("jobs", "where", "ring:basic", "depth")]
    )
    await s.after(1_999)
    await s.jobs.recover()
    assert await s.jobs.claim("w1") is None
    await s.after(1)
    assert (await s.jobs.recover()).enqueued == 1
    assert (await claim(s)).job_id == "j1"


async def a_waiting_job_is_looked_at_ever_more_rarely(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    queued_ms, looks = s.now_ms, list[int]()
    while len(looks) < 20 and (await read(s, "j1")).state is JobState.QUEUED:
        (look_ms,) = (await index(s, "open")).values()
        looks.append(look_ms - queued_ms)
        await s.at(look_ms)
        await s.jobs.recover()
    assert looks == [*(2_000 * 2**n for n in range(8)), 512_000, 812_000, 900_000]


async def a_retry_that_lost_its_place_is_found_soon(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    held, leave = await claim(s), s.jobs._leave

    async def die(claim: Claim) -> None:
        await s.jobs.recover()  # which finds it claimed, so does not queue it
        await leave(claim)
        raise ConnectionError

    s.jobs._leave = die  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await s.jobs.fail(held, "internal_error", "again", retryable=True)
    s.jobs._leave = leave  # type: ignore[method-assign]
    assert await s.jobs.claim("w2") is None
    await s.after(FIRST_LOOK_MS)
    assert (await s.jobs.recover()).enqueued == 1
    assert (await claim(s)).attempt == 2


async def lost_lanes_are_refilled(s: Setting) -> None:
    for number in range(3):
        await s.jobs.submit(new_job(f"j{number}"))
    await s.after(2_000)
    assert (await s.jobs.recover()).enqueued == 3
    names = await s.store.command("KEYS", "{lanes}:*")
    await s.store.command("DEL", *names)
    await s.after(FIRST_LOOK_MS)
    assert (await s.jobs.recover()).enqueued == 3
    assert [(await claim(s)).job_id for _ in range(3)] == ["j0", "j1", "j2"]


async def waiting_job_is_not_put_twice(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.after(2_000)
    await s.jobs.recover()
    assert await n_waiting(s) == 1
    held = await claim(s)
    lanes = Lanes(s.store, s.tiers)
    assert not await lanes.put("basic", ACCOUNT, "j1")
    assert await s.jobs.claim("w2") is None
    await s.jobs.finish(held, b"")
    assert await n_waiting(s) == 0


async def lanes_are_served_by_weight(s: Setting) -> None:
    for number in range(40):
        for tier in ("free", "basic", "pro", "scale"):
            account = f"{tier}{number % 10}"
            await s.jobs.submit(new_job(f"{tier}-{number}", account, tier, 1))
    served = [(await claim(s)).tier for _ in range(34)]
    counts = {tier: served.count(tier) for tier in ("free", "basic", "pro", "scale")}
    assert counts == {"free": 2, "basic": 8, "pro": 8, "scale": 16}
    rest = [(await claim(s)).tier for _ in range(160 - 34)]
    assert rest.count("free") == 38
    assert await s.jobs.claim("w1") is None


async def owners_take_turns(s: Setting) -> None:
    for number in range(4):
        await s.jobs.submit(new_job(f"a{number}", "zoe"))
    assert [(await claim(s)).job_id for _ in range(2)] == ["a0", "a1"]
    # A later owner is served next, then both in turn, each in the order of submission.
    for number in range(3):
        await s.jobs.submit(new_job(f"b{number}", "bert"))
    order = [(await claim(s)).job_id for _ in range(5)]
    assert order == ["b0", "a2", "b1", "a3", "b2"]
    # Having just been served, bert does not get ahead of zoe by coming back.
    await s.jobs.submit(new_job("b3", "bert"))
    await s.jobs.submit(new_job("a4", "zoe"))
    assert [(await claim(s)).job_id for _ in range(2)] == ["a4", "b3"]


async def owner_in_flight_is_capped(s: Setting) -> None:
    for number in range(5):
        await s.jobs.submit(new_job(f"a{number}", "anna", "pro", 1))
    await s.jobs.submit(new_job("b0", "bert", "pro", 1))
    first = [await claim(s) for _ in range(3)]
    assert [held.job_id for held in first] == ["a0", "b0", "a1"]
    assert await s.jobs.claim("w1") is None
    await s.jobs.submit(new_job("a5", "anna", "pro", 1))
    assert await s.jobs.claim("w1") is None
    await s.jobs.finish(first[0], b"")
    assert (await claim(s)).job_id == "a2"
    assert await s.jobs.claim("w1") is None
    await s.jobs.fail(first[2], "internal_error", "x")
    assert (await claim(s)).job_id == "a3"


async def load_tells_depth_and_rate(s: Setting) -> None:
    for number in range(3):
        await s.jobs.submit(new_job(f"j{number}"))
    await s.after(4_000)
    held = await claim(s)
    await s.after(2_000)
    await s.jobs.finish(held, b"")
    load = await Lanes(s.store, s.tiers).load("basic", ACCOUNT)
    assert (load.depth, load.owners, await n_claimed(s, "basic")) == (2, 1, 0)
    assert (await n_waiting(s), load.mean_service_s, await jobs_per_s(s)) == (2, 2.0, 0.5)


async def rate_counts_all_that_run(s: Setting) -> None:
    for number in range(3):
        await s.jobs.submit(new_job(f"j{number}"))
        await s.jobs.submit(new_job(f"k{number}", "bert", "pro"))
    first = [await claim(s) for _ in range(4)]
    await s.after(2_000)
    await s.jobs.finish(first[0], b"")
    assert await jobs_per_s(s) == 2.0
    await s.after(2_000)
    await s.jobs.finish(first[1], b"")
    # Moving averages with a weight of a tenth: 2.2 s of service, 3.9 at once.
    assert (await Lanes(s.store, s.tiers).load("basic", ACCOUNT)).mean_service_s == 2.2
    assert round(await jobs_per_s(s) * 2.2, 3) == 3.9


async def expired_claims_are_told_once_a_lease(s: Setting) -> None:
    lanes = Lanes(s.store, s.tiers)
    await lanes.put("basic", ACCOUNT, "j1")
    assert await lanes.claim("w1") is not None
    assert await lanes.expired() == []
    await s.after(LEASE_MS)
    assert await lanes.expired() == [(ACCOUNT, "j1")]
    assert await lanes.expired() == []
    await s.after(LEASE_MS)
    assert await lanes.expired() == [(ACCOUNT, "j1")]


async def late_worker_does_not_give_anothers_place_back(s: Setting) -> None:
    lanes = Lanes(s.store, s.tiers)
    await lanes.put("basic", ACCOUNT, "j1")
    old = await lanes.claim("w1")
    assert old is not None
    await lanes.put("basic", ACCOUNT, "j1", take=True)
    await lanes.done("j1", old.token, was_served=True)
    assert await n_waiting(s) == 1
    new = await lanes.claim("w2")
    assert new is not None
    await lanes.done("j1", old.token, was_served=True)
    assert await claimant(s, "j1") == "w2"
    await lanes.done("j1", new.token, was_served=True)
    assert await claimant(s, "j1") is None
    assert await s.store.command("HEXISTS", "{lanes}:busy", f"basic\x1f{ACCOUNT}") == 0


async def dropped_jobs_leave_no_trace(s: Setting) -> None:
    lanes = Lanes(s.store, s.tiers)
    assert await lanes.put("basic", ACCOUNT, "later", 5_000)
    assert not await lanes.put("basic", ACCOUNT, "later")
    assert await lanes.put("basic", ACCOUNT, "first")
    assert await lanes.put("basic", ACCOUNT, "second")
    ticket = await lanes.claim("w1")
    assert ticket is not None
    for job_id in ("later", "first", "second", "never"):
        await lanes.drop(job_id)
    await lanes.done(ticket.job_id, ticket.token, was_served=True)
    for name in ("jobs", "where", "delayed", "leases", "ring:basic"):
        assert not await s.store.command("EXISTS", f"{{lanes}}:{name}"), name
    for lane in ("free", "basic", "pro", "scale"):
        load = await lanes.load(lane, ACCOUNT)
        assert (load.depth, load.owners, await n_claimed(s, lane)) == (0, 0, 0)
        assert load.mean_service_s == 0


async def lists_keep_their_length(s: Setting) -> None:
    wake, served = "{lanes}:wake", "{lanes}:served"
    keys = s.store.keys
    dead = keys.job_index(keys.tag(ACCOUNT), "dead")
    await s.jobs.submit(new_job("j0"))
    assert await s.store.command("LLEN", wake) == 1
    await s.jobs.finish(await claim(s), b"")
    await s.store.command("RPUSH", wake, *["1"] * 300)
    await s.store.command("RPUSH", dead, *["x"] * 1_000)
    pairs = (part for number in range(20_000) for part in (-number, f"pro\x1f{number}"))
    await s.store.command("ZADD", served, *pairs)
    await s.jobs.submit(new_job("j1"))
    assert await s.store.command("LLEN", wake) == 256
    held = await claim(s)
    assert await s.store.command("ZCARD", served) == 20_000
    await s.store.command("DEL", wake)
    for _ in range(2):
        await s.jobs.fail(held, "internal_error", "x", retryable=True)
        await s.after(2_000)
        held = await claim(s)
    await s.store.command("DEL", wake)
    await s.jobs.fail(held, "internal_error", "x", retryable=True)
    assert await s.store.command("LLEN", wake) == 1
    assert await s.store.command("LLEN", dead) == 1_000
    await s.jobs.submit(new_job("j2"))
    held = await claim(s)
    await s.store.command("RPUSH", wake, *["1"] * 300)
    await s.jobs.finish(held, b"")
    assert await s.store.command("LLEN", wake) == 256


async def jobs_that_ran_too_long_make_room(s: Setting) -> None:
    for number in range(4):
        await s.jobs.submit(new_job(f"a{number}"))
    for _ in range(2):
        await claim(s)
    await s.after(300_000)
    assert (await s.jobs.recover()).failed == 2
    assert [(await claim(s)).job_id for _ in range(2)] == ["a2", "a3"]


async def full_lanes_refuse_before_any_hold(s: Setting) -> None:
    for number in range(3):
        await s.jobs.submit(new_job(f"j{number}"))
    held = await claim(s)
    await s.after(61_000)
    await s.jobs.finish(held, b"")
    before = await s.ledger.balance(ACCOUNT)
    with pytest.raises(ServiceUnavailableError, match="too much work") as caught:
        await s.jobs.submit(new_job("j9"))
    assert caught.value.retry_after_s == 2
    assert await s.ledger.balance(ACCOUNT) == before
    assert await s.jobs.get(ACCOUNT, "j9") is None
    # Another owner would be served after at most one of ours.
    await s.jobs.submit(new_job("b1", "bert"))


async def expected_wait_counts_turns(s: Setting) -> None:
    assert Load(1000, 2, 0, 3.0, 2.0).expected_wait_s() == 3.0
    assert Load(1000, 2, 998, 3.0, 2.0).expected_wait_s() == 1500.0
    assert Load(0, 0, 0, 3.0, 0.0).expected_wait_s() == 0.0


async def ends_are_announced_to_webhooks(s: Setting) -> None:
    sent: list[tuple[str, dict[str, str], bytes]] = []

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        sent.append((url, headers, body))
        return 204

    hooks = Webhooks(s.store, s.jobs, send, pepper="p")  # type: ignore[arg-type]
    await s.jobs.submit(new_job("j0"))
    await s.jobs.finish(await claim(s), b"")
    assert await hooks.deliver_due() == 0
    await hooks.register(ACCOUNT, "https://example.org/hook")
    await s.jobs.submit(new_job("j1"))
    await s.jobs.submit(new_job("j2"))
    await s.jobs.finish(await claim(s), b"")
    await s.jobs.fail(await claim(s), "unprocessable_audio", "x")
    await s.after(-3_600_000)  # no message waits for a clock that was set back
    assert await hooks.deliver_due() == 2
    assert await hooks.deliver_due() == 0
    bodies = [json.loads(body) for _, _, body in sent]  # sent concurrently, in any order
    assert {(b["type"], b["data"]["job_id"]) for b in bodies} == {
        ("job.complete", "j1"),
        ("job.failed", "j2"),
    }


async def long_poll_wakes_at_the_end(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    held = await claim(s)
    loop = asyncio.get_running_loop()
    recheck_s, queue.WAIT_RECHECK_S = queue.WAIT_RECHECK_S, 60.0
    try:
        waiting = asyncio.create_task(s.jobs.wait(ACCOUNT, "j1", 60))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        began = loop.time()
        await s.jobs.finish(held, b"")
        record = await waiting
    finally:
        queue.WAIT_RECHECK_S = recheck_s
    assert record is not None
    assert record.state is JobState.COMPLETE
    assert loop.time() - began < 30
    began = loop.time()
    await s.jobs.submit(new_job("j2"))
    record = await s.jobs.wait(ACCOUNT, "j2", 0.2)
    assert record is not None
    assert record.state is JobState.QUEUED
    assert 0.15 < loop.time() - began < 15


async def job_holds_are_never_reaped(s: Setting) -> None:
    await s.jobs.submit(new_job("j1"))
    await s.after(40 * DAY_S * 1000)
    assert await s.ledger.reap_due() == 0
    assert (await s.ledger.balance(ACCOUNT)).held == 10
    await s.jobs.recover()
    assert (await read(s, "j1")).state is JobState.FAILED
    await s.audit()


async def debt_and_month_follow_a_job(s: Setting) -> None:
    for number in range(9):
        await s.jobs.submit(new_job(f"j{number}"))
    balance = await s.ledger.balance(ACCOUNT)
    assert (buckets(balance), balance.held) == ((0, 0, 30), 90)
    with pytest.raises(InsufficientCreditsError):
        await s.jobs.submit(new_job("j9", cost=1))
    for number in range(9):
        held = await claim(s)
        if number % 2:
            await s.jobs.finish(held, b"", 7)
        else:
            await s.jobs.fail(held, "internal_error", "x")
    balance = await s.ledger.balance(ACCOUNT)
    # Repaid debt that comes back is kept as packs: what was paid for must never expire.
    assert (buckets(balance), balance.held) == ((9, 23, 0), 0)
    await s.audit()


async def a_job_tells_what_its_hold_says(s: Setting) -> None:
    """A failover may lose the end of a job; reconciling brings back that it was paid."""
    for number, (end, used, left) in enumerate(
        ((10, 10, 50), (4, 4, 46), (None, 0, 46), ("lost", 0, 46))
    ):
        job_id = f"j{number}"
        await s.jobs.submit(NewJob(job_id, ACCOUNT, "basic", some_work(), 10))
        claim = await s.jobs.claim("w1")
        assert claim is not None
        if isinstance(end, int):
            await s.ledger.commit(ACCOUNT, f"job:{job_id}", end)
        elif end is None:
            await s.ledger.void(ACCOUNT, f"job:{job_id}")
        else:
            await s.ledger.void(ACCOUNT, f"job:{job_id}")
            await s.store.command("DEL", s.store.keys.hold(ACCOUNT, f"job:{job_id}"))
        assert await s.jobs.finish(claim, b"{}")
        record = await s.jobs.get(ACCOUNT, job_id)
        assert record is not None
        assert (record.state.value, record.credits_used) == ("complete", used)
        balance = await s.ledger.balance(ACCOUNT)
        assert (balance.remaining, balance.open_jobs) == (left, 0)
        await s.audit()


async def a_failed_job_is_free_also_if_it_was_paid(s: Setting) -> None:
    for number, (paid, split) in enumerate(((10, (10, 0, 0)), (4, (4, 0, 0)), (80, (60, 20, 0)))):
        job_id = f"j{number}"
        await s.jobs.submit(NewJob(job_id, ACCOUNT, "basic", some_work(), max(10, paid)))
        claim = await s.jobs.claim("w1")
        assert claim is not None
        await s.ledger.commit(ACCOUNT, f"job:{job_id}", paid)
        if paid == 80:
            await s.ledger.topup(ACCOUNT, "pay:1", 20)
        assert await s.jobs.fail(claim, "unprocessable_audio", "no audio")
        record = await s.jobs.get(ACCOUNT, job_id)
        assert record is not None
        assert (record.state.value, record.credits_used) == ("failed", 0)
        assert (await s.lines())[-1] == ("refund", f"job:{job_id}", *split)
        balance = await s.ledger.balance(ACCOUNT)
        assert (balance.open_jobs, balance.held) == (0, 0)
        assert balance.remaining == (80 if paid == 80 else 60)
        with pytest.raises(HoldClosedError, match="voided"):
            await s.ledger.commit(ACCOUNT, f"job:{job_id}")
        await s.audit()
    job = NewJob("late", ACCOUNT, "basic", some_work(), 10)
    await s.jobs.submit(job)
    claim = await s.jobs.claim("w1")
    assert claim is not None
    await s.ledger.commit(ACCOUNT, "job:late")
    await s.at(stamp_ms(2026, 12, 1))
    assert await s.jobs.fail(claim, "unprocessable_audio", "no audio")
    assert buckets(await s.ledger.balance(ACCOUNT)) == (70, 20, 0)
    await s.audit()


JOBS_CASES = (
    a_job_tells_what_its_hold_says,
    a_failed_job_is_free_also_if_it_was_paid,
    job_runs_from_submit_to_complete,
    submit_is_idempotent,
    withdrawn_jobs_are_refunded,
    ended_jobs_are_not_withdrawn,
    withdrawn_ids_are_not_taken_later,
    jobs_are_listed_newest_first,
    the_list_forgets_what_is_long_gone,
    a_list_is_read_whole_while_another_call_shortens_it,
    refused_jobs_leave_nothing,
    lease_ends_exactly,
    finish_again_changes_nothing,
    id_of_an_expired_record_is_not_taken_again,
    month_turns_under_a_job,
    lost_place_of_a_pausing_job_keeps_its_pause,
    an_address_is_fetched_before_it_is_analysed,
    a_fetch_whose_worker_died_is_made_again,
    a_place_that_a_passed_job_left_behind_goes,
    failed_jobs_tell_what_they_leave_behind,
    vanished_record_leaves_the_index,
    final_cost_is_at_most_the_hold,
    three_crashes_end_a_job,
    bad_input_fails_at_once,
    retryable_errors_back_off,
    early_lane_place_is_refused_by_the_record,
    a_clock_that_is_set_back_holds_up_no_job_that_waits,
    a_clock_that_is_set_back_holds_up_no_job_whose_worker_died,
    a_clock_that_is_set_back_lengthens_no_pause,
    queue_limit_is_exact,
    run_limit_is_exact,
    records_live_as_long_as_assets,
    foreign_jobs_are_absent,
    jobs_that_are_given_back_can_be_claimed_at_once,
    claim_without_start_is_found,
    submit_without_enqueue_is_found,
    a_waiting_job_is_looked_at_ever_more_rarely,
    a_retry_that_lost_its_place_is_found_soon,
    lost_lanes_are_refilled,
    waiting_job_is_not_put_twice,
    lanes_are_served_by_weight,
    owners_take_turns,
    load_tells_depth_and_rate,
    rate_counts_all_that_run,
    expired_claims_are_told_once_a_lease,
    late_worker_does_not_give_anothers_place_back,
    dropped_jobs_leave_no_trace,
    lists_keep_their_length,
    full_lanes_refuse_before_any_hold,
    expected_wait_counts_turns,
    ends_are_announced_to_webhooks,
    long_poll_wakes_at_the_end,
    job_holds_are_never_reaped,
    debt_and_month_follow_a_job,
)
CAPPED_CASES = (owner_in_flight_is_capped, jobs_that_ran_too_long_make_room)
