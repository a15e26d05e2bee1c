"""What the keeper reports of lanes, holds, jobs and journal, on a real ledger."""

import time

import pytest

from serve_app.ledger.jobs.types import NewJob, UrlSource
from serve_app.services.survey import survey
from tests.recorded import Recorded
from tests.store.setting import PAYER, Setting, some_work

pytestmark = pytest.mark.redis


async def submit(s: Setting, owner: str, job_id: str, tier: str = "basic") -> None:
    await s.jobs.submit(NewJob(job_id, owner, tier, some_work(job_id), 10))


async def test_lanes_tell_who_waits_and_for_how_long(setting: Setting, recorded: Recorded) -> None:
    await submit(setting, "ann", "a-1")
    await setting.after(30_000)
    await submit(setting, "ann", "a-2")
    await submit(setting, "bob", "b-1")
    await submit(setting, "cyd", "c-1", "pro")
    await setting.after(12_000)
    assert (await setting.jobs.claim("w")) is not None
    await survey(setting.store, setting.jobs)
    seen = {
        (labels["stage"], labels["lane"]): tuple(
            recorded.of(f"afa_lane_{what}", **labels)[0]
            for what in ("waiting_jobs", "running_jobs", "oldest_wait_seconds")
        )
        for labels in recorded.labels("afa_lane_waiting_jobs")
    }
    busy = {lane: facts for (stage, lane), facts in seen.items() if stage == "analyse"}
    assert sum(waiting for waiting, _, _ in busy.values()) == 3
    assert sum(running for _, running, _ in busy.values()) == 1
    assert max(wait for _, _, wait in busy.values()) in (12.0, 42.0)
    assert {facts for (stage, _), facts in seen.items() if stage == "fetch"} == {(0, 0, 0.0)}
    assert recorded.of("afa_jobs_unfinished") == [4]


async def test_the_oldest_of_a_lane_is_told_whoever_was_served_last(
    setting: Setting, recorded: Recorded
) -> None:
    await submit(setting, "ann", "a-1")
    await submit(setting, "ann", "a-2")
    await setting.after(60_000)
    await submit(setting, "bob", "b-1")
    assert (await setting.jobs.claim("w")) is not None  # a-1: now it is bob's turn
    await setting.after(5_000)
    await survey(setting.store, setting.jobs)
    assert max(recorded.of("afa_lane_oldest_wait_seconds", stage="analyse")) == 65.0


async def test_holds_tell_when_they_are_overdue(setting: Setting, recorded: Recorded) -> None:
    await setting.ledger.reserve(PAYER, "req:1", 5)
    await survey(setting.store, setting.jobs)
    await setting.after(3_600_000)
    await survey(setting.store, setting.jobs)
    await setting.ledger.reap_due()
    await survey(setting.store, setting.jobs)
    assert recorded.of("afa_holds_open") == [1, 1, 0]
    before, late, after = recorded.of("afa_hold_overdue_seconds")
    assert (before, after) == (0, 0)
    assert 0 < late < 3_600


async def test_the_journal_tells_how_old_it_is_until_it_is_archived(
    setting: Setting, recorded: Recorded
) -> None:
    await survey(setting.store, setting.jobs)
    await setting.ledger.reserve(PAYER, "req:1", 5)
    # The ids of calls follow the server's own clock.
    await setting.at(round(1000 * time.time()) + 24 * 3_600_000)
    await survey(setting.store, setting.jobs)
    empty, old = recorded.of("afa_journal_unexported_seconds")
    assert empty == 0
    assert old > 3_600


async def test_a_job_by_address_waits_in_a_lane_of_its_stage(
    setting: Setting, recorded: Recorded
) -> None:
    work = some_work()
    by_address = type(work)(UrlSource("https://a.example/b.mp3"), max_audio_s=60, max_bytes=1000)
    await setting.jobs.submit(NewJob("u-1", "ann", "free", by_address, 10))
    await survey(setting.store, setting.jobs)
    assert sum(recorded.of("afa_lane_waiting_jobs", stage="fetch")) == 1
    assert sum(recorded.of("afa_lane_waiting_jobs", stage="analyse")) == 0
