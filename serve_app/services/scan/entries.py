"""Enters analysed files into the library: from a scan, and from a back-fill.

Invariant: one recording is one track, even if several files of it are entered together.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipelines.analysis.records import TrackFeatures
from serve_app.checkpoints.choice import models_name
from serve_app.library.edit import Edit, Heard
from serve_app.library.library import Library
from serve_app.library.rows import audio_term, content_term, location_term
from serve_app.library.track import OPERATOR, LibraryTrack, Place, TrackFile, new_track_id
from serve_app.providers.tags.identity import TaggedIdentity
from serve_app.services.scan.changes import FileOf, displaced, now
from serve_app.services.scan.facts import holds_audio
from serve_app.services.scan.places import Found
from serve_app.services.scan.report import Outcome
from serve_app.services.scan.same import SameRecording, are_near, may_be_same

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint


@dataclass(frozen=True, slots=True)
class Hearing:
    """An analysis's result: the full record, and what identifies the recording.

    Attributes:
        fingerprint: Chromaprint of the beginning.
        landmarks: None if the scan has to make them.
    """

    features: TrackFeatures
    fingerprint: str | None
    landmarks: "Fingerprint | None" = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A file that was read.

    Attributes:
        hearing: None if its audio is known and was not analysed again.
        at_hand: Returns a path to read it from, as `serve_app.services.scan.places.Place`.
    """

    file: TrackFile
    named: TaggedIdentity
    hearing: Hearing | None
    at_hand: Callable[[], AbstractContextManager[Path]]


