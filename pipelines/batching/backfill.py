"""Analyse many files as fast as reading and the device allow.

Threads read and prepare ahead, and every prepared track goes to the batchers: forwards are filled
across tracks, and the device waits for no file. Invariant: while the batchers want no more, no
thread holds more than one track ready, so memory stays bounded whichever side is slower.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pipelines.audio.decode import DecoderUnavailableError
from pipelines.batching.batcher import DeviceFaultError

S = TypeVar("S")
P = TypeVar("P")
R = TypeVar("R")

READER_NICENESS = 15
"""Niceness of reader threads: a forward that they interrupt finds its caches emptied."""
LEAST_PRIORITY = 19


async def backfill(
    sources: Iterable[S],
    read: Callable[[S], P],
    analyse: Callable[[P], Awaitable[R]],
    write: Callable[[S, R | Exception], None],
    wants_more: Callable[[], Awaitable[None]],
    n_readers: int = 0,
) -> None:
    """Read, analyse and write every source, each as soon as it is done.

    Args:
        sources: What to analyse.
        read: Decodes a source and cuts its windows; called in threads.
        analyse: Returns the result, batched with the other tracks, as `BatchedStep.complete` does.
        write: Called in the event loop, once per source, with its result or its own error.
        wants_more: Returns when there is room for another track, as `BatchedStep.wants_more` does.
        n_readers: Sources read at the same time; 0 means one per processor.

    Raises:
        DeviceFaultError: The device broke.
        DecoderUnavailableError: Nothing can be decoded on this machine.
        Exception: Whatever ``write`` raised.
    """
    waiting = iter(sources)
    loop = asyncio.get_running_loop()

    async def keep_reading() -> None:
        for source in waiting:
            track = await _outcome(loop.run_in_executor(threads, read, source))
            if isinstance(track, Exception):
                # A canceller may also end decoders, which must not be recorded as a bad file.
                await asyncio.sleep(0)
                write(source, track)
                continue
            await wants_more()
            group.create_task(finish(source, track))
            del track  # so that it is not kept while the next is read

    async def finish(source: S, track: P) -> None:
        write(source, await _outcome(analyse(track)))

    n_readers = n_readers or os.cpu_count() or 1
    with ThreadPoolExecutor(n_readers, "read", _step_back) as threads:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(n_readers):
                    group.create_task(keep_reading())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None


def _step_back() -> None:
    """Give other threads priority over this one; Linux keeps a niceness per thread."""
    thread = threading.get_native_id()
    niceness = os.getpriority(os.PRIO_PROCESS, thread) + READER_NICENESS
    os.setpriority(os.PRIO_PROCESS, thread, min(LEAST_PRIORITY, niceness))


async def _outcome(work: Awaitable[R]) -> R | Exception:
    """Return a result, or the track's own error; raise errors that would fail every track."""
    try:
        return await work
    except (DecoderUnavailableError, DeviceFaultError):
        raise
    except Exception as error:  # noqa: BLE001 - one track must not end the run
        return error
