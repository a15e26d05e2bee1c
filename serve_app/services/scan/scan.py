"""Bring the files of some places into the library, and track their later changes.

Invariant: a file is analysed once, however often it is copied, moved or retagged. What the library
has confirmed stays, whenever the scan ends; nothing is left half done.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.audio.waveform import AudioError
from serve_app.domain.errors import AfaError
from serve_app.library.edit import Edit
from serve_app.library.library import Library
from serve_app.library.rows import location_term
from serve_app.library.track import OPERATOR, LibraryTrack, TrackFile
from serve_app.library.track import Place as Kind
from serve_app.providers.fingerprints.manifest import IndexBusyError
from serve_app.services.failure import reason_of
from serve_app.services.scan.changes import now, with_mark, without_file
from serve_app.services.scan.entries import Entries, Hearing, Taken, is_as_listed
from serve_app.services.scan.facts import FileChangedError, Stamp
from serve_app.services.scan.landmarks import LandmarkIndex
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import Found, Place, Trouble, at_hand
from serve_app.services.scan.reading import read_file
from serve_app.services.scan.report import Outcome, ScanReport

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint

MAX_TOGETHER = 64
"""Files in one commit; none waits for more, but those that come during a write go together."""

READ_AHEAD = 2
"""Files that are read while others are analysed."""

PAGE = 500

NOTHING_FOUND = (
    "nothing is found where {n} files were; is it mounted? If they were deleted, add --forget"
)
NO_MEMORY = "this machine has no memory left for it; end other programs, and scan again"
NO_AUDIO = "holds no audio; is its name right, and is it mounted?"


class Engine(Protocol):
    """What analyses files: this process's own workers, or the running service."""

    n_at_once: int

    async def hear(self, path: Path) -> Hearing:
        """Analyse a file.

        Raises:
            AudioError: It is not fit for analysis.
            AfaError: It could not be analysed.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that waits to be written, and the future that is set once it is.

    Attributes:
        landmarks: None if the index has its track.
    """

    taken: Taken
    landmarks: "Fingerprint | None"
    written: asyncio.Future[None]


