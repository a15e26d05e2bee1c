"""Batch the windows of many tracks into forwards, without a timer.

Whenever the device can take a batch, it gets what is queued at that time, one window per track in
turn, up to a budget of windows. So a lone window never waits for company, a long track never holds
up a short one, and a backlog fills every batch. When a caller goes away, its windows are dropped; a
track whose windows make a forward fail fails alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pipelines.batching.device import Device, Forward, is_device_fault, is_out_of_memory
from pipelines.batching.windows import Windows

BATCHES_AHEAD = 2
"""Full batches queued behind those on the device; more would gain nothing."""


class QueueFullError(RuntimeError):
    """There is no room for more, in the queue or on the device: try again later."""


class DeviceFaultError(RuntimeError):
    """The device broke during this work, which must be done elsewhere; replace this process."""


class DeviceGoneError(DeviceFaultError):
    """The device had broken before this work began, so the work is not to blame."""


@dataclass(frozen=True, slots=True)
class BatcherMetrics:
    """What a pace is measured from.

    Attributes:
        queued_windows: The current queue.
        windows: Windows of all forwards since the start.
        device_s: Seconds of device time of all forwards.
    """

    queued_windows: int
    windows: int
    device_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What has just happened in a batcher; fields that do not apply are 0 or empty.

    Attributes:
        queue_s: For each track whose first batch starts: seconds since its submission.
        windows: Windows of a completed forward, excluding padding; 0 if no forward has ended.
        padded_windows: Rows of zeros in that forward.
        device_s: Seconds of device time of that forward.
        batch_s: Seconds from the start of a batch to its outputs, including host work and retries.
        shares: For each track in that batch, where `Batcher.submit` was called from, and its number
            of windows.
        dropped_windows: Queued windows whose caller has gone.
        failed_tracks: Tracks that have failed.
        refused_tracks: Tracks that found the queue full.
    """

    queue_s: Sequence[float] = ()
    windows: int = 0
    padded_windows: int = 0
    device_s: float = 0.0
    batch_s: float = 0.0
    shares: Sequence[tuple[Context, int]] = ()
    dropped_windows: int = 0
    failed_tracks: int = 0
    refused_tracks: int = 0


Observer = Callable[[Observation], None]
"""Called in the batcher's loop, several times per batch: it must be quick and must not raise."""


@dataclass(slots=True, eq=False)
class _Track:
    windows: Windows
    submitted_s: float
    done: "asyncio.Future[Mapping[str, Tensor]]"
    context: Context = field(default_factory=copy_context)
    n_taken: int = 0
    n_finished: int = 0
    parts: list[tuple[int, Mapping[str, Tensor]]] = field(default_factory=list)

    @property
    def kind(self) -> tuple[torch.Size, torch.dtype]:
        """What windows must have in common to share a batch."""
        return self.windows.shape[1:], self.windows.dtype


@dataclass(frozen=True, slots=True)
class _Slice:
    """Rows ``start`` to ``stop`` of a track, in one batch."""

    track: _Track
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def take(self) -> Tensor:
        return self.track.windows[self.start : self.stop]


_Answer = tuple[_Slice, Mapping[str, Tensor]]


