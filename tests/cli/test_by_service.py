"""Analysis by the service: free jobs of files, with the real queue and a real worker."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from models.rhythm.tempo import TempoRange
from serve_app.cli.analysis import analyze, by_service
from serve_app.cli.analysis.by_service import ACCOUNT, TIER, ServiceEngine
from serve_app.composition.files import LocalFiles
from serve_app.composition.options import StoreOptions
from serve_app.domain.errors import ServiceUnavailableError, UnprocessableAudioError
from serve_app.ledger.jobs.types import AnalysisJob, FileSource
from tests.api.application import Application, open_application

pytestmark = pytest.mark.redis
DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"


async def test_the_service_analyses_a_file_for_nothing_and_keeps_nothing(api: Application) -> None:
    submitted = []
    submit = api.stores.jobs.submit

    async def watched(job):  # type: ignore[no-untyped-def]
        submitted.append(job)
        return await submit(job)

    api.stores.jobs.submit = watched  # type: ignore[method-assign]
    engine = ServiceEngine(api.stores.jobs, lambda: True, TempoRange(200.0, 210.0))
    hearing = await engine.hear(DEMO)
    (job,) = submitted
    assert isinstance(job.work, AnalysisJob)
    assert (job.work.source, job.cost) == (FileSource(str(DEMO)), 0)
    assert hearing.features.embedding == [1.0] + [0.0] * 767
    assert hearing.features.segments
    assert 200 <= hearing.features.tempo <= 210
    assert hearing.features.duration_s == pytest.approx(31.7, abs=0.5)
    assert await api.stores.jobs.get(ACCOUNT, job.job_id) is None
    balance = await api.stores.ledger.balance(ACCOUNT, TIER)
    assert (balance.held, balance.debt, balance.remaining) == (0, 0, balance.granted)


async def test_a_file_that_is_no_audio_is_told_as_by_own_workers(
    api: Application, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.mp3"
    bad.write_bytes(b"nothing to hear")
    with pytest.raises(UnprocessableAudioError, match="not an audio file") as told:
        await ServiceEngine(api.stores.jobs, lambda: True).analyze(bad)
    assert told.value.code == "unprocessable_audio"


async def test_nobody_waits_for_a_service_that_has_ended(
    api_stores: StoreOptions, demo_catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_service, "LOOK_S", 0.2)
    async with open_application(api_stores, demo_catalog, with_worker=False) as api:
        with pytest.raises(ServiceUnavailableError, match="afa up"):
            await ServiceEngine(api.stores.jobs, lambda: False).analyze(DEMO)


def test_what_cannot_be_shown_is_raised_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`afa analyze` did not recognise it inside an exception group, and ended in a traceback."""

    @asynccontextmanager
    async def no_engine(*_: object) -> AsyncIterator[ServiceEngine]:
        yield ServiceEngine(None, lambda: False)  # type: ignore[arg-type]  # each file fails

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(analyze, "service_engine", no_engine)
    with pytest.raises(OSError, match="No space left"):
        analyze.by_service(LocalFiles(tmp_path))(["a.mp3", "b.mp3"], None, full)
