"""Worker processes of a command: they decode and analyse for it, and end with it."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from pipelines.audio.sandbox import end_with_parent


def new_pool(n_workers: int, prepare: Callable[..., None], *arguments: Any) -> ProcessPoolExecutor:
    """Return a pool whose processes call ``prepare(*arguments)`` first and end with this one."""
    return ProcessPoolExecutor(
        n_workers,
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(), prepare, arguments),
    )


def end_pool(pool: ProcessPoolExecutor) -> None:
    """End the workers without waiting for their work."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


@contextmanager
def ended_by_errors(pool: ProcessPoolExecutor) -> Iterator[ProcessPoolExecutor]:
    """Leave the block when all work is done, or at once if it raises, as on Ctrl-C."""
    with pool:
        try:
            yield pool
        except BaseException:
            end_pool(pool)
            raise


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Shield processes started in the block, and their children, from Ctrl-C for good.

    A pool starts processes when it gets work. Ctrl-C is for this process, which ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, prepare: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    end_with_parent(parent)
    prepare(*arguments)
