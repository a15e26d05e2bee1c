"""Many files at once: read ahead, batched across files, given as each is done.

The event loop that batching needs runs in a thread of its own, so that this works in a notebook,
which has one already. Invariant: while nobody takes results, at most `AHEAD` of them wait and no
further file is begun.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import torch

from afa.errors import AudioError, MachineError
from afa.reading import read
from pipelines.audio.waveform import Waveform
from pipelines.batching.backfill import backfill
from pipelines.batching.batcher import DeviceFaultError
from pipelines.batching.device import Turns
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import Prepared, Step

AHEAD = 16
BATCH_WINDOWS = 16

Results = tuple[float, list[Any]]
"""The length of a track in seconds, and the result of every step."""


def stream(
    steps: Sequence[Step[Any]], device: torch.device, paths: Iterable[Path]
) -> Iterator[tuple[Path, Results | AudioError]]:
    """Run steps over files; give each file's results, or its error, when it is done.

    Raises:
        MachineError: The decoder or the device does not work.
    """
    done: Queue[tuple[Path, Results | Exception] | None] = Queue(AHEAD)
    is_over = Event()
    faults: list[BaseException] = []

    def work() -> None:
        wanted = takewhile(lambda _path: not is_over.is_set(), paths)
        try:
            asyncio.run(_run(steps, device, wanted, done))
        except BaseException as fault:  # noqa: BLE001  raised again where the results are taken
            faults.append(fault)
        done.put(None)

    worker = Thread(target=work, name="afa-stream", daemon=True)
    worker.start()
    try:
        while (item := done.get()) is not None:
            path, outcome = item
            if isinstance(outcome, Exception) and not isinstance(outcome, AudioError):
                raise outcome
            yield path, outcome
    finally:
        is_over.set()
        while worker.is_alive():
            done.get() if not done.empty() else worker.join(0.01)
    for fault in faults:
        if isinstance(fault, DeviceFaultError):
            raise MachineError(str(fault)) from fault
        raise fault


async def _run(
    steps: Sequence[Step[Any]],
    device: torch.device,
    paths: Iterator[Path],
    done: Queue[tuple[Path, Results | Exception] | None],
) -> None:
    turns = Turns()
    batched = [BatchedStep(step, device, BATCH_WINDOWS, turns=turns) for step in steps]

    def prepare(path: Path) -> tuple[float, list[Prepared]]:
        waveform: Waveform = read(path)
        return waveform.duration_s, [step.prepare(waveform) for step in batched]

    async def complete(track: tuple[float, list[Prepared]]) -> Results:
        duration_s, prepared = track
        pairs = zip(batched, prepared, strict=True)
        return duration_s, await asyncio.gather(*(step.complete(one) for step, one in pairs))

    async def wants_more() -> None:
        for step in batched:
            await step.wants_more()

    try:
        # Putting into a full queue halts the whole loop: that is what holds the reading back.
        await backfill(
            paths, prepare, complete, lambda path, result: done.put((path, result)), wants_more
        )
    finally:
        for step in batched:
            step.close()