class Entries:
    """What the library knows of files, and the only way to enter files into it.

    Attributes:
        displaced: Tracks with a location each where another recording has replaced their file.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._same = SameRecording(library)
        self.displaced: set[tuple[str, str]] = set()

    def at(self, location: str) -> tuple[LibraryTrack | None, TrackFile | None]:
        """Return the track that has a file at a location, and that file."""
        known = [
            (track, file)
            for track in self._library.of_term(location_term(location), OPERATOR)
            for file in track.files
            if file.location == location
        ]
        known.sort(key=lambda one: one[1].missing_since is not None)
        self.displaced |= {(track.track_id, location) for track, _ in known[1:]}
        return known[0] if known else (None, None)

    def twin(self, file: TrackFile) -> LibraryTrack | None:
        """Return the track that has a file of the same bytes, or of the same audio."""
        terms = []
        if file.content_sha256 is not None:
            terms.append(content_term(file.content_sha256))
        if file.audio_sha256 is not None:
            terms.append(audio_term(file.audio_sha256))
        for term in terms:
            for track in self._library.of_term(term, OPERATOR):
                return track
        return None

    def enter(self, taken: Sequence[Taken]) -> list[tuple[str, Outcome]]:
        """Write files and their analyses; return each one's track and outcome.

        Raises:
            OSError: The library cannot be written; what it has confirmed is kept.
            LibraryBusyError: Likewise.
        """
        with self._library.turn():  # otherwise two scans would make two tracks of one file
            return self._entered(taken)

    def _entered(self, taken: Sequence[Taken]) -> list[tuple[str, Outcome]]:
        edits: list[Edit] = []
        outcomes, added = [], list[tuple[Taken, NDArray[np.float32]]]()
        for one in taken:
            twin = self.twin(one.file)
            if twin is None:
                sound = np.array(one.hearing.features.embedding if one.hearing else (), np.float32)
                if any(_may_be_one(one, sound, *other) for other in added):
                    # Only once written does it show whether they are one recording.
                    self._library.write(edits)
                    edits, added = [], []
                    twin = self.twin(one.file)
                added.append((one, sound))
            of_file, heard, outcome = self._decide(one, twin)
            edits.append(Edit(of_file.track_id, of_file.change(), heard))
            location = one.file.location
            for other in self._library.of_term(location_term(location), OPERATOR):
                if other.track_id != of_file.track_id:
                    edits.append(Edit(other.track_id, displaced(location, now())))
                    self.displaced.add((other.track_id, location))
            outcomes.append((of_file.track_id, outcome))
        self._library.write(edits)
        return outcomes

    def _decide(
        self, one: Taken, twin: LibraryTrack | None
    ) -> tuple[FileOf, Heard | None, Outcome]:
        file = _with_level(one, twin)
        heard, fingerprint, joined = None, None, None
        if one.hearing is not None:
            features, fingerprint = one.hearing.features, one.hearing.fingerprint
            heard = Heard(features, models_name(features.models))
            if twin is None:
                joined = self._same.find(one.named, features, one.at_hand)
        if joined is not None:
            return FileOf(joined, file, one.named, is_another=True), None, Outcome.JOINED
        if twin is None:
            of_file = FileOf(new_track_id(), file, one.named, fingerprint=fingerprint)
            return of_file, heard, Outcome.ADDED
        copies = [other for other in twin.files if _is_copy(other, file)]
        gone = [other.location for other in copies if _is_gone(other, file)]
        here = [other for other in twin.files if other.location == file.location]
        of_file = FileOf(
            *(twin.track_id, file, one.named, gone),
            is_another=not gone and not here,
            fingerprint=fingerprint,
        )
        if heard is not None:
            return of_file, heard, Outcome.ANALYSED
        if gone:
            return of_file, None, Outcome.FOLLOWED
        return of_file, None, _seen_again(here[0], file) if here else Outcome.JOINED


def _seen_again(known: TrackFile, file: TrackFile) -> Outcome:
    """Return the outcome for a file whose audio was already known at its location."""
    if known.content_sha256 != file.content_sha256:
        return Outcome.RETAGGED
    return Outcome.UNCHANGED if known.missing_since is None else Outcome.RETURNED


def _with_level(one: Taken, twin: LibraryTrack | None) -> TrackFile:
    """Return a file with its own level: as measured, else that of a file with the same audio."""
    level: TrackFeatures | TrackFile = one.file
    if one.hearing is not None:
        level = one.hearing.features
    elif twin is not None:
        levelled = (file for file in twin.files if file.loudness_lufs is not None)
        same = (file for file in levelled if file.audio_sha256 == one.file.audio_sha256)
        level = next(same, one.file)
    return replace(one.file, loudness_lufs=level.loudness_lufs, true_peak_dbtp=level.true_peak_dbtp)


def _may_be_one(
    one: Taken, sound: NDArray[np.float32], other: Taken, its_sound: NDArray[np.float32]
) -> bool:
    """Whether two files may be of one track, so that they must be written one after another."""
    digests = {one.file.content_sha256, one.file.audio_sha256} - {None}
    if digests & {other.file.content_sha256, other.file.audio_sha256}:
        return True
    if one.hearing is None or other.hearing is None:
        return False
    heard, there = one.hearing.features, other.hearing.features
    return may_be_same(one.named, heard.duration_s, other.named, there.duration_s) and are_near(
        sound, its_sound
    )


def kind_of(location: str) -> Place:
    """Return the kind of place that a location names."""
    return Place.URL if location.startswith(("http://", "https://")) else Place.PATH


def is_as_listed(file: TrackFile, found: Found) -> bool:
    """Whether a known file has the listed size and times of change.

    Programs that write tags may preserve size and ``mtime``, but not ``ctime``.
    """
    if None not in (file.ctime_ns, found.ctime_ns) and file.ctime_ns != found.ctime_ns:
        return False
    return (file.size_bytes, file.mtime_ns) == (found.size_bytes, found.mtime_ns)


def _is_copy(file: TrackFile, other: TrackFile) -> bool:
    """Whether two files of a track have the same audio; another encoding of it is no copy."""
    return file.content_sha256 == other.content_sha256 or file.audio_sha256 == other.audio_sha256


def _is_gone(file: TrackFile, found: TrackFile) -> bool:
    """Whether a known file is no longer where it was, so that the one found is that file, moved."""
    if file.location == found.location or file.place is not Place.PATH:
        return False
    if file.location.startswith("s3://"):
        return False
    path = Path(file.location)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    if not S_ISREG(status.st_mode):
        return True
    there = Found(file.location, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if is_as_listed(file, there):
        return False
    return not holds_audio(path, file.audio_sha256)
