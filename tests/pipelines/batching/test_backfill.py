"""Many tracks through one batcher per model, compared with each track run alone."""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.audio.decode import DecoderUnavailableError
from pipelines.audio.track import Track
from pipelines.audio.waveform import AudioTooShortError, UndecodableAudioError, Waveform
from pipelines.batching.backfill import READER_NICENESS, backfill
from pipelines.batching.batcher import BATCHES_AHEAD, DeviceFaultError
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import Outputs, Prepared, run_local
from pipelines.batching.windows import WindowSpec, cut, window_starts

RATE, BATCH = 1_000, 8
SECONDS = (0.05, 3.0, 0.4, 1.33, 0.0, 7.9, 0.2, 2.0)
"""The durations of the tracks; the track with 0 s is broken."""


class SpectrumModel:
    model_id = "spectrum"
    spec = WindowSpec(sample_rate=RATE, length=100, hop=100)

    def __init__(self, slow_s: float = 0.0, fails_on: float | None = None) -> None:
        self.batches: list[int] = []
        self._slow_s = slow_s
        self._fails_on = fails_on

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        self.batches.append(len(windows))
        time.sleep(self._slow_s)
        if self._fails_on is not None and (windows == self._fails_on).any():
            raise RuntimeError("CUDA error: device-side assert triggered")
        return {"magnitude": torch.fft.rfft(windows).abs()}


class SpectrumStep:
    is_mono = True

    def __init__(self, model: SpectrumModel) -> None:
        self.models: Sequence[SpectrumModel] = (model,)

    def prepare(self, track: Track) -> Prepared:
        samples = track.mono_at(track.sample_rate)
        if len(samples) < 10:
            raise AudioTooShortError("too short")
        spec = self.models[0].spec
        windows = cut(samples, window_starts(len(samples), spec), spec.length)
        return Prepared({self.models[0].model_id: windows})

    def finish(self, prepared: Prepared, outputs: Outputs) -> list[float]:
        mean: list[float] = outputs["spectrum"]["magnitude"].mean(0).tolist()
        return mean


def decoded(duration_s: float) -> Waveform:
    if not duration_s:
        raise UndecodableAudioError("broken")
    rng = np.random.default_rng(int(1000 * duration_s))
    return Waveform(rng.standard_normal((1, int(duration_s * RATE))).astype(np.float32), RATE)


class Backfill:
    """Runs tracks, identified by their durations, and records what is read and written."""

    def __init__(self, model: SpectrumModel, n_readers: int = 2) -> None:
        self.model = model
        self.step = BatchedStep(SpectrumStep(model), torch.device("cpu"), BATCH)
        self.n_readers = n_readers
        self.read: list[float] = []
        self.written: dict[float, list[float] | Exception] = {}
        self.has_begun = asyncio.Event()

    def prepare(self, duration_s: float) -> Prepared:
        self.read.append(duration_s)
        return self.step.prepare(decoded(duration_s))

    def write(self, duration_s: float, outcome: list[float] | Exception) -> None:
        assert duration_s not in self.written
        self.written[duration_s] = outcome
        self.has_begun.set()

    async def run(self, durations: Sequence[float]) -> None:
        try:
            await backfill(
                durations,
                self.prepare,
                self.step.complete,
                self.write,
                self.step.wants_more,
                self.n_readers,
            )
        finally:
            self.step.close()


async def test_every_track_is_written_once_and_as_it_is_alone() -> None:
    run = Backfill(SpectrumModel())
    await run.run(SECONDS)
    assert run.written.keys() == set(SECONDS)
    assert isinstance(run.written.pop(0.0), UndecodableAudioError)
    for duration_s, found in run.written.items():
        alone = run_local(SpectrumStep(SpectrumModel()), decoded(duration_s))
        assert found == pytest.approx(alone, rel=1e-5)


async def test_what_is_too_short_is_its_own_error() -> None:
    run = Backfill(SpectrumModel())
    await run.run([0.005, 1.0])
    assert isinstance(run.written[0.005], AudioTooShortError)
    assert isinstance(run.written[1.0], list)


async def test_tracks_share_batches() -> None:
    durations = [0.3 + i / 1000 for i in range(40)]  # 4 windows each, but the first has 3

    class Patient(SpectrumModel):
        def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
            """Take at least as long as it takes to read the next batch on this machine."""
            while len(run.read) < len(durations) and queued() < BATCH:
                time.sleep(0.002)
            time.sleep(0.02)
            return super().forward(windows)

    def queued() -> int:
        return run.step.metrics()["spectrum"].queued_windows

    run = Backfill(Patient())
    await run.run(durations)
    assert sum(run.model.batches) == 4 * 40 - 1
    # Alone they would need 40 forwards; the first and the last ones may be partly filled.
    assert len(run.model.batches) <= 160 / BATCH + 5
    assert max(run.model.batches) == BATCH


