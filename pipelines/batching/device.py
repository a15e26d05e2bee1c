"""A processor that runs one forward after another, and the turns that its users take.

On a GPU batches pass through three stages, each with its own thread, so that the host work of one
batch overlaps the compute of the one before: stage (gather rows, copy in), launch (forward), finish
(copy out). On the CPU, where host work takes the device's own time, one thread does all: waking
three takes a millisecond. Invariant: a partly filled batch starts only on an idle device; ahead of
time only full ones start, since waiting would gain them nothing.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Forward = Callable[[Tensor], Mapping[str, Tensor]]

DEPTH = 2
"""Batches on one device at a time: one computed, one staged behind it."""


class Turns:
    """Decides who may start a batch; strictly first come, first served, so that nobody starves."""

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
        """Hand out what turns there are; call it too when a batch has become full."""
        while self._waiting:
            turn, is_full = self._waiting[0]
            if not turn.done():
                if self._running and not (self._running < self._depth and is_full()):
                    return
                self._running += 1
                turn.set_result(None)
            self._waiting.popleft()


class Device(Protocol):
    """What a batcher needs of a device."""

    turns: Turns

    async def run(
        self, forward: Forward, rows: Sequence[Tensor], n_padding: int
    ) -> tuple[Mapping[str, Tensor], float]:
        """Run ``forward`` over rows and padding; give CPU outputs and seconds of device time."""
        ...


@dataclass(frozen=True, slots=True)
class _Staged:
    windows: Tensor
    copied: torch.cuda.Event


@dataclass(frozen=True, slots=True)
class _Launched:
    outputs: dict[str, Tensor]
    begin: torch.cuda.Event
    end: torch.cuda.Event
    keep: Tensor


class StagingBlocks:
    """Host memory of a fixed size that batches pass through on their way to a device, in turn.

    Used by one thread. Invariant: a block is written again only when its copy has ended.

    Args:
        n_bytes: Of one block; there are `DEPTH`, made when first needed and kept.
        is_pinned: So that the device copies them by itself.
    """

    def __init__(self, n_bytes: int, *, is_pinned: bool = True) -> None:
        self._n_bytes = n_bytes
        self._is_pinned = is_pinned
        self._blocks: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()

    def gather(self, parts: Sequence[Tensor]) -> Tensor:
        """Give the rows of all parts together, in the next block."""
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        wanted = math.prod(shape) * parts[0].element_size()
        block = self._next(wanted)
        rows = block[:wanted].view(parts[0].dtype).view(shape)
        torch.cat([*parts], out=rows)
        return rows

    def is_copied_after(self, copied: torch.cuda.Event) -> None:
        """Say that what was gathered last may be written again after an event."""
        block, _ = self._blocks.pop()
        self._blocks.append((block, copied))

    def _next(self, n_bytes: int) -> Tensor:
        block = None
        if len(self._blocks) == DEPTH:
            block, copied = self._blocks.popleft()
            if copied is not None:
                copied.synchronize()
        if block is None or len(block) < n_bytes:
            size = max(n_bytes, self._n_bytes)
            block = torch.empty(size, dtype=torch.uint8, pin_memory=self._is_pinned)
        self._blocks.append((block, None))
        return block


class TorchDevice:
    """A CPU or CUDA device behind threads of its own; shared by all batchers of one step.

    Args:
        device: Which one.
        turns: Shared with other users of the same device in this process; its own if None.
        staging_bytes: Of the largest batch, for the pinned memory of a GPU; a larger one still
            passes, and its block stays as large.
    """

    def __init__(
        self, device: torch.device | str, turns: Turns | None = None, staging_bytes: int = 0
    ) -> None:
        self.device = torch.device(device)
        self.turns = turns or Turns()
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"{self.device}-{stage}")
            for stage in ("stage", "launch", "finish")
        ]
        self._is_cuda = self.device.type == "cuda"
        self._blocks = StagingBlocks(staging_bytes)
        if self._is_cuda:
            self._copy_stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            self._compute_stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    async def run(
        self, forward: Forward, rows: Sequence[Tensor], n_padding: int
    ) -> tuple[Mapping[str, Tensor], float]:
        """Run ``forward`` over rows and padding; give CPU outputs and seconds of device time.

        Args:
            forward: Maps ``[B, …]`` on this device to named outputs ``[B, …]``.
            rows: CPU windows ``[n, …]`` of equal row shape.
            n_padding: Rows of zeros to add behind them.
        """
        stage, launch, finish = self._threads
        parts = [*rows]
        if n_padding:
            parts.append(rows[0].new_zeros((n_padding, *rows[0].shape[1:])))
        if not self._is_cuda:
            done = launch.submit(self._run_on_cpu, forward, parts)
        else:
            staged = stage.submit(self._stage, parts)
            launched = launch.submit(self._launch, forward, staged)
            done = finish.submit(self._finish, launched)
        return await asyncio.wrap_future(done)

    async def call(self, work: Callable[[], None]) -> None:
        """Do work in the thread and on the stream of the forwards, and wait for the device.

        What is compiled or recorded there is bound to that thread.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads[1], self._call, work)

    def close(self) -> None:
        """End the threads after what is under way."""
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
        self, forward: Forward, parts: list[Tensor]
    ) -> tuple[Mapping[str, Tensor], float]:
        windows = parts[0] if len(parts) == 1 else torch.cat(parts)
        start = time.perf_counter()
        return forward(windows), time.perf_counter() - start

    def _stage(self, parts: list[Tensor]) -> _Staged:
        pinned = self._blocks.gather(parts)
        with torch.cuda.stream(self._copy_stream):
            windows = pinned.to(self.device, non_blocking=True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record()
        self._blocks.is_copied_after(copied)
        return _Staged(windows, copied)

    @torch.inference_mode()
    def _launch(self, forward: Forward, staging: Future[_Staged]) -> _Launched:
        staged = staging.result()
        with torch.cuda.stream(self._compute_stream):
            self._compute_stream.wait_event(staged.copied)
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


def is_out_of_memory(error: BaseException) -> bool:
    """Tell lack of memory, which less work at a time mends."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    # From the driver and libraries, for what PyTorch's allocator does not hand out.
    signs = ("CUDA error: out of memory", "Triton Error [CUDA]: out of memory", "_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def is_device_fault(error: BaseException) -> bool:
    """Tell a broken device, which no retry mends, from a fault of the input or of memory."""
    if is_out_of_memory(error):
        return False
    if isinstance(error, torch.AcceleratorError):
        return True
    # Compiled kernels are launched by Triton or straight by the driver.
    launchers = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]", "NCCL error")
    libraries = ("cuFFT error", "CUBLAS_STATUS_", "CUDNN_STATUS_")
    signs = (*launchers, *libraries)
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
