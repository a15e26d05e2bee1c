"""A processor that runs one forward after another, and the turns that its users take.

A track is copied to a GPU once and its windows are cut there. Batches then pass through three
stages, each with its own thread, so that the host work of one overlaps the compute of the one
before: stage (gather rows), launch (forward), finish (copy out). On the CPU, where host work takes
the device's own time, one thread does everything: waking three takes a millisecond. Invariant: a
partly filled batch starts only on an idle device; only full ones start ahead of time, since waiting
would gain them nothing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.upload import StagingBlocks, bring

T = TypeVar("T")

Forward = Callable[[Tensor], Mapping[str, Tensor]]
Take = Callable[[], Tensor]
"""Returns windows ``[n, …]`` of one track, where they are."""

ANY_PROCESSOR: AbstractContextManager[object] = nullcontext()
"""Held during computation if there are enough processors for all users."""

DEPTH = 2
"""Batches on one device at a time: one computing, one staged behind it."""


class Turns:
    """Decides who may start a batch: strictly first come, first served, so that nobody starves."""

    def __init__(self, depth: int = DEPTH) -> None:
        self._depth = depth
        self._running = 0
        self._waiting: deque[tuple[asyncio.Future[None], Callable[[], bool]]] = deque()

    async def acquire(self, is_full: Callable[[], bool]) -> None:
        """Wait for a turn: an idle device, or room behind another batch if ours ``is_full``."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, is_full))
        self.grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give the turn back."""
        self._running -= 1
        self.grant()

    def grant(self) -> None:
        """Hand out the available turns; also call it when a batch becomes full."""
        while self._waiting:
            turn, is_full = self._waiting[0]
            if not turn.done():
                if self._running and not (self._running < self._depth and is_full()):
                    return
                self._running += 1
                turn.set_result(None)
            self._waiting.popleft()


class Device(Protocol):
    """What a batcher needs from a device."""

    turns: Turns

    async def run(
        self, forward: Forward, parts: Sequence[Take], n_padding: int
    ) -> tuple[Mapping[str, Tensor], float]:
        """Run ``forward`` over windows and padding; return CPU outputs and device seconds."""
        ...


@dataclass(frozen=True, slots=True)
class _Staged:
    windows: Tensor
    gathered: torch.cuda.Event


@dataclass(frozen=True, slots=True)
class _Launched:
    outputs: dict[str, Tensor]
    begin: torch.cuda.Event
    end: torch.cuda.Event
    keep: Tensor


class TorchDevice:
    """A CPU or CUDA device behind its own threads, shared by all batchers of one step.

    Args:
        device: Which one.
        turns: Shared with other users of the same device in this process; its own if None.
        processor: Held while a CPU runs a forward (see `BatchedStep`).
    """

    def __init__(
        self,
        device: torch.device | str,
        turns: Turns | None = None,
        processor: AbstractContextManager[object] = ANY_PROCESSOR,
    ) -> None:
        self.device = torch.device(device)
        self.turns = turns or Turns()
        self._processor = processor
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"{self.device}-{stage}")
            for stage in ("stage", "launch", "finish")
        ]
        self._is_cuda = self.device.type == "cuda"
        self._blocks = StagingBlocks(is_pinned=self._is_cuda)
        if self._is_cuda:
            # Not for matrix products: S-KEY's transform would lose its weak notes.
            torch.backends.cudnn.allow_tf32 = True
            self._copy_stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            self._compute_stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    async def run(
        self, forward: Forward, parts: Sequence[Take], n_padding: int
    ) -> tuple[Mapping[str, Tensor], float]:
        """Run ``forward`` over windows and padding; return CPU outputs and device seconds.

        Args:
            forward: Maps ``[B, …]`` on this device to named outputs ``[B, …]``.
            parts: Return windows of one shape; called in this device's thread, on its stream.
            n_padding: Rows of zeros to append.
        """
        stage, launch, finish = self._threads
        if not self._is_cuda:
            done = launch.submit(self._run_on_cpu, forward, parts, n_padding)
        else:
            staged = stage.submit(self._stage, parts, n_padding)
            launched = launch.submit(self._launch, forward, staged)
            done = finish.submit(self._finish, launched)
        return await asyncio.wrap_future(done)

    def prepare(self, waveform: Waveform, work: Callable[[Track], T], *, is_mono: bool) -> T:
        """Copy a track here and run ``work``, which cuts its windows, in the calling thread.

        Args:
            waveform: The track.
            work: Makes its tensors where the track is; all of it has finished on return.
            is_mono: Whether the mean of the channels is enough.
        """
        blocks = self._blocks if self._is_cuda else None
        return self.cut(lambda: work(bring(waveform, self.device, is_mono=is_mono, blocks=blocks)))

    def cut(self, work: Callable[[], T]) -> T:
        """Run ``work``, which cuts windows of a track on this device, in the calling thread.

        Args:
            work: Makes its tensors where the track is; all of it has finished on return.
        """
        with torch.inference_mode():
            if not self._is_cuda:
                return work()
            with torch.cuda.stream(self._copy_stream):
                done = work()
            self._copy_stream.synchronize()
            return done

    async def call(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the thread and on the stream of the forwards, and wait for the device.

        Whatever is compiled or recorded there is bound to that thread.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads[1], self._call, work)

    def close(self) -> None:
        """End the threads once their current work is done."""
        for thread in self._threads:
            thread.shutdown()

    @torch.inference_mode()
    def _call(self, work: Callable[[], None]) -> None:
        if not self._is_cuda:
            work()
            return
        with torch.cuda.stream(self._compute_stream):
            work()
        self._compute_stream.synchronize()

    @torch.inference_mode()
    def _run_on_cpu(
        self, forward: Forward, parts: Sequence[Take], n_padding: int
    ) -> tuple[Mapping[str, Tensor], float]:
        with self._processor:
            windows = _gathered(parts, n_padding)
            start = time.perf_counter()
            return forward(windows), time.perf_counter() - start

    @torch.inference_mode()
    def _stage(self, parts: Sequence[Take], n_padding: int) -> _Staged:
        with torch.cuda.stream(self._copy_stream):
            windows = _gathered(parts, n_padding).to(self.device)
            gathered = torch.cuda.Event()  # type: ignore[no-untyped-call]
            gathered.record()
        return _Staged(windows, gathered)

    @torch.inference_mode()
    def _launch(self, forward: Forward, staging: Future[_Staged]) -> _Launched:
        staged = staging.result()
        with torch.cuda.stream(self._compute_stream):
            self._compute_stream.wait_event(staged.gathered)
            staged.windows.record_stream(self._compute_stream)
            begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            outputs = {
                name: value.to("cpu", non_blocking=True)
                for name, value in forward(staged.windows).items()
            }
            end.record()
        return _Launched(outputs, begin, end, staged.windows)

    def _finish(self, launching: Future[_Launched]) -> tuple[Mapping[str, Tensor], float]:
        launched = launching.result()
        launched.end.synchronize()
        return launched.outputs, launched.begin.elapsed_time(launched.end) / 1000


def _gathered(parts: Sequence[Take], n_padding: int) -> Tensor:
    """Return windows of several tracks and rows of zeros as one tensor."""
    rows = [take() for take in parts]
    if len(rows) == 1 and not n_padding:
        return rows[0]
    return torch.cat([*rows, rows[0].new_zeros((n_padding, *rows[0].shape[1:]))])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, which smaller batches may avoid."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # From the CPU, and from the driver and libraries for memory outside PyTorch's allocator.
    signs = (
        *("DefaultCPUAllocator: can't allocate memory", "CUDA error: out of memory"),
        *("CUDA driver error: out of memory", "Triton Error [CUDA]: out of memory"),
        # cuDNN's, when each algorithm lacked memory for its workspace.
        *("_ALLOC_FAILED", "unable to find an engine to execute this computation"),
    )
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def is_device_fault(error: BaseException) -> bool:
    """Whether the device is broken, which no retry fixes, as opposed to the input or memory."""
    if is_out_of_memory(error):
        return False
    if isinstance(error, torch.AcceleratorError):
        return True
    # Compiled kernels are launched by Triton or directly by the driver.
    launchers = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]", "NCCL error")
    libraries = ("cuFFT error", "CUBLAS_STATUS_", "CUDNN_STATUS_")
    signs = (*launchers, *libraries)
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