@pytest.mark.parametrize("n_readers", [1, 2])
async def test_what_is_done_first_is_written_first(n_readers: int) -> None:
    written: list[str] = []
    others_are_written = asyncio.Event()

    async def analyse(track: str) -> str:
        if track == "long":
            await others_are_written.wait()
        return track

    def write(source: str, _: str | Exception) -> None:
        written.append(source)
        if len(written) == 2:
            others_are_written.set()

    async def wants_more() -> None:
        pass

    tracks = ["long", "short", "shorter"]
    async with asyncio.timeout(60):
        await backfill(tracks, str, analyse, write, wants_more, n_readers)
    assert written[-1] == "long"


async def test_reading_stops_while_the_batchers_want_no_more() -> None:
    may_go_on = threading.Event()

    class Blocked(SpectrumModel):
        def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
            assert may_go_on.wait(60)
            return super().forward(windows)

    run = Backfill(Blocked(), n_readers=2)
    durations = [0.4 + i / 10_000 for i in range(100)]  # 4 or 5 windows each
    running = asyncio.create_task(run.run(durations))
    windows_held = 2 * BATCH + BATCHES_AHEAD * BATCH  # on the device, and queued
    at_once = 2 * run.n_readers  # being read, and admitted together
    async with asyncio.timeout(60):
        while len(run.read) < windows_held / 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert len(run.read) <= windows_held / 4 + at_once
    may_go_on.set()
    await running
    assert run.written.keys() == set(durations)


async def test_readers_step_back_behind_the_forwards() -> None:
    """A reader that interrupts a forward costs more than it gains."""
    nicenesses: list[int] = []

    def read(_: int) -> None:
        nicenesses.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    async def done(_: None) -> None: ...

    own = os.getpriority(os.PRIO_PROCESS, 0)
    await backfill([1, 2], read, done, lambda *_: None, lambda: done(None), 1)
    assert nicenesses == [min(19, own + READER_NICENESS)] * 2
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


async def test_a_cancelled_run_writes_nothing_more() -> None:
    run = Backfill(SpectrumModel(slow_s=0.01))
    running = asyncio.create_task(run.run([1.0 + i / 100 for i in range(200)]))
    await run.has_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    n_written = len(run.written)
    assert n_written < 100
    await asyncio.sleep(0.05)
    assert len(run.written) == n_written
    assert not any(isinstance(outcome, Exception) for outcome in run.written.values())
    assert run.step.metrics()["spectrum"].queued_windows == 0


async def test_a_read_that_breaks_because_all_is_cancelled_is_not_written() -> None:
    """Ctrl-C reaches the decoders, too."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    interrupted = threading.Event()
    run = Backfill(SpectrumModel(), n_readers=1)

    def prepare(duration_s: float) -> Prepared:
        loop.call_soon_threadsafe(begun.set)
        assert interrupted.wait(60)
        raise UndecodableAudioError("the decoder ended")

    run.prepare = prepare  # type: ignore[method-assign]
    running = asyncio.create_task(run.run([1.0, 2.0]))
    await begun.wait()
    interrupted.set()
    time.sleep(0.05)  # noqa: ASYNC251 - the error is there before the loop goes on
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert run.written == {}


async def test_a_broken_device_ends_the_run() -> None:
    broken = float(decoded(2.0).samples[0, 150])
    run = Backfill(SpectrumModel(fails_on=broken))
    with pytest.raises(DeviceFaultError, match="device-side assert"):
        await run.run([2.0, *(1.0 + i / 1000 for i in range(900))])
    assert len(run.read) < 600  # those that were read until the device's thread reported it


async def test_without_a_decoder_the_run_ends() -> None:
    run = Backfill(SpectrumModel())

    def prepare(duration_s: float) -> Prepared:
        raise DecoderUnavailableError("PyAV is not installed")

    run.prepare = prepare  # type: ignore[method-assign]
    with pytest.raises(DecoderUnavailableError):
        await run.run(SECONDS)
    assert run.written == {}


async def test_what_writing_raises_ends_the_run() -> None:
    run = Backfill(SpectrumModel())

    def write(duration_s: float, outcome: list[float] | Exception) -> None:
        raise BrokenPipeError("nobody listens")

    run.write = write  # type: ignore[method-assign]
    with pytest.raises(BrokenPipeError):
        await run.run(SECONDS)
