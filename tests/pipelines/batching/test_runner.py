"""A batched step compared with the same step run alone."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.audio.track import Track
from pipelines.audio.waveform import AudioTooShortError, Waveform
from pipelines.batching.batcher import (
    DeviceFaultError,
    DeviceGoneError,
    Observation,
    QueueFullError,
)
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import CPU, Outputs, Prepared, WindowsOnDemand, run_local
from pipelines.batching.upload import bring
from pipelines.batching.windows import Windows, WindowSpec, cut, window_starts

RATE = 1_000


class SpectrumModel:
    def __init__(self, model_id: str, length: int, fails_on: float | None = None) -> None:
        self.model_id = model_id
        self.spec = WindowSpec(sample_rate=RATE, length=length, hop=length // 2)
        self.batches: list[int] = []
        self._fails_on = fails_on

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        self.batches.append(len(windows))
        if self._fails_on is not None and (windows == self._fails_on).any():
            raise RuntimeError("CUDA error: device-side assert triggered")
        return {"magnitude": torch.fft.rfft(windows).abs(), "peak": windows.amax(-1)}


class CompiledModel(SpectrumModel):
    batch_sizes = (2, 4)

    def __init__(self) -> None:
        super().__init__("compiled", 100)
        self.threads: set[str] = set()

    def warm_up(self) -> None:
        for size in self.batch_sizes:
            self.forward(torch.zeros(size, 100))

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        self.threads.add(threading.current_thread().name)
        assert torch.is_inference_mode_enabled()
        return super().forward(windows)


class SpectrumStep:
    is_mono = True

    def __init__(self, *models: SpectrumModel) -> None:
        self.models: Sequence[SpectrumModel] = models

    def prepare(self, track: Track) -> Prepared:
        samples = track.mono_at(track.sample_rate)
        if len(samples) < 10:
            raise AudioTooShortError("too short")
        windows = {
            model.model_id: cut(samples, window_starts(len(samples), model.spec), model.spec.length)
            for model in self.models
        }
        return Prepared(windows, context=len(samples))

    def finish(self, prepared: Prepared, outputs: Outputs) -> dict[str, list[float]]:
        return {
            model_id: [*rows["magnitude"].mean(0).tolist(), *rows["peak"].tolist()]
            for model_id, rows in outputs.items()
        }


def track(duration_s: float, seed: int) -> Waveform:
    rng = np.random.default_rng(seed)
    return Waveform(rng.standard_normal((1, int(duration_s * RATE))).astype(np.float32), RATE)


@pytest.fixture
async def models() -> tuple[SpectrumModel, SpectrumModel]:
    return SpectrumModel("coarse", 400), SpectrumModel("fine", 100)


@pytest.fixture
async def batched(
    models: tuple[SpectrumModel, SpectrumModel],
) -> AsyncIterator[BatchedStep[dict[str, list[float]]]]:
    step = BatchedStep(SpectrumStep(*models), torch.device("cpu"), max_windows=8)
    yield step
    step.close()


async def test_many_tracks_at_once_give_what_each_gives_alone(
    batched: BatchedStep[dict[str, list[float]]], models: tuple[SpectrumModel, SpectrumModel]
) -> None:
    tracks = [track(duration_s, i) for i, duration_s in enumerate((0.05, 3.0, 0.4, 1.33, 7.9))]
    results = await asyncio.gather(*(batched.run(waveform) for waveform in tracks))
    batches = list(models[1].batches)
    for waveform, result in zip(tracks, results, strict=True):
        alone = run_local(SpectrumStep(*models), waveform)
        assert result.keys() == alone.keys()
        for model_id in alone:
            assert result[model_id] == pytest.approx(alone[model_id], rel=1e-5)
    assert max(batches) == 8
    assert batched.metrics()["fine"].windows == sum(batches)
    batched.check_health()


async def test_a_forward_on_the_cpu_takes_two_windows_where_nothing_is_said() -> None:
    model = SpectrumModel("fine", 100)
    step = BatchedStep(SpectrumStep(model), torch.device("cpu"), max_windows=0)
    await asyncio.gather(*(step.run(track(1.0, seed)) for seed in range(3)))
    assert max(model.batches) == 2
    step.close()


async def test_a_batch_on_the_cpu_may_be_several_forwards(
    models: tuple[SpectrumModel, ...],
) -> None:
    step = BatchedStep(SpectrumStep(*models), torch.device("cpu"), max_windows=2, passes=8)
    seen: list[tuple[str, Observation]] = []
    step.watch(lambda model_id, one: seen.append((model_id, one)))
    waveform = track(7.9, 0)
    result = await step.run(waveform)
    coarse, fine = models
    assert max(coarse.batches) == max(fine.batches) == 2
    n_windows = step.metrics()["fine"].windows
    assert n_windows == sum(fine.batches)
    batches = [one for model_id, one in seen if model_id == "fine" and one.windows]
    assert len(batches) == -(-n_windows // 16)
    for model_id, values in run_local(SpectrumStep(*models), waveform).items():
        assert result[model_id] == pytest.approx(values, rel=1e-5)
    step.close()


async def test_passes_leave_the_sizes_of_a_compiled_model() -> None:
    model = CompiledModel()
    step = BatchedStep(SpectrumStep(model), torch.device("cpu"), 1, passes=8)
    await step.run(track(1.0, 0))
    assert set(model.batches) <= {2, 4}
    step.close()


class Watched(SpectrumStep):
    """Records what is computed at the same time, in which threads, and whether with gradients."""

    def __init__(self, model_id: str, computing: list[str], most: list[int]) -> None:
        super().__init__(SpectrumModel(model_id, 100))
        self._computing, self._most = computing, most
        self.threads: set[threading.Thread] = set()
        (model,) = self.models
        self._forward = model.forward
        model.forward = self._noted_forward  # type: ignore[method-assign]

    def _busy(self, what: str) -> None:
        self.threads.add(threading.current_thread())
        self._computing.append(what)
        self._most.append(len(self._computing))
        time.sleep(0.003)
        self._computing.remove(what)

    def _noted_forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        self._busy("forward")
        return self._forward(windows)

    def prepare(self, track: Track) -> Prepared:
        prepared = super().prepare(track)

        def windows(model_id: str) -> Windows:
            self._busy("windows")
            assert torch.is_inference_mode_enabled()
            return prepared.windows[model_id]

        cutters = {model_id: partial(windows, model_id) for model_id in prepared.windows}
        return Prepared(WindowsOnDemand(cutters), prepared.context)

    def finish(self, prepared: Prepared, outputs: Outputs) -> dict[str, list[float]]:
        self._busy("finish")
        return super().finish(prepared, outputs)


async def complete_many(processor: AbstractContextManager[object]) -> tuple[int, list[Watched]]:
    """Complete tracks with two steps; return the most that was computed at once, and the steps."""
    computing: list[str] = []
    most: list[int] = []
    watched = [Watched(model_id, computing, most) for model_id in ("first", "second")]
    steps = [BatchedStep(one, torch.device("cpu"), 4, processor=processor) for one in watched]
    waveforms = [track(1.0, seed) for seed in range(6)]
    prepared = [[(step, step.step.prepare(bring(one, CPU))) for step in steps] for one in waveforms]
    await asyncio.gather(*(step.complete(ready) for of_one in prepared for step, ready in of_one))
    for step in steps:
        step.close()
    return max(most), watched


async def test_steps_that_share_a_processor_compute_one_thing_at_a_time() -> None:
    assert (await complete_many(Lock()))[0] == 1
    assert (await complete_many(nullcontext()))[0] > 1


async def test_windows_of_a_prepared_track_are_cut_in_no_event_loop() -> None:
    _, watched = await complete_many(nullcontext())
    for step in watched:
        assert threading.current_thread() not in step.threads


async def test_a_track_whose_windows_are_being_cut_counts_as_queued() -> None:
    processor = Lock()
    step = BatchedStep(
        SpectrumStep(SpectrumModel("fine", 100)), torch.device("cpu"), 1, processor=processor
    )
    prepared = step.prepare(track(1.0, 0))
    with processor:
        completing = asyncio.create_task(step.complete(prepared))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(step.wants_more())
        await asyncio.sleep(0.05)
        assert not waiting.done()
    await asyncio.gather(completing, waiting)
    step.close()


async def test_unfit_audio_fails_alone(batched: BatchedStep[dict[str, list[float]]]) -> None:
    results = await asyncio.gather(
        batched.run(track(0.001, 0)), batched.run(track(1.0, 1)), return_exceptions=True
    )
    assert isinstance(results[0], AudioTooShortError)
    assert isinstance(results[1], dict)


async def test_full_queue_is_refused() -> None:
    model = SpectrumModel("fine", 100)
    step = BatchedStep(SpectrumStep(model), torch.device("cpu"), 2, max_queued_bytes=4_000)
    results = await asyncio.gather(
        *(step.run(track(1.0, i)) for i in range(12)), return_exceptions=True
    )
    assert any(isinstance(result, QueueFullError) for result in results)
    assert any(isinstance(result, dict) for result in results)
    step.close()


async def test_a_broken_device_shows_in_the_health() -> None:
    model = SpectrumModel("fine", 100, fails_on=0.0)
    other = SpectrumModel("coarse", 400)
    step = BatchedStep(SpectrumStep(model, other), torch.device("cpu"), 4)
    await step.run(track(1.0, 1))
    step.check_health()
    with pytest.raises(DeviceFaultError, match="device-side assert"):
        await step.run(Waveform(np.zeros((1, RATE), np.float32), RATE))
    with pytest.raises(DeviceFaultError, match="device-side assert"):
        step.check_health()
    step.close()


class CuttingStep(SpectrumStep):
    """Fails while cutting the windows of some tracks, at once or when they are requested."""

    def __init__(self, error: Exception, *, is_late: bool, fails_on: float = 0.0) -> None:
        super().__init__(SpectrumModel("fine", 100))
        self._error, self._is_late, self._fails_on = error, is_late, fails_on

    def prepare(self, track: Track) -> Prepared:
        prepared = super().prepare(track)
        if float(track.samples[0, 0]) != self._fails_on:
            return prepared
        if not self._is_late:
            raise self._error
        return replace(prepared, windows=WindowsOnDemand({"fine": self._fail}))

    def _fail(self) -> Windows:
        raise self._error


LOST = torch.AcceleratorError("CUDA error: GPU is lost")
SILENCE = Waveform(np.zeros((1, RATE), np.float32), RATE)


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_device_that_breaks_before_any_forward_shows_in_the_health(is_late: bool) -> None:
    step = BatchedStep(CuttingStep(LOST, is_late=is_late), torch.device("cpu"), 4)
    await step.run(track(1.0, 1))
    step.check_health()
    with pytest.raises(DeviceFaultError, match="GPU is lost") as told:
        await step.run(SILENCE)
    assert not isinstance(told.value, DeviceGoneError)
    with pytest.raises(DeviceFaultError, match="GPU is lost"):
        step.check_health()
    with pytest.raises(DeviceGoneError):  # the next track is not to blame
        await step.run(track(1.0, 2))
    step.close()


async def test_a_broken_device_shows_when_a_caller_prepares() -> None:
    step = BatchedStep(CuttingStep(LOST, is_late=True), torch.device("cpu"), 4)
    prepared = CuttingStep(LOST, is_late=True).prepare(Track.of(SILENCE))
    with pytest.raises(DeviceFaultError, match="GPU is lost"):
        await step.complete(prepared)
    with pytest.raises(DeviceGoneError):
        step.prepare(track(1.0, 1))
    step.close()


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_track_for_which_the_others_leave_no_memory_comes_back_later(
    is_late: bool,
) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
    step = BatchedStep(CuttingStep(full, is_late=is_late), torch.device("cpu"), 4)
    first, second = await asyncio.gather(
        step.run(track(60.0, 1)), step.run(SILENCE), return_exceptions=True
    )
    assert isinstance(first, dict)
    assert isinstance(second, QueueFullError)
    with pytest.raises(torch.OutOfMemoryError):  # even alone it will never fit
        await step.run(SILENCE)
    step.check_health()
    step.close()


async def test_a_cancelled_track_leaves_nothing_queued() -> None:
    model, may_end = SpectrumModel("fine", 100), threading.Event()
    forward, begun = model.forward, threading.Event()

    def held_up(windows: Tensor) -> Mapping[str, Tensor]:
        begun.set()
        assert may_end.wait(60)
        return forward(windows)

    model.forward = held_up  # type: ignore[method-assign]
    step = BatchedStep(SpectrumStep(model), torch.device("cpu"), 8)
    task = asyncio.create_task(step.run(track(20.0, 3)))
    await asyncio.to_thread(begun.wait)
    assert step.metrics()["fine"].queued_windows > 0
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while step.metrics()["fine"].queued_windows:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert isinstance(await step.run(track(1.0, 4)), dict)
    assert sum(model.batches) < 399 + 19  # not every window of the track that was cancelled
    step.close()


async def test_warming_up_meets_every_batch_size_on_the_thread_that_serves() -> None:
    model = CompiledModel()
    step = BatchedStep(SpectrumStep(model), torch.device("cpu"), 64)
    await step.warm_up()
    assert step.warm_up_s > 0
    assert model.batches[:2] == [2, 4]
    assert len(model.threads) == 1
    model.batches.clear()
    seen: list[Observation] = []
    step.watch(lambda _, one: seen.append(one))
    await asyncio.gather(*(step.run(track(0.3, i)) for i in range(5)))
    assert set(model.batches) <= {2, 4}  # padded, never a size that was not compiled
    assert sum(one.padded_windows for one in seen) > 0
    assert len(model.threads) == 1
    step.close()


async def test_retiring_waits_for_what_is_under_way(
    models: tuple[SpectrumModel, SpectrumModel],
) -> None:
    step = BatchedStep(SpectrumStep(*models), torch.device("cpu"), 8)
    running = asyncio.create_task(step.run(track(20.0, 1)))
    await asyncio.sleep(0)
    retiring = asyncio.create_task(step.retire())
    await asyncio.sleep(0)
    assert not retiring.done()
    await retiring
    assert running.done()
    assert isinstance(running.result(), dict)


async def test_retiring_does_not_hold_up_the_loop_for_an_abandoned_track() -> None:
    begun, may_end = threading.Event(), threading.Event()

    class SlowStep(SpectrumStep):
        def prepare(self, track: Track) -> Prepared:
            begun.set()
            assert may_end.wait(60)
            return super().prepare(track)

    step = BatchedStep(SlowStep(SpectrumModel("fine", 100)), torch.device("cpu"), 8)
    task = asyncio.create_task(step.run(track(1.0, 1)))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.wait([task])
    retiring = asyncio.create_task(step.retire())
    begun_s = time.monotonic()
    await asyncio.sleep(0.05)
    assert time.monotonic() - begun_s < 30
    assert not retiring.done()
    may_end.set()
    await retiring


async def test_the_backlog_is_the_work_that_waits() -> None:
    model = SpectrumModel("fine", 100)
    forward, slow_s, may_go_on = model.forward, 0.02, threading.Event()

    def slow(windows: Tensor) -> Mapping[str, Tensor]:
        time.sleep(slow_s * len(windows))
        assert may_go_on.wait(60)
        return forward(windows)

    model.forward = slow  # type: ignore[method-assign]
    step = BatchedStep(SpectrumStep(model), torch.device("cpu"), 4)
    may_go_on.set()
    await step.run(track(1.0, 0))
    assert step.backlog_s() == 0
    measured = step.metrics()["fine"]
    assert measured.device_s > 19 * slow_s
    may_go_on.clear()
    jobs = [asyncio.create_task(step.run(track(1.0, i))) for i in range(6)]
    # 6 tracks of 19 windows, minus one running forward of 4 and one that is ready to run next.
    least = (6 * 19 - 2 * 4) * measured.device_s / 19
    async with asyncio.timeout(60):
        while step.backlog_s() < least:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    host_s = sum(step.host_s().values())
    assert step.backlog_s() <= 6 * (measured.device_s + host_s)
    may_go_on.set()
    for job in jobs:
        job.cancel()
    await asyncio.wait(jobs)
    assert step.backlog_s() == 0
    step.close()


async def test_a_forward_is_bounded_in_bytes_as_well() -> None:
    coarse, fine = SpectrumModel("coarse", 400), SpectrumModel("fine", 100)
    step = BatchedStep(SpectrumStep(coarse, fine), torch.device("cpu"), 64, max_batch_bytes=4_000)
    await step.run(track(9.0, 0))
    assert max(coarse.batches) == 2  # 1,600 bytes each
    assert max(fine.batches) == 10
    compiled = CompiledModel()  # compiled for two and four windows of 400 bytes
    for max_bytes, largest in ((1_600, 4), (1_599, 2), (100, 2)):
        compiled.batches.clear()
        narrow = BatchedStep(
            SpectrumStep(compiled), torch.device("cpu"), 64, max_batch_bytes=max_bytes
        )
        await narrow.run(track(3.0, 0))
        assert set(compiled.batches) == {largest}
        narrow.close()
    step.close()


async def test_the_backlog_counts_what_is_still_to_be_finished() -> None:
    may_end, begun, finish_s = threading.Event(), threading.Semaphore(0), 0.5

    class SlowEnd(SpectrumStep):
        def finish(self, prepared: Prepared, outputs: Outputs) -> dict[str, list[float]]:
            begun.release()
            time.sleep(finish_s)
            assert may_end.wait(60)
            return super().finish(prepared, outputs)

    may_end.set()
    step = BatchedStep(SlowEnd(SpectrumModel("fine", 100)), torch.device("cpu"), 8, host_threads=2)
    await step.run(track(1.0, 0))
    assert step.host_s()["finish"] >= finish_s > step.host_s()["prepare"]
    may_end.clear()
    finish_s = 0.0
    jobs = [asyncio.create_task(step.run(track(1.0, i))) for i in range(4)]
    for _ in range(3):  # the first track, and one for each thread
        await asyncio.to_thread(begun.acquire)
    assert step.backlog_s() >= 4 * 0.5 / 2
    may_end.set()
    await asyncio.gather(*jobs)
    assert step.backlog_s() == 0
    step.close()


def test_a_process_that_finishes_tracks_ends_with_its_killed_parent() -> None:
    script = """
import os, signal
import torch
from pipelines.batching.runner import BatchedStep

class Heavy:
    models, finisher = (), None

step = BatchedStep(Heavy(), torch.device("cpu"), 1, finishers=1)
print(step._finishers.submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # Its output ends when the last process that holds it does.
    parent = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=280,
    )
    assert parent.returncode == -signal.SIGKILL
    assert int(parent.stdout) > 0
