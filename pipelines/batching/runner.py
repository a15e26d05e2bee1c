"""Run a step for many tracks at once, its forwards batched across tracks.

A step gives the same result as with `pipelines.batching.steps.run_local`; only the batches differ.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from pipelines.audio.sandbox import end_with_parent
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.batcher import (
    Batcher,
    BatcherMetrics,
    DeviceFaultError,
    DeviceGoneError,
    Observation,
    QueueFullError,
)
from pipelines.batching.device import (
    ANY_PROCESSOR,
    Forward,
    TorchDevice,
    Turns,
    is_device_fault,
    is_out_of_memory,
)
from pipelines.batching.steps import Finisher, HeavyStep, Prepared, Step, forward_windows
from pipelines.batching.windows import WindowedModel, Windows, most_windows

R = TypeVar("R")
T = TypeVar("T")

BATCH_BYTES = 256 << 20
"""Bytes of windows in one forward."""

WARM_UP_S = 12.0
"""Seconds of noise that a step analyses before the first request."""


@runtime_checkable
class CompiledModel(Protocol):
    """A model that is fastest at certain batch sizes and must run each of them beforehand."""

    @property
    def batch_sizes(self) -> Sequence[int]:
        """Allowed numbers of windows in a forward, ascending; empty: any."""
        ...

    def warm_up(self) -> None:
        """Run each of them once."""
        ...


class BatchedStep(Generic[R]):
    """A step behind one batcher per model; all its models share one device.

    Args:
        step: What to compute.
        device: Where its models live.
        max_windows: Maximum windows in one forward of each model, 0 for `most_windows`; a compiled
            model uses its largest batch size instead.
        max_batch_bytes: Maximum bytes of windows in one forward, which also applies; a compiled
            model's sizes above it are left out. One window is always allowed.
        max_queued_bytes: Maximum bytes of windows waiting for each model (see `Batcher`); None if
            the caller waits until more are wanted.
        passes: Successive forwards per batch, of ``max_windows`` each, in the device's thread. More
            than 1 is for a CPU where nobody waits for a single answer: small forwards are fastest
            there, and waking threads between them costs time.
        host_threads: Tracks whose host work (`prepare`, `finish`) runs at the same time.
        finishers: Processes that finish tracks of a `HeavyStep`, for a device so fast that one
            interpreter would hold it up; 0: the host threads do.
        turns: Shared with other steps on the same device in this process.
        processor: Held during all computation on a CPU, forwards and host work. Other users of a
            single processor hold it too, since interrupted work finds the caches emptied.

    Attributes:
        step: What it computes.
        device: Where, and in which thread, the forwards run.
        warm_up_s: Seconds that `warm_up` took; 0 before it.
    """

    def __init__(
        self,
        step: Step[R],
        device: torch.device,
        max_windows: int,
        *,
        max_batch_bytes: int = BATCH_BYTES,
        max_queued_bytes: int | None = None,
        passes: int = 1,
        host_threads: int = 0,
        finishers: int = 0,
        turns: Turns | None = None,
        processor: AbstractContextManager[object] = ANY_PROCESSOR,
    ) -> None:
        self.step = step
        self.warm_up_s = 0.0
        most = max_windows or most_windows(device)
        self.device = TorchDevice(device, turns, processor)
        self._processor = processor
        self._batchers = {
            model.model_id: self._batcher(model, most, passes, max_batch_bytes, max_queued_bytes)
            for model in step.models
        }
        self._host_threads = host_threads or min(4, os.cpu_count() or 1)
        self._host = ThreadPoolExecutor(self._host_threads, thread_name_prefix="step")
        self._finishers: ProcessPoolExecutor | None = None
        if finishers and isinstance(step, HeavyStep):
            # Spawned: a process that has used a GPU cannot be forked.
            self._finishers = ProcessPoolExecutor(
                finishers, get_context("spawn"), end_with_parent, (os.getpid(),)
            )
        self._preparing, self._finishing = _HostStage(), _HostStage()
        self._cutting = asyncio.Lock()
        self._fault: BaseException | None = None
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def _batcher(
        self,
        model: WindowedModel,
        max_windows: int,
        passes: int,
        max_batch_bytes: int,
        max_queued_bytes: int | None,
    ) -> Batcher:
        most, sizes = _budget(model, max_windows * passes, max_batch_bytes)
        forward: Forward = model.forward
        if passes > 1 and not sizes:
            forward = partial(forward_windows, model, batch_windows=max_windows)
        return Batcher(forward, most, _queue_windows(model, max_queued_bytes), self.device, sizes)

    async def compile(self) -> None:
        """Run every model at each of its batch sizes once."""
        for model in self.step.models:
            if isinstance(model, CompiledModel):
                await self.device.call(model.warm_up)

    async def warm_up(self) -> None:
        """Compile and run everything once, so that no track waits for it."""
        begun_s = time.perf_counter()
        await self.compile()
        noise = np.random.default_rng(0).standard_normal((2, int(WARM_UP_S * 44_100)))
        await self.run(Waveform(0.1 * noise.astype(np.float32), 44_100))
        self.warm_up_s = time.perf_counter() - begun_s

    async def run(self, waveform: Waveform, step: Step[R] | None = None) -> R:
        """Analyse one track with the step, or with a variant of it that has the same models.

        Raises:
            AudioError: The audio is unsuitable for this step.
            QueueFullError: Too much is queued already, or the device has no memory for this track
                in addition to the others.
            DeviceFaultError: The device is broken; try another process.
        """
        with self._in_use():
            step = step or self.step
            try:
                return await self._complete(await self._prepare(waveform, step), step)
            except Exception as error:
                if self._running == 1 or not is_out_of_memory(error):
                    raise
        # Not chained to the error, which references what was made of the track so far.
        raise QueueFullError(
            f"not enough memory on {self.device.device} next to {self._running} running tracks"
        )

    def prepare(self, waveform: Waveform) -> Prepared:
        """Do the work before the forwards in the calling thread, for `complete`.

        Raises:
            AudioError: The audio is unsuitable for this step.
            DeviceFaultError: The device broke.
        """
        return self._prepared(waveform, self.step)

    def prepare_by(self, waveform: Waveform, work: Callable[[Track], T], *, is_mono: bool) -> T:
        """Copy a track to the device and run ``work``, which cuts windows, in the calling thread.

        Raises:
            DeviceFaultError: The device broke, now or (``DeviceGoneError``) before the work began.
        """
        with self._told_of_faults():
            return self.device.prepare(waveform, work, is_mono=is_mono)

    async def complete(self, prepared: Prepared) -> R:
        """Analyse one track that has been prepared.

        Errors are those of `run`, except that lack of device memory raises torch's own error.
        """
        with self._in_use():
            return await self._complete(await self._with_windows(prepared), self.step)

    async def _with_windows(self, prepared: Prepared) -> Prepared:
        def cut() -> dict[str, Windows]:
            with self._told_of_faults():
                return self.device.cut(partial(dict, prepared.windows))

        async with self._cutting:
            return replace(prepared, windows=await self._on_host(self._preparing, cut))

    async def wants_more(self) -> None:
        """Wait until no model has so much queued that more would gain nothing (see `Batcher`)."""
        async with self._cutting:
            await asyncio.sleep(0)  # lets those whose turn came before ours be queued
        for batcher in self._batchers.values():
            await batcher.wants_more()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _complete(self, prepared: Prepared, step: Step[R]) -> R:
        outputs = await self._forward_all(prepared)
        prepared = Prepared({}, prepared.context)  # the windows are no longer needed
        if self._finishers is not None and isinstance(step, HeavyStep):
            arrays = {
                model_id: {name: values.numpy() for name, values in rows.items()}
                for model_id, rows in outputs.items()
            }
            work = partial(_finish_apart, step.finisher, prepared.context, arrays)
            return cast("R", await self._on_host(self._finishing, work, self._finishers))
        return await self._on_host(self._finishing, partial(step.finish, prepared, outputs))

    async def _prepare(self, waveform: Waveform, step: Step[R]) -> Prepared:
        return await self._on_host(self._preparing, partial(self._prepared, waveform, step))

    def _prepared(self, waveform: Waveform, step: Step[R]) -> Prepared:
        def cut(track: Track) -> Prepared:
            prepared = step.prepare(track)
            return replace(prepared, windows=dict(prepared.windows))

        return self.prepare_by(waveform, cut, is_mono=step.is_mono)

    @contextmanager
    def _told_of_faults(self) -> Iterator[None]:
        """Raise and remember device faults of work outside the forwards.

        The batchers report those of the forwards; they never see these, as no window reaches them.
        """
        fault = self._first_fault
        if fault is not None:
            raise DeviceGoneError(str(fault)) from fault
        try:
            yield
        except Exception as error:
            if not is_device_fault(error):
                raise
            self._fault = error
            raise DeviceFaultError(str(error)) from error

    async def _on_host(
        self, stage: "_HostStage", work: Callable[[], T], executor: Executor | None = None
    ) -> T:
        stage.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            if executor is None:
                executor, work = self._host, partial(_holding, self._processor, work)
            result, took_s = await loop.run_in_executor(executor, _timed, work)
        except BrokenProcessPool as error:
            self._fault = DeviceFaultError("a process that finishes tracks has ended")
            raise self._fault from error
        finally:
            stage.waiting -= 1
        stage.track_s = 0.9 * stage.track_s + 0.1 * took_s if stage.track_s else took_s
        return result

    async def _forward_all(self, prepared: Prepared) -> dict[str, Mapping[str, torch.Tensor]]:
        tasks = {
            model_id: asyncio.create_task(self._batchers[model_id].submit(windows))
            for model_id, windows in prepared.windows.items()
        }
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return {model_id: task.result() for model_id, task in tasks.items()}

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of its networks."""
        networks = [getattr(model, "network", None) for model in self.step.models]
        return sum(
            parameter.nbytes
            for network in networks
            if isinstance(network, torch.nn.Module)
            for parameter in network.parameters()
        )

    def check_health(self) -> None:
        """Raise `DeviceFaultError` if the device, or a finishing process, has broken."""
        fault = self._first_fault
        if fault is not None:
            raise DeviceFaultError(str(fault)) from fault

    @property
    def _first_fault(self) -> BaseException | None:
        faults = (self._fault, *(batcher.fault for batcher in self._batchers.values()))
        return next((fault for fault in faults if fault is not None), None)

    def metrics(self) -> dict[str, BatcherMetrics]:
        """Take a snapshot for each model id."""
        return {model_id: batcher.metrics() for model_id, batcher in self._batchers.items()}

    def watch(self, observer: Callable[[str, Observation], None]) -> None:
        """Report to ``observer``, by model id, what happens in each batcher from now on."""
        for model_id, batcher in self._batchers.items():
            batcher.watch(partial(observer, model_id))

    def backlog_s(self) -> float:
        """Return the seconds of waiting work, host and device, at the pace measured so far."""
        metrics = self.metrics().values()
        for_device_s = sum(m.queued_windows * m.device_s / max(m.windows, 1) for m in metrics)
        # Tracks being prepared or computed on the device must still be finished.
        host_s = self._preparing.backlog_s + self._running * self._finishing.track_s
        return for_device_s + host_s / self._host_threads

    def host_s(self) -> dict[str, float]:
        """Return the processor seconds that a track takes before and after the device."""
        return {"prepare": self._preparing.track_s, "finish": self._finishing.track_s}

    async def retire(self) -> None:
        """Let current work finish, then end the threads.

        A thread may still be working on the windows of a track whose caller has gone.
        """
        await self._idle.wait()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads once their current work is done."""
        self._host.shutdown()
        if self._finishers is not None:
            self._finishers.shutdown()
        self.device.close()


@dataclass(slots=True)
class _HostStage:
    """Host work of one kind: tracks waiting for it or in it, and the seconds that one takes."""

    waiting: int = 0
    track_s: float = 0.0

    @property
    def backlog_s(self) -> float:
        return self.waiting * self.track_s


def _finish_apart(
    finisher: Finisher[R], context: object, arrays: Mapping[str, Mapping[str, NDArray[np.generic]]]
) -> R:
    """Finish a track in another process: arrays are passed by value; tensors would be shared."""
    torch.set_num_threads(1)
    outputs = {
        model_id: {name: torch.from_numpy(values) for name, values in rows.items()}
        for model_id, rows in arrays.items()
    }
    return finisher(context, outputs)


def _holding(processor: AbstractContextManager[object], work: Callable[[], T]) -> T:
    with processor:
        return work()


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begun_s = time.perf_counter()
    return work(), time.perf_counter() - begun_s


def _budget(model: WindowedModel, max_windows: int, max_bytes: int) -> tuple[int, Sequence[int]]:
    """Return the maximum windows in a forward, and the allowed numbers if not any will do."""
    most = max(1, max_bytes // model.spec.n_bytes)
    sizes = model.batch_sizes if isinstance(model, CompiledModel) else ()
    if not sizes:
        return min(max_windows, most), ()
    allowed = [size for size in sizes if size <= most] or [*sizes[:1]]
    return allowed[-1], allowed


def _queue_windows(model: WindowedModel, max_bytes: int | None) -> int:
    return sys.maxsize if max_bytes is None else max(1, max_bytes // model.spec.n_bytes)
