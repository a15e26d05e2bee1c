"""A claim ends once, its audio is deleted with the job and not with the claim, and a ledger that is
unavailable for a moment costs no work."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.audio.waveform import UndecodableAudioError, Waveform
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.jobs.types import AnalysisJob, Claim, ObjectSource
from serve_app.services.jobs.run import JobRunner
from tests.api.application import FakeBackend

KEY = "uploads/job_x"
CLAIM = Claim(
    job_id="job_x",
    account="acme",
    tier="pro",
    work=AnalysisJob(ObjectSource(KEY), max_audio_s=60, max_bytes=1000),
    cost=10,
    attempt=1,
    fence=1,
    token="t",  # noqa: S106 - a claim's, not a secret
)


class FakeJobs:
    """Answers `finish`, `fail` and `heartbeat` with what it was given; errors are raised."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[Any] = []

    def _answer(self, name: str, default: Any) -> Any:
        left = self.answers.get(name, [])
        answer = left.pop(0) if left else default
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def heartbeat(self, claim: Claim, progress: float, stage: str) -> bool:
        return bool(self._answer("heartbeat", default=True))

    async def finish(self, claim: Claim, result: bytes, final_cost: int | None = None) -> bool:
        self.calls.append("finish")
        return bool(self._answer("finish", default=True))

    async def fail(self, claim: Claim, code: str, message: str, retryable: bool = False) -> bool:
        self.calls.append((code, retryable))
        return bool(self._answer("fail", default=True))


class Around:
    """Object store, source fetcher, and cache."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.deleted: list[str] = []
        self.fault = fault

    async def delete(self, key: str) -> None:
        self.deleted.append(key)

    async def fetch(self, source: Any, path: Path, max_bytes: int) -> None:
        if self.fault is not None:
            raise self.fault


def away() -> Exception:
    return ServiceUnavailableError("away")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeJobs, Around], Any]:
    monkeypatch.setattr("serve_app.services.jobs.run.FINISH_AGAIN_S", 0.01)
    monkeypatch.setattr("serve_app.services.jobs.run.HEARTBEAT_S", 0.02)

    async def run_once(jobs: FakeJobs, around: Around) -> None:
        silence = Waveform(np.zeros((1, 44_100), np.float32), 44_100)
        backend = FakeBackend(delay_s=0.1)
        runner = JobRunner(
            *(jobs, around, around, backend),  # type: ignore[arg-type]
            lambda path, limits: silence,
            *(around, around),  # type: ignore[arg-type]
        )
        async with asyncio.timeout(30):  # a slot must not stay taken once its job has ended
            await runner.run(CLAIM)

    return run_once


async def test_a_finished_job_needs_its_audio_no_more(run: Any) -> None:
    jobs, around = FakeJobs(), Around()
    await run(jobs, around)
    assert (jobs.calls, around.deleted) == (["finish"], [KEY])


async def test_a_lost_claim_leaves_the_audio_to_whoever_has_the_job(run: Any) -> None:
    around = Around()
    await run(FakeJobs(finish=[False]), around)
    await run(FakeJobs(heartbeat=[True, False]), around)
    unfit = Around(UndecodableAudioError("no audio"))
    await run(FakeJobs(fail=[False]), unfit)
    assert around.deleted == unfit.deleted == []


async def test_unfit_audio_fails_for_good(run: Any) -> None:
    jobs, around = FakeJobs(), Around(UndecodableAudioError("no audio"))
    await run(jobs, around)
    assert (jobs.calls, around.deleted) == ([("unprocessable_audio", False)], [KEY])


async def test_work_outlasts_a_ledger_that_is_away_for_a_moment(run: Any) -> None:
    jobs, around = FakeJobs(heartbeat=[True, away(), away()], finish=[away(), away()]), Around()
    await run(jobs, around)
    assert (jobs.calls, around.deleted) == (["finish"] * 3, [KEY])


async def test_what_was_away_is_tried_again(run: Any) -> None:
    jobs, around = FakeJobs(fail=[False]), Around(away())
    await run(jobs, around)
    assert (jobs.calls, around.deleted) == ([("service_unavailable", True)], [])
