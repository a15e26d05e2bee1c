"""Analysis of many files at once: read ahead, batched across files, each yielded when done.

Batching needs an event loop. It runs in its own thread, so that this also works in a notebook,
which already runs one. Invariant: while nobody takes results, at most `AHEAD` of them wait and no
further file is started.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

import torch

from afa.device import no_memory_for
from afa.errors import AudioError, MachineError
from afa.reading import read
from pipelines.audio.waveform import Waveform
from pipelines.batching.backfill import backfill
from pipelines.batching.batcher import DeviceFaultError
from pipelines.batching.device import is_out_of_memory
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import Prepared, Step

AHEAD = 16
BATCH_WINDOWS = 16

R = TypeVar("R")
Run = tuple[asyncio.AbstractEventLoop, asyncio.Task[None] | None]


def stream(
    step: Step[R], device: torch.device, paths: Iterable[Path]
) -> Iterator[tuple[Path, tuple[float, R] | AudioError]]:
    """Run a step over files; yield each file's length in seconds and result, or its error.

    Raises:
        MachineError: The decoder or the device does not work.
    """
    done: Queue[tuple[Path, tuple[float, R] | Exception] | None] = Queue(AHEAD)
    is_over = Event()
    faults: list[BaseException] = []
    runs: list[Run] = []

    def work() -> None:
        wanted = takewhile(lambda _path: not is_over.is_set(), paths)
        try:
            asyncio.run(_run(step, device, wanted, done, runs))
        except BaseException as fault:  # noqa: BLE001  raised again where the results are taken
            faults.append(fault)
        done.put(None)

    worker = Thread(target=work, name="afa-stream", daemon=True)
    worker.start()
    try:
        while (item := done.get()) is not None:
            path, outcome = item
            if isinstance(outcome, Exception) and is_out_of_memory(outcome):
                outcome = no_memory_for(path)
            if isinstance(outcome, Exception) and not isinstance(outcome, AudioError):
                raise outcome
            yield path, outcome
    finally:
        is_over.set()
        _cancel(runs)
        while worker.is_alive():
            done.get() if not done.empty() else worker.join(0.01)
    for fault in faults:
        if isinstance(fault, DeviceFaultError):
            raise MachineError(str(fault)) from fault
        raise fault


def _cancel(runs: list[Run]) -> None:
    """Cancel the analysis of files that nobody waits for any longer."""
    for loop, task in runs:
        with suppress(RuntimeError):  # the loop has ended
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)


async def _run(
    step: Step[R],
    device: torch.device,
    paths: Iterator[Path],
    done: Queue[tuple[Path, tuple[float, R] | Exception] | None],
    runs: list[Run],
) -> None:
    runs.append((asyncio.get_running_loop(), asyncio.current_task()))
    batched = BatchedStep(step, device, BATCH_WINDOWS)

    def prepare(path: Path) -> tuple[float, Prepared]:
        waveform: Waveform = read(path)
        return waveform.duration_s, batched.prepare(waveform)

    async def complete(track: tuple[float, Prepared]) -> tuple[float, R]:
        duration_s, prepared = track
        return duration_s, await batched.complete(prepared)

    try:
        # Putting into a full queue blocks the whole loop: this keeps reading from running ahead.
        await backfill(
            paths,
            prepare,
            complete,
            lambda path, result: done.put((path, result)),
            batched.wants_more,
        )
    finally:
        batched.close()
