"""When a replica cannot do the work, another one is asked."""

from collections.abc import Awaitable, Callable

import pytest

from pipelines.batching.batcher import DeviceFaultError, DeviceGoneError, QueueFullError
from serve_app.deployments import backend
from serve_app.deployments.backend import retry_on_another_replica


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "FIRST_PAUSE_S", 0.001)


def script(*outcomes: Exception | str) -> Callable[[], Awaitable[str]]:
    left = list(outcomes)

    async def call() -> str:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


async def test_what_was_not_begun_is_asked_again_until_it_is() -> None:
    gone, full = DeviceGoneError("CUDA error"), QueueFullError("4096 windows are queued")
    assert await retry_on_another_replica(script(gone, full, gone, gone, "done")) == "done"


async def test_a_track_survives_one_broken_device_and_not_two() -> None:
    fault = DeviceFaultError("CUDA error")
    assert (
        await retry_on_another_replica(script(fault, DeviceGoneError("CUDA error"), "done"))
        == "done"
    )
    with pytest.raises(DeviceFaultError):
        await retry_on_another_replica(script(fault, fault, "never"))


async def test_a_deployment_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "REPLACED_LIMIT_S", 0.0)
    with pytest.raises(QueueFullError):
        await retry_on_another_replica(script(*[QueueFullError("full")] * 50))


async def test_other_errors_are_the_callers() -> None:
    with pytest.raises(ValueError, match="unfit"):
        await retry_on_another_replica(script(ValueError("unfit"), "never"))