class Batcher:
    """The queue in front of one model; lives in one event loop.

    Args:
        forward: Maps windows ``[B, …]`` on the device to named outputs ``[B, …]``, row by row.
        max_windows: Maximum number of windows in one forward.
        max_queued_windows: A submission that would make the queue longer is refused, unless the
            queue is empty.
        device: Where forwards run; may be shared with other batchers.
        batch_sizes: Allowed batch sizes, the largest being ``max_windows``; other batches are
            padded up with zeros (for compiled static shapes). Empty: any size.
    """

    def __init__(
        self,
        forward: Forward,
        max_windows: int,
        max_queued_windows: int,
        device: Device,
        batch_sizes: Sequence[int] = (),
    ) -> None:
        if max_windows < 1 or max_queued_windows < 1:
            raise ValueError("max_windows and max_queued_windows must be at least 1")
        if batch_sizes and (max(batch_sizes) != max_windows or min(batch_sizes) < 1):
            raise ValueError("batch_sizes must lie in 1…max_windows and include max_windows")
        self._forward = forward
        self._max_windows = max_windows
        self._max_queued = max_queued_windows
        self._device = device
        self._batch_sizes = sorted(batch_sizes)
        self._waiting: deque[_Track] = deque()
        self._queued = 0
        self._is_short = asyncio.Event()
        self._is_short.set()
        self._starter: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._windows, self._device_s = 0, 0.0
        self._observer: Observer | None = None

    def watch(self, observer: Observer) -> None:
        """Report to ``observer`` what happens from now on."""
        self._observer = observer

    async def submit(self, windows: Windows) -> Mapping[str, Tensor]:
        """Run all windows of one track.

        Args:
            windows: ``[W, …]``, on the device or the host, W ≥ 1; W may exceed ``max_windows``.

        Returns:
            Name to CPU tensor ``[W, …]``, rows in the order given.

        Raises:
            QueueFullError: Too much is queued already.
            DeviceFaultError: The device broke, now or (``DeviceGoneError``) before the work began.
            Exception: Whatever ``forward`` raised over these windows alone.
        """
        n = len(windows)
        if n == 0:
            raise ValueError("no windows")
        if self._fault is not None:
            raise DeviceGoneError(str(self._fault)) from self._fault
        if self._queued and self._queued + n > self._max_queued:
            self._note(Observation(refused_tracks=1))
            raise QueueFullError(f"{self._queued} windows are queued")
        loop = asyncio.get_running_loop()
        track = _Track(windows, loop.time(), loop.create_future())
        self._waiting.append(track)
        self._count(n)
        self._want_turn()
        try:
            return await track.done
        finally:
            self._forget(track)

    async def wants_more(self) -> None:
        """Wait until fewer windows are queued than are needed to keep the batches full."""
        await self._is_short.wait()

    @property
    def fault(self) -> BaseException | None:
        """The error that broke the device, if it is broken."""
        return self._fault

    def metrics(self) -> BatcherMetrics:
        """Take a snapshot."""
        return BatcherMetrics(self._queued, self._windows, self._device_s)

    def _note(self, seen: Observation) -> None:
        if self._observer is not None:
            self._observer(seen)

    def _count(self, more: int) -> None:
        self._queued += more
        if self._queued < BATCHES_AHEAD * self._max_windows:
            self._is_short.set()
        else:
            self._is_short.clear()

    def _want_turn(self) -> None:
        """Keep one starter waiting for the device as long as anything is queued."""
        if self._starter is None:
            self._starter = asyncio.get_running_loop().create_task(self._run_next())
            self._running.add(self._starter)
            self._starter.add_done_callback(self._running.discard)
        elif self._is_full():
            self._device.turns.grant()

    def _is_full(self) -> bool:
        return self._queued >= self._max_windows

    async def _run_next(self) -> None:
        """Wait for a turn and run one batch; meanwhile another starter waits for the next turn."""
        await self._device.turns.acquire(self._is_full)
        self._starter = None
        if not self._waiting:  # all callers have gone while we waited
            self._device.turns.release()
            return
        batch = self._take()
        if self._waiting:
            self._want_turn()
        await self._run_batch(batch)

    def _take(self) -> list[_Slice]:
        """Give each waiting track one window in turn until the budget is spent.

        Windows whose shape differs from the first track's wait, but come first in the next batch.
        """
        kind = self._waiting[0].kind
        mine = deque(track for track in self._waiting if track.kind == kind)
        others = [track for track in self._waiting if track.kind != kind]
        share: dict[_Track, int] = {}
        budget = self._max_windows
        while mine and budget:
            track = mine.popleft()
            share[track] = share.get(track, 0) + 1
            budget -= 1
            if track.n_taken + share[track] < len(track.windows):
                mine.append(track)
        self._waiting = deque([*others, *mine])
        self._count(budget - self._max_windows)
        now_s = asyncio.get_running_loop().time()
        begun_s = [now_s - track.submitted_s for track in share if track.n_taken == 0]
        if begun_s:
            self._note(Observation(queue_s=begun_s))
        batch = []
        for track, n in share.items():
            batch.append(_Slice(track, track.n_taken, track.n_taken + n))
            track.n_taken += n
        return batch

    async def _run_batch(self, batch: list[_Slice]) -> None:
        """Run one batch; release its turn first, then pass the outputs to their callers."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        answers: list[_Answer] = []
        try:
            answers = await self._run_slices(batch)
        finally:
            shares = [(part.track.context, part.size) for part in batch]
            self._note(Observation(batch_s=loop.time() - start_s, shares=shares))
            self._device.turns.release()
        for part, outputs in answers:
            try:
                _deliver(part, outputs)
            except Exception as error:  # noqa: BLE001 - joining a long track's rows takes memory
                self._fail(part.track, error)

    async def _run_slices(self, batch: list[_Slice]) -> list[_Answer]:
        """Run one forward; if it fails, find the tracks to blame and return the others' outputs."""
        batch = [part for part in batch if not part.track.done.done()]
        if not batch:
            return []
        sizes = [part.size for part in batch]
        n = sum(sizes)
        n_padding = next((size - n for size in self._batch_sizes if size >= n), 0)
        try:
            outputs, device_s = await self._device.run(
                self._forward, [part.take for part in batch], n_padding
            )
            pieces = {
                name: torch.split(rows, [*sizes, n_padding]) for name, rows in outputs.items()
            }
        except Exception as error:  # noqa: BLE001 - every error goes to the caller whose it is
            return await self._blame(batch, error)
        self._windows += n
        self._device_s += device_s
        self._note(Observation(windows=n, padded_windows=n_padding, device_s=device_s))
        return [
            (part, {name: rows[place] for name, rows in pieces.items()})
            for place, part in enumerate(batch)
        ]

    async def _blame(self, batch: list[_Slice], error: Exception) -> list[_Answer]:
        if is_device_fault(error):
            self._break_down(batch, error)
            return []
        if len(batch) > 1:
            pieces = batch
        elif is_out_of_memory(error) and batch[0].size > 1:
            track, start, stop = batch[0].track, batch[0].start, batch[0].stop
            middle = (start + stop) // 2
            pieces = [_Slice(track, start, middle), _Slice(track, middle, stop)]
        else:
            self._fail(batch[0].track, error)
            return []
        return [answer for piece in pieces for answer in await self._run_slices([piece])]

    def _break_down(self, batch: list[_Slice], error: Exception) -> None:
        self._fault = error
        for track in {*self._waiting, *(part.track for part in batch)}:
            fault = (DeviceFaultError if track.n_taken else DeviceGoneError)(str(error))
            fault.__cause__ = error
            self._fail(track, fault)

    def _fail(self, track: _Track, error: Exception) -> None:
        if not track.done.done():
            self._note(Observation(failed_tracks=1))
            track.done.set_exception(error)
        self._forget(track)

    def _forget(self, track: _Track) -> None:
        """Remove what is left of a track from the queue."""
        if track.n_taken < len(track.windows) and track in self._waiting:
            self._waiting.remove(track)
            n = len(track.windows) - track.n_taken
            self._count(-n)
            if track.done.cancelled():
                self._note(Observation(dropped_windows=n))


def _deliver(part: _Slice, outputs: Mapping[str, Tensor]) -> None:
    track = part.track
    track.parts.append((part.start, outputs))
    track.n_finished += part.size
    if track.n_finished == len(track.windows) and not track.done.done():
        ordered = [rows for _, rows in sorted(track.parts, key=lambda item: item[0])]
        if len(ordered) == 1:
            track.done.set_result(ordered[0])
        else:
            names = ordered[0].keys()
            track.done.set_result({n: torch.cat([rows[n] for rows in ordered]) for n in names})
