"""Writes single changes of the same moment together; the first does not wait for others.

Invariant: what was looked up to decide on a change still holds when it is written, whatever else
on this machine enters the same.
"""

import asyncio
from collections.abc import Sequence

from serve_app.library.edit import Edit, Entry
from serve_app.library.library import Library
from serve_app.library.track import LibraryTrack

MAX_TOGETHER = 256

_Waiting = tuple[Edit | Entry, "asyncio.Future[LibraryTrack | None]"]


class LibraryWriter:
    """Writes for all requests of one process."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, change: Edit | Entry) -> LibraryTrack | None:
        """Make a change; return the changed track.

        Raises:
            LibraryBusyError: Others kept changing the track first.
        """
        answer: asyncio.Future[LibraryTrack | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting())
        return await answer

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                n = self._n_apart()
                together = self._waiting[:n]
                del self._waiting[:n]
                await self._write(together)
        finally:
            self._writing = None

    def _n_apart(self) -> int:
        """Count the leading changes of which none depends on another being written first."""
        names = set[tuple[str, str]]()
        has_edit = False
        for n, (change, _) in enumerate(self._waiting[:MAX_TOGETHER]):
            if isinstance(change, Entry):
                if has_edit or not names.isdisjoint(change.names):
                    return n
                names |= change.names
            else:
                has_edit = True
        return MAX_TOGETHER

    async def _write(self, together: Sequence[_Waiting]) -> None:
        changes = [change for change, _ in together]
        try:
            tracks = await asyncio.to_thread(self._stored, changes)
        except Exception as error:  # noqa: BLE001  it is those who wait that must know
            for _, answer in together:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), track in zip(together, tracks, strict=True):
            if not answer.done():
                answer.set_result(track)

    def _stored(self, changes: Sequence[Edit | Entry]) -> list[LibraryTrack | None]:
        edits = [change for change in changes if isinstance(change, Edit)]
        if len(edits) == len(changes):
            return self._library.write(edits)
        with self._library.turn():
            return self._library.write(
                [change.edit() if isinstance(change, Entry) else change for change in changes]
            )
