"""The local fingerprint index: finds which track a clip is of, without any external service."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.hashes import QueryHashes, query_hashes
from models.fingerprint.landmarks import FRAME_S, CloserLook, Fingerprint
from models.fingerprint.subfingerprints import HOP_FRAMES
from models.fingerprint.support import Contrast, contrast, supports, surroundings
from serve_app.providers.fingerprints.comparison import Compared, compare
from serve_app.providers.fingerprints.confidence import (
    evidence_confidence,
    likeness_confidence,
    votes_confidence,
)
from serve_app.providers.fingerprints.manifest import (
    FILE_NAME,
    DamagedIndexError,
    Manifest,
    NoIndexError,
    read_manifest,
)
from serve_app.providers.fingerprints.segment import Segment
from serve_app.providers.fingerprints.votes import (
    N_CANDIDATES,
    Candidate,
    find_candidates,
)

MOST_POSTINGS = 125_000
"""Postings read per segment and look-up, of the rarest hashes. Against 100,000 tracks, half as many
named as many clips, and eight times as many would take twice the time."""
N_MATCHES = 5
SURE = 90
"""Percent. If votes give less, dense landmarks are looked up too, and the evidence decides; if that
gives less, too, the clip is compared with all tracks. If votes give at least this, the evidence
still checks it."""


@dataclass(frozen=True, slots=True)
class IndexMatch:
    """A track that a clip may be of.

    Attributes:
        track_key: The track's key, as added.
        score: Triplets of the clip that fit.
        spans: Half-seconds of the clip that they begin in.
        support: By how many deviations the clip's evidence is larger there than elsewhere in the
            track; 0 if it was not weighed.
        offset_s: Where in the track the clip begins.
        speed: Playback speed of the clip; 1 is the track's own.
        confidence: Probability in percent that the clip is of this track, 0 to 100.
        likeness: By how many deviations the clip's band changes are more like the track's there
            than is usual in this index and in the track; 0 if they were not compared.
    """

    track_key: str
    score: int
    spans: int
    support: float
    offset_s: float
    speed: float
    confidence: int
    likeness: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """A track's best candidate in one look-up; `start` is the track's place on the timeline."""

    key: str
    candidate: Candidate
    segment: Segment
    start: float


def _match(
    found: Found, support: float | None, confidence: int, likeness: float = 0.0
) -> IndexMatch:
    candidate = found.candidate
    return IndexMatch(
        track_key=found.key,
        score=candidate.votes,
        spans=candidate.spans,
        support=support or 0.0,
        offset_s=round((candidate.offset - found.start) * FRAME_S, 3),
        speed=round(1 + candidate.speed, 4),
        confidence=confidence,
        likeness=likeness,
    )


def best_matches(matches: Iterable[IndexMatch]) -> list[IndexMatch]:
    """Return the best matches, each track once, with its highest confidence."""
    ranked = sorted(matches, key=lambda match: (-match.confidence, -match.support, -match.score))
    of_track: dict[str, IndexMatch] = {}
    for match in ranked:
        of_track.setdefault(match.track_key, match)
    return list(of_track.values())[:N_MATCHES]


def _found(compared: Compared) -> Found:
    """Return the place of a comparison as a candidate without votes."""
    segment = compared.segment
    start = float(segment.track_starts[compared.track])
    offset = start + compared.place * HOP_FRAMES
    candidate = Candidate(votes=0, spans=0, offset=offset, position=int(offset), speed=0.0)
    return Found(segment.keys[compared.track], candidate, segment, start)


def _supports(found: list[Found], evidence: NDArray[np.int8]) -> list[float | None]:
    """Return the support of every place found; None if there is too little to compare."""
    return supports([_contrast(one, evidence) for one in found])


def _contrast(found: Found, evidence: NDArray[np.int8]) -> Contrast | None:
    offset, speed = found.candidate.offset, found.candidate.speed
    around = surroundings(offset, speed, evidence.shape[1])
    try:
        landmarks = found.segment.landmarks.around(*around)
    except ValueError as error:
        raise DamagedIndexError(found.segment.folder.parent, error) from error
    return contrast(evidence, *landmarks, offset, speed)


class FingerprintIndex:
    """An index folder, opened for reading; threads may share it.

    The segments are memory-mapped, so replicas on one machine share them in the page cache.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] = (0, 0)
        self._manifest = Manifest()
        self._segments: tuple[tuple[Segment, frozenset[int]], ...] = ()
        self.refresh()

    @classmethod
    def open(cls, folder: Path) -> "FingerprintIndex":
        """Open an index.

        Raises:
            FingerprintIndexError: There is no index, or it is damaged or does not fit this version.
        """
        return cls(folder)

    @property
    def n_tracks(self) -> int:
        """The number of tracks that can be found."""
        return self._manifest.n_tracks

    @property
    def size_bytes(self) -> int:
        """Size of all segments on disk."""
        return sum(segment.size_bytes for segment, _ in self._segments)

    def keys(self) -> set[str]:
        """Return the keys of all tracks that can be found."""
        return {
            key
            for segment, dropped in self._segments
            for number, key in enumerate(segment.keys)
            if number not in dropped
        }

    def refresh(self) -> bool:
        """Load what a builder has committed since; return whether there was anything.

        Raises:
            FingerprintIndexError: The index is gone, or is damaged or does not fit this version.
        """
        with self._lock:
            while (stamp := self._current_stamp()) != self._stamp:
                manifest = read_manifest(self._folder)
                open_already = {s.folder.name: s for s, _ in self._segments}
                try:
                    self._segments = tuple(
                        (
                            open_already.get(e.name) or Segment(self._folder / e.name),
                            frozenset(e.dropped),
                        )
                        for e in manifest.segments
                    )
                except (FileNotFoundError, ValueError) as error:
                    if stamp != self._current_stamp():
                        continue  # merged away between the two reads
                    raise DamagedIndexError(self._folder, error) from error
                self._manifest, self._stamp = manifest, stamp
                return True
            return False

    def warm(self) -> None:
        """Read all segments into memory; see `Segment.warm`."""
        for segment, _ in self._segments:
            segment.warm()

    def query(self, fingerprint: Fingerprint, closer: CloserLook) -> list[IndexMatch]:
        """Find the tracks that a clip may be of.

        Args:
            fingerprint: Of a clip of 3 to 12 s.
            closer: Checks results that the votes make certain, and settles doubts.

        Returns:
            At most `N_MATCHES`, best first; empty for silence.
        """
        found = self.look_up(query_hashes(fingerprint))
        by_votes = self.by_votes(found, closer.evidence)
        if by_votes and by_votes[0].confidence >= SURE:
            return by_votes
        again = self.look_up(query_hashes(closer.landmarks, is_dense=True))
        by_evidence = self.by_evidence([*found, *again], closer.evidence)
        if by_evidence and by_evidence[0].confidence >= SURE:
            return by_evidence
        return best_matches([*by_evidence, *self.by_likeness(closer)])

    def by_votes(self, found: list[Found], evidence: NDArray[np.int8]) -> list[IndexMatch]:
        """Weigh a look-up's results by votes; evidence may lower those that are certain."""
        matches = [(one, self._by_votes(one)) for one in found]
        sure = [one for one, match in matches if match.confidence >= SURE]
        doubtful = [match for _, match in matches if match.confidence < SURE]
        return best_matches([*doubtful, *map(self._by_votes, sure, _supports(sure, evidence))])

    def by_evidence(self, found: list[Found], evidence: NDArray[np.int8]) -> list[IndexMatch]:
        """Weigh look-ups' results by a clip's evidence, or by votes if it says nothing."""
        length_s = evidence.shape[1] * FRAME_S
        return best_matches(
            self._by_votes(one) if support is None else self._by_support(one, support, length_s)
            for one, support in zip(found, _supports(found, evidence), strict=True)
        )

    def by_likeness(self, closer: CloserLook) -> list[IndexMatch]:
        """Compare a clip's band changes with those of all tracks, and weigh the best places."""
        compared = compare(self._segments, closer.changes)[:N_MATCHES]
        found = [_found(one) for one in compared]
        return [
            self._by_likeness(one, support, likeness)
            for one, support, likeness in zip(
                found,
                _supports(found, closer.evidence),
                [one.likeness for one in compared],
                strict=True,
            )
        ]

    def _by_likeness(self, found: Found, support: float | None, likeness: float) -> IndexMatch:
        confidence = likeness_confidence(likeness, support or 0.0, self.n_tracks)
        return _match(found, support, confidence, likeness)

    def _by_votes(self, found: Found, support: float | None = None) -> IndexMatch:
        votes, spans = found.candidate.votes, found.candidate.spans
        return _match(found, support, votes_confidence(votes, spans, self.n_tracks, support))

    def _by_support(self, found: Found, support: float, length_s: float) -> IndexMatch:
        spans = found.candidate.spans
        return _match(found, support, evidence_confidence(support, spans, length_s, self.n_tracks))

    def look_up(self, wanted: QueryHashes) -> list[Found]:
        """Return the best candidates of tracks, each track once, by descending votes.

        Raises:
            FingerprintIndexError: The index is damaged.
        """
        of_track: dict[str, Found] = {}
        for segment, dropped in self._segments:
            try:
                hits = segment.look_up(wanted.hashes, MOST_POSTINGS)
            except ValueError as error:
                raise DamagedIndexError(self._folder, error) from error
            candidates = find_candidates(hits.positions, wanted.triplets[hits.rows], wanted.frames)
            tracks = segment.track_of(np.array([c.position for c in candidates], np.int64))
            for candidate, track in zip(candidates, tracks.tolist(), strict=True):
                key = segment.keys[track]
                known = of_track.get(key)
                if track in dropped or (known and known.candidate.votes >= candidate.votes):
                    continue
                of_track[key] = Found(key, candidate, segment, float(segment.track_starts[track]))
        ranked = sorted(of_track.values(), key=lambda one: -one.candidate.votes)
        return ranked[:N_CANDIDATES]

    def _current_stamp(self) -> tuple[int, int]:
        try:
            status = (self._folder / FILE_NAME).stat()
        except FileNotFoundError as error:
            raise NoIndexError(self._folder) from error
        return status.st_mtime_ns, status.st_ino
