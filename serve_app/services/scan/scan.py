"""Bring the files of some places into the library, and follow what became of them.

Invariant: a file is analysed once, however often it is copied, moved or retagged. What the library
has confirmed stays, whenever the scan ends; nothing is done by halves.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.analysis.records import TrackFeatures
from pipelines.audio.waveform import AudioError
from serve_app.checkpoints.choice import models_name
from serve_app.domain.errors import AfaError
from serve_app.library.edit import Edit, Heard
from serve_app.library.library import Library
from serve_app.library.rows import audio_term, content_term, location_term
from serve_app.library.track import OPERATOR, LibraryTrack, TrackFile, new_track_id
from serve_app.library.track import Place as Kind
from serve_app.providers.tags.identity import TaggedIdentity
from serve_app.services.scan.changes import FileOf, now, with_mark, without_file
from serve_app.services.scan.facts import Facts, FileChangedError, Stamp, hash_bytes
from serve_app.services.scan.landmarks import LandmarkIndex
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import Found, Place, Trouble
from serve_app.services.scan.report import Outcome, ScanReport
from serve_app.services.scan.same import MAX_DIFFERENCE_S, SameRecording

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint

MAX_TOGETHER = 64
"""Files in one commit, which waits for none: what came while the last was written goes together."""

READ_AHEAD = 2
"""Files that are read while others are analysed."""

PAGE = 500


@dataclass(frozen=True, slots=True)
class Hearing:
    """What an analysis gave: the whole record, and what tells the recording from others.

    Attributes:
        fingerprint: Chromaprint of its beginning.
        landmarks: None where the scan has to make them.
    """

    features: TrackFeatures
    fingerprint: str | None
    landmarks: "Fingerprint | None" = None


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
class _Taken:
    """A file that was read, and what the library is to learn of it."""

    found: Found
    facts: Facts
    named: TaggedIdentity
    path: Path
    twin: LibraryTrack | None
    hearing: Hearing | None
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
    ) -> None:
        """Prepare a pass.

        Args:
            library: Where the tracks go; they are the operator's.
            engine: What analyses.
            naming: Who tracks are.
            landmarks: Knows tracks by their sound.
            tell: Called with the location and what became of each file.
            again: Analyse what is known, too.
        """
        self._library, self._engine, self._naming = library, engine, naming
        self._landmarks = landmarks
        self._same = SameRecording(library)
        self._tell, self._again = tell, again
        self.report = ScanReport()
        self._taken: asyncio.Queue[_Taken] = asyncio.Queue()
        self._in_work: dict[str, asyncio.Future[None]] = {}

    async def run(self, listed: Sequence[tuple[Place, Sequence[Found | Trouble]]]) -> None:
        """Take up what was listed, and mark what is no longer there.

        Raises:
            OSError: The library cannot be written; what it had confirmed is kept.
            LibraryBusyError: Likewise.
        """
        await asyncio.to_thread(self._library.follow)
        writer = asyncio.create_task(self._write())
        takers = asyncio.create_task(self._take_all(listed))
        try:
            await asyncio.wait({writer, takers}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
            await takers
        finally:
            takers.cancel()
            await asyncio.gather(takers, return_exceptions=True)
            # Whatever has been heard is written, also when the scan is stopped.
            await self._write_waiting()
            writer.cancel()
            await asyncio.to_thread(self._landmarks.commit)
        for place, found in listed:
            await self._mark_missing(place, found)

    async def _take_all(self, listed: Sequence[tuple[Place, Sequence[Found | Trouble]]]) -> None:
        todo = iter([(place, one) for place, found in listed for one in found])
        async with asyncio.TaskGroup() as takers:
            for _ in range(self._engine.n_at_once + READ_AHEAD):
                takers.create_task(self._take(todo))

    async def _take(self, todo: Iterable[tuple[Place, Found | Trouble]]) -> None:
        for place, one in todo:
            if isinstance(one, Trouble):
                self._fail(one.location, one.message)
                continue
            try:
                await self._take_up(place, one)
            except (AudioError, AfaError, FileChangedError) as error:
                self._fail(one.location, str(error))
            except OSError as error:
                self._fail(one.location, error.strerror or str(error))

    async def _take_up(self, place: Place, found: Found) -> None:
        known, file = self._at(found.location)
        if known is not None and file is not None and self._is_as_before(known, file, found):
            await self._still_there(known, file)
            if self._landmarks.lacks(known.track_id):
                with place.at_hand(found) as path:
                    made_up_for = await asyncio.to_thread(self._landmarks.hear, path)
                await asyncio.to_thread(self._landmarks.put, known.track_id, made_up_for)
            return
        with place.at_hand(found) as path:
            stamp = Stamp.of(path)
            content_sha256 = await asyncio.to_thread(hash_bytes, path)
            facts = await asyncio.to_thread(Facts.of, path, content_sha256)
            named = await asyncio.to_thread(
                self._naming.name, facts.tags, path, Path(found.location)
            )
            while (other := self._in_work.get(facts.audio_sha256)) is not None:
                await asyncio.wait([other])  # a copy is being analysed
            twin = self._twin(facts)
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._in_work[facts.audio_sha256] = written
            try:
                hearing = None
                if twin is None or twin.analysis is None or self._again:
                    hearing = await self._engine.hear(path)
                landmarks = None if hearing is None else hearing.landmarks
                if landmarks is None and (twin is None or self._landmarks.lacks(twin.track_id)):
                    landmarks = await asyncio.to_thread(self._landmarks.hear, path)
                stamp.check(path)
                self._taken.put_nowait(
                    _Taken(found, facts, named, path, twin, hearing, landmarks, written)
                )
                await asyncio.shield(written)
            finally:
                self._in_work.pop(facts.audio_sha256)
                written.cancel()

    def _at(self, location: str) -> tuple[LibraryTrack | None, TrackFile | None]:
        for track in self._library.of_term(location_term(location), OPERATOR):
            for file in track.files:
                if file.location == location:
                    return track, file
        return None, None

    def _is_as_before(self, track: LibraryTrack, file: TrackFile, found: Found) -> bool:
        is_same = (file.size_bytes, file.mtime_ns) == (found.size_bytes, found.mtime_ns)
        return is_same and track.analysis is not None and not self._again

    async def _still_there(self, track: LibraryTrack, file: TrackFile) -> None:
        if file.missing_since is None:
            self._note(file.location, Outcome.UNCHANGED)
            return
        edit = Edit(track.track_id, with_mark(file.location, None))
        await asyncio.to_thread(self._library.write, [edit])
        self._note(file.location, Outcome.RETURNED)

    def _twin(self, facts: Facts) -> LibraryTrack | None:
        for term in (content_term(facts.content_sha256), audio_term(facts.audio_sha256)):
            for track in self._library.of_term(term, OPERATOR):
                return track
        return None

    async def _write(self) -> None:
        while True:
            first = await self._taken.get()
            self._taken.put_nowait(first)
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        taken: list[_Taken] = []
        while not self._taken.empty() and len(taken) < MAX_TOGETHER:
            taken.append(self._taken.get_nowait())
        if taken:
            outcomes = await asyncio.to_thread(self._store, taken)
            for one, outcome in zip(taken, outcomes, strict=True):
                self._note(one.found.location, outcome)
                if not one.written.done():
                    one.written.set_result(None)

    def _store(self, taken: Sequence[_Taken]) -> list[Outcome]:
        edits: list[Edit] = []
        outcomes, track_ids, added_s = [], list[str](), list[float]()
        for one in taken:
            if one.hearing is not None and one.twin is None:
                duration_s = one.hearing.features.duration_s
                if any(abs(duration_s - other_s) <= MAX_DIFFERENCE_S for other_s in added_s):
                    # They may be one recording, which only what is written tells.
                    self._library.write(edits)
                    edits, added_s = [], []
                added_s.append(duration_s)
            of_file, heard, outcome = self._decide(one)
            edits.append(Edit(of_file.track_id, of_file.change(), heard))
            edits += [
                Edit(other.track_id, without_file(one.found.location))
                for other in self._library.of_term(location_term(one.found.location), OPERATOR)
                if other.track_id != of_file.track_id
            ]
            outcomes.append(outcome)
            track_ids.append(of_file.track_id)
        self._library.write(edits)
        for track_id, one in zip(track_ids, taken, strict=True):
            if one.landmarks is not None and self._landmarks.lacks(track_id):
                self._landmarks.put(track_id, one.landmarks)
        return outcomes

    def _decide(self, one: _Taken) -> tuple[FileOf, Heard | None, Outcome]:
        file = TrackFile(
            Kind.PATH,
            one.found.location,
            one.facts.content_sha256,
            one.facts.audio_sha256,
            one.found.size_bytes,
            one.found.mtime_ns,
        )
        heard, fingerprint, joined = None, None, None
        if one.hearing is not None:
            features, fingerprint = one.hearing.features, one.hearing.fingerprint
            heard = Heard(features, models_name(features.models))
            if one.twin is None:
                joined = self._same.find(one.named, features, one.path)
        if joined is not None:
            return FileOf(joined, file, one.named, is_another=True), None, Outcome.JOINED
        if one.twin is None:
            of_file = FileOf(new_track_id(), file, one.named, fingerprint=fingerprint)
            return of_file, heard, Outcome.ADDED
        gone = [other.location for other in one.twin.files if _is_gone(other, one.found)]
        is_here = any(other.location == one.found.location for other in one.twin.files)
        of_file = FileOf(
            *(one.twin.track_id, file, one.named, gone),
            is_another=not gone and not is_here,
            fingerprint=fingerprint,
        )
        if heard is not None:
            return of_file, heard, Outcome.ANALYSED
        if gone:
            return of_file, None, Outcome.FOLLOWED
        return of_file, None, Outcome.RETAGGED if is_here else Outcome.JOINED

    async def _mark_missing(self, place: Place, listed: Sequence[Found | Trouble]) -> None:
        """Mark what lay in a place, unless something of the place could not be looked at."""
        seen = {one.location for one in listed}
        lost = [
            (track.track_id, file.location)
            for track in await asyncio.to_thread(lambda: list(self._library.all([OPERATOR])))
            for file in track.files
            if file.missing_since is None
            and file.place is Kind.PATH
            and place.holds(file.location)
            and file.location not in seen
        ]
        if not lost:
            return
        if not any(isinstance(one, Found) for one in listed):
            self._fail(lost[0][1], f"nothing is found where {len(lost)} files were; is it mounted?")
            return
        unseen = [one.location for one in listed if isinstance(one, Trouble)]
        since = now()
        lost = [(of, at) for of, at in lost if not any(at.startswith(gone) for gone in unseen)]
        for start in range(0, len(lost), PAGE):
            part = lost[start : start + PAGE]
            edits = [Edit(track_id, with_mark(location, since)) for track_id, location in part]
            await asyncio.to_thread(self._library.write, edits)
            for _, location in part:
                self._note(location, Outcome.MISSING)

    def _note(self, location: str, outcome: Outcome) -> None:
        self.report.note(outcome)
        self._tell(location, outcome)

    def _fail(self, location: str, message: str) -> None:
        self.report.fail(Trouble(location, message))
        self._tell(location, Outcome.FAILED)


def _is_gone(file: TrackFile, found: Found) -> bool:
    """Whether a known file is no longer where it was, so that the one found is that file, moved."""
    if file.location == found.location or file.place is not Kind.PATH:
        return False
    return not file.location.startswith("s3://") and not Path(file.location).exists()
