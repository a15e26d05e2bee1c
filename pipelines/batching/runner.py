"""Run a step for many tracks at once, its forwards batched across tracks.

The same step gives the same result as `pipelines.batching.steps.run_local`; only who shares a batch
differs.
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
"""Of windows in one forward."""

WARM_UP_S = 12.0
"""Seconds of noise that a step analyses before anybody waits for it."""


@runtime_checkable
class CompiledModel(Protocol):
    """A model that is fastest at certain batch sizes and wants to meet them beforehand."""

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
        max_windows: Most windows in one forward of each model, 0 as `most_windows`; a compiled
            model's largest batch size takes its place.
        max_batch_bytes: Most bytes of windows in one forward, which holds as well; of a compiled
            model's sizes those above are left out. One window is always allowed.
        max_queued_bytes: Most bytes of windows waiting for each model (see `Batcher`); None where
            the caller waits until more are wanted.
        passes: Forwards of one batch, of ``max_windows`` each, that follow one another in the
            device's thread. More than 1 is for a CPU where nobody waits for a single answer: small
            forwards are fastest there, and waking threads between them takes their time.
        host_threads: Tracks whose host work (`prepare`, `finish`) runs at the same time.
        finishers: Processes that finish tracks of a `HeavyStep`, for a device so fast that one
            interpreter would hold it up; 0: the host threads do.
        turns: Shared with other steps on the same device in this process.
        processor: Held while anything of it is computed on a CPU, forwards and host work. Whoever
            shares a single processor with it holds it too: work that is interrupted finds the
            caches emptied.

    Attributes:
        step: What it computes.
        device: Where the forwards run, and in which thread.
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
            # Not forked: a process that has used a GPU cannot be.
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
        """Let every model meet its batch sizes once."""
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
        """Analyse one track, by the step or by a variant of it that has the same models.

        Raises:
            AudioError: The audio is not fit for this step.
            QueueFullError: Too much is queued already, or the device has no memory for this track
                beside the others.
            DeviceFaultError: The device is broken; try another process.
        """
        with self._in_use():
            step = step or self.step
            try:
                return await self._complete(await self._prepare(waveform, step), step)
            except Exception as error:
                if self._running == 1 or not is_out_of_memory(error):
                    raise
        # Not from the error, which holds what was made of the track so far.
        raise QueueFullError(
            f"not enough memory on {self.device.device} next to {self._running} running tracks"
        )

    def prepare(self, waveform: Waveform) -> Prepared:
        """Do the work before the forwards in the calling thread, for `complete`.

        Raises:
            AudioError: The audio is not fit for this step.
            DeviceFaultError: The device broke.
        """
        return self._prepared(waveform, self.step)

    def prepare_by(self, waveform: Waveform, work: Callable[[Track], T], *, is_mono: bool) -> T:
        """Bring a track to the device and do work that cuts its windows, in the calling thread.

        Raises:
            DeviceFaultError: The device broke, now or (``DeviceGoneError``) before it was begun.
        """
        with self._told_of_faults():
            return self.device.prepare(waveform, work, is_mono=is_mono)

    async def complete(self, prepared: Prepared) -> R:
        """Analyse one track that has been prepared.

        Errors are those of `run`; but that the device has no memory for it is told as torch does.
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
            await asyncio.sleep(0)  # whose turn came before ours is queued then
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
        prepared = Prepared({}, prepared.context)  # the windows have been heard
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
        """Do work on the device beside the forwards, whose faults a batcher tells.

        Where it breaks here no batcher may ever hear of it: no window gets as far.
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
        """Raise `DeviceFaultError` once the device, or a process beside it, has broken."""
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
        """Tell ``observer`` of each batcher, by model id, what happens from now on."""
        for model_id, batcher in self._batchers.items():
            batcher.watch(partial(observer, model_id))

    def backlog_s(self) -> float:
        """Return the seconds of work that wait, host and device, at the pace measured so far."""
        metrics = self.metrics().values()
        for_device_s = sum(m.queued_windows * m.device_s / max(m.windows, 1) for m in metrics)
        # What is prepared, or computed on the device, is still to be finished.
        host_s = self._preparing.backlog_s + self._running * self._finishing.track_s
        return for_device_s + host_s / self._host_threads

    def host_s(self) -> dict[str, float]:
        """Return the seconds of a processor that a track takes before and after the device."""
        return {"prepare": self._preparing.track_s, "finish": self._finishing.track_s}

    async def retire(self) -> None:
        """Let what is under way finish, then end the threads.

        Of a track whose caller has gone, a thread may still work at the windows.
        """
        await self._idle.wait()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads after what is under way."""
        self._host.shutdown()
        if self._finishers is not None:
            self._finishers.shutdown()
        self.device.close()


@dataclass(slots=True)
class _HostStage:
    """Host work of one kind: tracks that wait for it or are in it, and the seconds one takes."""

    waiting: int = 0
    track_s: float = 0.0

    @property
    def backlog_s(self) -> float:
        return self.waiting * self.track_s


def _finish_apart(
    finisher: Finisher[R], context: object, arrays: Mapping[str, Mapping[str, NDArray[np.generic]]]
) -> R:
    """Finish a track in another process: arrays travel by value, where tensors would be shared."""
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
    """Return the most windows in a forward, and the allowed numbers where not any will do."""
    most = max(1, max_bytes // model.spec.n_bytes)
    sizes = model.batch_sizes if isinstance(model, CompiledModel) else ()
    if not sizes:
        return min(max_windows, most), ()
    allowed = [size for size in sizes if size <= most] or [*sizes[:1]]
    return allowed[-1], allowed


def _queue_windows(model: WindowedModel, max_bytes: int | None) -> int:
    return sys.maxsize if max_bytes is None else max(1, max_bytes // model.spec.n_bytes)