class Scan:
    """One pass over some places."""

    def __init__(
        self,
        library: Library,
        engine: Engine,
        naming: Naming,
        landmarks: LandmarkIndex,
        tell: Callable[[str, Outcome], None],
        *,
        again: bool = False,
        forget: bool = False,
    ) -> None:
        """Prepare a pass.

        Args:
            library: Where the tracks go; they are the operator's.
            engine: Analyses files.
            naming: Identifies tracks.
            landmarks: Recognises tracks by their sound.
            tell: Called with each file's location and outcome.
            again: Also analyse what is known.
            forget: Remove missing files from the library instead of marking them.
        """
        self._library, self._engine, self._naming = library, engine, naming
        self._entries, self._landmarks = Entries(library), landmarks
        self._tell, self._again, self._forget = tell, again, forget
        self.report = ScanReport()
        self._taken: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._in_work: dict[str, asyncio.Future[None]] = {}

    async def run(
        self,
        listed: Sequence[tuple[Place, Sequence[Found | Trouble]]],
        unfinished: Collection[str] = (),
    ) -> None:
        """Enter the listed files, and mark those that no longer exist.

        Args:
            listed: What each place has.
            unfinished: Locations of files that may be incomplete; what is known of them stays.

        Raises:
            OSError: The library cannot be written; what it has confirmed is kept.
            LibraryBusyError: Likewise.
        """
        begun = now()
        await asyncio.to_thread(self._library.follow)
        writer = asyncio.create_task(self._write())
        takers = asyncio.create_task(self._take_all(listed, unfinished))
        try:
            await asyncio.wait({writer, takers}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
            await takers
        finally:
            takers.cancel()
            await asyncio.gather(takers, return_exceptions=True)
            # Every analysis made is written, even if the scan is stopped.
            await self._write_waiting()
            writer.cancel()
            is_indexed = await self._finish_landmarks()
        seen = found_in(listed)
        for place, found in listed:
            await self._follow_gone(place, found, seen)
        for location, outcome in await asyncio.to_thread(self._settle_displaced, begun):
            self._note(location, outcome)
        if self._forget and is_indexed:
            self._landmarks.keep(lambda track_id: self._library.get(track_id) is not None)
            await self._finish_landmarks()

    async def _finish_landmarks(self) -> bool:
        try:
            await asyncio.to_thread(self._landmarks.finish)
        except IndexBusyError as error:
            self._fail("fingerprint index", f"{error} Scan again to bring it up to date.")
            return False
        return True

    async def _take_all(
        self, listed: Sequence[tuple[Place, Sequence[Found | Trouble]]], unfinished: Collection[str]
    ) -> None:
        # A file that is in several places counts once.
        of_location = {
            one.location: (place, one)
            for place, found in listed
            for one in found
            if one.location not in unfinished
        }
        todo = iter(of_location.values())
        try:
            async with asyncio.TaskGroup() as takers:
                for _ in range(self._engine.n_at_once + READ_AHEAD):
                    takers.create_task(self._take(todo))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _take(self, todo: Iterable[tuple[Place, Found | Trouble]]) -> None:
        for place, one in todo:
            if isinstance(one, Trouble):
                self._fail(one.location, one.message)
                continue
            try:
                await self._take_up(place, one)
            except AfaError as error:
                self._fail(one.location, error.message)
            except (AudioError, FileChangedError) as error:
                self._fail(one.location, str(error))
            except OSError as error:
                self._fail(one.location, reason_of(error))
            except (MemoryError, RuntimeError) as error:
                from pipelines.batching.device import is_out_of_memory  # brings torch

                if not is_out_of_memory(error):
                    raise
                self._fail(one.location, NO_MEMORY)

    async def _take_up(self, place: Place, found: Found) -> None:
        known, known_file = self._entries.at(found.location)
        if known and known_file and self._is_as_before(known, known_file, found):
            await self._still_there(known, known_file)
            if self._landmarks.lacks(known.track_id):
                async with at_hand(place, found) as path:
                    made_up_for = await asyncio.to_thread(self._landmarks.hear, path)
                await asyncio.to_thread(self._landmarks.put, known.track_id, made_up_for)
            self._landmarks.take_over(known.track_id, found.location)
            return
        async with at_hand(place, found) as path:
            stamp = Stamp.of(path)
            file, named = await asyncio.to_thread(read_file, found, path, self._naming)
            audio = file.audio_sha256 or ""
            while (other := self._in_work.get(audio)) is not None:
                await asyncio.wait([other])  # a copy is being analysed
            twin = self._entries.twin(file)
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._in_work[audio] = written
            try:
                hearing = None
                if twin is None or twin.analysis is None or self._again:
                    hearing = await self._engine.hear(path)
                landmarks = None if hearing is None else hearing.landmarks
                if landmarks is None and (twin is None or self._landmarks.lacks(twin.track_id)):
                    landmarks = await asyncio.to_thread(self._landmarks.hear, path)
                stamp.check(path)
                taken = Taken(file, named, hearing, lambda: nullcontext(path))
                self._taken.put_nowait(_Waiting(taken, landmarks, written))
                await asyncio.shield(written)
            finally:
                self._in_work.pop(audio)
                written.cancel()

    def _is_as_before(self, track: LibraryTrack, file: TrackFile, found: Found) -> bool:
        return is_as_listed(file, found) and track.analysis is not None and not self._again

    async def _still_there(self, track: LibraryTrack, file: TrackFile) -> None:
        if file.missing_since is None:
            self._note(file.location, Outcome.UNCHANGED)
            return
        edit = Edit(track.track_id, with_mark(file.location, None))
        await asyncio.to_thread(self._library.write, [edit])
        self._note(file.location, Outcome.RETURNED)

    async def _write(self) -> None:
        while True:
            first = await self._taken.get()
            self._taken.put_nowait(first)
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        waiting: list[_Waiting] = []
        while not self._taken.empty() and len(waiting) < MAX_TOGETHER:
            waiting.append(self._taken.get_nowait())
        if waiting:
            for one, outcome in await asyncio.to_thread(self._enter, waiting):
                self._note(one.taken.file.location, outcome)
                if not one.written.done():
                    one.written.set_result(None)

    def _enter(self, waiting: Sequence[_Waiting]) -> list[tuple[_Waiting, Outcome]]:
        entered = self._entries.enter([one.taken for one in waiting])
        ended = []
        for one, (track_id, outcome) in zip(waiting, entered, strict=True):
            if one.landmarks is not None and self._landmarks.lacks(track_id):
                self._landmarks.put(track_id, one.landmarks)
            self._landmarks.take_over(track_id, one.taken.file.location)
            ended.append((one, outcome))
        return ended

    async def _follow_gone(
        self, place: Place, listed: Sequence[Found | Trouble], seen: Collection[str]
    ) -> None:
        """Mark or remove files missing from a place, except below what could not be listed."""
        lost = await asyncio.to_thread(gone_from, self._library, place, listed, seen)
        if not self._forget:
            lost = [one for one in lost if one.has_another_path or one.file.missing_since is None]
        trouble = without_audio(place, listed, lost, forget=self._forget)
        if trouble is not None:
            self._fail(trouble.location, trouble.message)
            return
        since = now()
        for start in range(0, len(lost), PAGE):
            edits, outcomes = list[Edit](), list[tuple[str, Outcome]]()
            for one in lost[start : start + PAGE]:
                location = one.file.location
                if one.has_another_path:
                    edits.append(Edit(one.track_id, without_file(location)))
                elif self._forget and self._is_surely_gone(one.file):
                    edits.append(Edit(one.track_id, without_file(location)))
                    outcomes.append((location, Outcome.FORGOTTEN))
                elif one.file.missing_since is None:
                    edits.append(Edit(one.track_id, with_mark(location, since)))
                    outcomes.append((location, Outcome.MISSING))
            await asyncio.to_thread(self._library.write, edits)
            for location, outcome in outcomes:
                self._note(location, outcome)

    def _settle_displaced(self, begun: datetime) -> list[tuple[str, Outcome]]:
        """Report, or remove, files replaced at their location and found nowhere else.

        A file that failed in this pass may be such a file, moved; then a later pass removes it.
        """
        edits, outcomes = list[Edit](), list[tuple[str, Outcome]]()
        for track_id, location in sorted(self._entries.displaced):
            track = self._library.get(track_id)
            for file in track.files if track is not None else ():
                if file.location != location or file.missing_since is None:
                    continue
                is_new = file.missing_since >= begun
                if self._forget and not (is_new and self.report.has_failed):
                    edits.append(Edit(track_id, without_file(location)))
                    outcomes.append((location, Outcome.FORGOTTEN))
                elif is_new:
                    outcomes.append((location, Outcome.MISSING))
        if edits:
            self._library.write(edits)
        return outcomes

    def _is_surely_gone(self, file: TrackFile) -> bool:
        """Whether a file that was not listed may be removed from the library.

        A file that failed in this pass may be this one, moved; and a bucket may have received files
        after it was listed. In these cases an earlier scan must have missed it, too.
        """
        if file.location.startswith("s3://") or self.report.has_failed:
            return file.missing_since is not None and not os.path.lexists(file.location)
        return not os.path.lexists(file.location)

    def _note(self, location: str, outcome: Outcome) -> None:
        self.report.note(outcome)
        self._tell(location, outcome)

    def _fail(self, location: str, message: str) -> None:
        self.report.fail(Trouble(location, message))
        self._tell(location, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Gone:
    """A file of a track that was not listed at its location.

    Attributes:
        has_another_path: Whether it still exists, and was listed through another link.
    """

    track_id: str
    file: TrackFile
    has_another_path: bool


def gone_from(
    library: Library, place: Place, listed: Sequence[Found | Trouble], seen: Collection[str]
) -> list[Gone]:
    """Find files that were in a place but not listed; what could not be listed is not gone.

    Args:
        library: The library with the tracks.
        place: Where they were.
        listed: What is there now.
        seen: Locations of all files found, in this place and others.

    Returns:
        The files that are gone, including those already marked as missing.
    """
    unseen = {one.location for one in listed if isinstance(one, Trouble)}
    below_unseen = tuple(os.path.join(location, "") for location in unseen)
    away = (
        location
        for location in library.locations(place.root)
        if place.holds(location)
        and location not in seen
        and location not in unseen
        and not location.startswith(below_unseen)
    )
    lost = (
        Gone(track.track_id, file, _has_another_path(track, file, seen))
        for location in away
        for track in library.of_term(location_term(location), OPERATOR)
        for file in track.files
        if file.location == location and file.place is Kind.PATH
    )
    # A file that was named itself, with an extension that folders are not searched for, exists.
    return [one for one in lost if one.has_another_path or not os.path.isfile(one.file.location)]


def without_audio(
    place: Place, listed: Sequence[Found | Trouble], lost: Sequence[Gone], *, forget: bool
) -> Trouble | None:
    """Return what is wrong with a place without audio, unless it was said to be deleted."""
    if any(isinstance(one, Found) for one in listed) or (lost and forget):
        return None
    if lost:
        return Trouble(lost[0].file.location, NOTHING_FOUND.format(n=len(lost)))
    return None if listed else Trouble(place.root, NO_AUDIO)


def _has_another_path(track: LibraryTrack, file: TrackFile, seen: Collection[str]) -> bool:
    try:
        return any(
            other.location in seen and os.path.samefile(other.location, file.location)
            for other in track.files
        )
    except OSError:
        return False


def found_in(listed: Iterable[tuple[Place, Sequence[Found | Trouble]]]) -> set[str]:
    """Return the locations of all files found."""
    return {one.location for _, of_place in listed for one in of_place if isinstance(one, Found)}
