"""Single changes of one moment, written together: the first waits for nobody."""

import asyncio

from serve_app.library.edit import Edit
from serve_app.library.library import Library
from serve_app.library.track import LibraryTrack

MAX_TOGETHER = 256


class LibraryWriter:
    """Writes for the requests of one process."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._waiting: list[tuple[Edit, asyncio.Future[LibraryTrack | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, edit: Edit) -> LibraryTrack | None:
        """Make a change; give the track as it is then.

        Raises:
            LibraryBusyError: Others were always faster.
        """
        answer: asyncio.Future[LibraryTrack | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((edit, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting())
        return await answer

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                together = self._waiting[:MAX_TOGETHER]
                del self._waiting[:MAX_TOGETHER]
                await self._write(together)
        finally:
            self._writing = None

    async def _write(
        self, together: list[tuple[Edit, asyncio.Future[LibraryTrack | None]]]
    ) -> None:
        edits = [edit for edit, _ in together]
        try:
            tracks = await asyncio.to_thread(self._library.write, edits)
        except Exception as error:  # noqa: BLE001  it is those who wait that must know
            for _, answer in together:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), track in zip(together, tracks, strict=True):
            if not answer.done():
                answer.set_result(track)
