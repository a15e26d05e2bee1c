"""Analysis in separate processes, for a scan without a service."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from models.rhythm.tempo import TempoRange
from pipelines.analysis.features import from_json, to_json
from pipelines.audio.worker_pool import end_pool, new_pool, without_ctrl_c
from serve_app.cli.analysis.loaded import loaded, start_worker
from serve_app.domain.errors import InternalError
from serve_app.services.scan.entries import Hearing
from serve_app.services.scan.facts import LIMITS

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint

T = TypeVar("T")


class WorkersEngine:
    """Analyses in separate processes, which end with this one, however it ends."""

    def __init__(
        self,
        n_workers: int,
        config: Path | None,
        within: TempoRange | None = None,
        *,
        is_partial: bool,
    ) -> None:
        """Start processes; a file's tempo must be in the range ``within``, if there is one."""
        self.n_at_once = n_workers
        self._work = partial(_hear, within)
        self._loading = (0, config, is_partial)
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return new_pool(self.n_at_once, start_worker, *self._loading)

    async def hear(self, path: Path) -> Hearing:
        """See `Engine`."""
        record, chromaprint, landmarks = await self.run(self._work, path)
        return Hearing(from_json(record), chromaprint, landmarks)

    async def run(self, work: Callable[[Path], T], path: Path) -> T:
        """Let a worker do something with a file.

        Raises:
            InternalError: The worker ended meanwhile, and a new one has started; or its device has
                too little memory.
            MachineError: Its device broke.
        """
        pool = self._pool
        try:
            with without_ctrl_c():
                heard = asyncio.get_running_loop().run_in_executor(pool, work, path)
            return await heard
        except BrokenProcessPool as error:
            if pool is self._pool:
                self._pool = self._new_pool()
            raise InternalError(
                "the process that analysed it ended, for want of memory perhaps; scan again"
            ) from error
        except RuntimeError as error:
            from pipelines.batching.device import is_out_of_memory

            if not is_out_of_memory(error):
                raise
            raise InternalError("the device has no memory for it; scan again") from error

    def close(self) -> None:
        """End the workers, without waiting for their work."""
        end_pool(self._pool)


def _hear(within: TempoRange | None, path: Path) -> "tuple[bytes, str | None, Fingerprint]":
    from afa.device import on_device
    from pipelines.audio.decode import decode
    from pipelines.fingerprint.make import Fingerprinter, make_chromaprint

    waveform = decode(path, LIMITS)
    with on_device():
        features = loaded().hear(waveform, within)
    landmarks = Fingerprinter().make_fingerprints([waveform])[0]
    return to_json(features), make_chromaprint(waveform), landmarks
