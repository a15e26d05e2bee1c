"""The local fingerprint index: which track a clip is of, without asking anybody."""

import math
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.hashes import QueryHashes, query_hashes
from models.fingerprint.landmarks import FRAME_S, CloserLook, Fingerprint
from serve_app.providers.fingerprints.manifest import (
    FILE_NAME,
    FingerprintIndexError,
    Manifest,
    NoIndexError,
    read_manifest,
)
from serve_app.providers.fingerprints.segment import Segment
from serve_app.providers.fingerprints.support import support
from serve_app.providers.fingerprints.votes import (
    N_CANDIDATES,
    Candidate,
    find_candidates,
)

MOST_POSTINGS = 1_000_000
"""Postings read per segment and query; a clip of few, frequent sounds would otherwise read all."""
N_MATCHES = 5
SURE = 90
"""Percent below which a clip's dense landmarks are looked up too."""


@dataclass(frozen=True, slots=True)
class IndexMatch:
    """A track that a clip may be of.

    Attributes:
        track_key: As it was added.
        score: Triplets of the clip that fit.
        spans: Half-seconds of the clip that they begin in.
        support: By how many deviations the clip's evidence is larger there than elsewhere in the
            track.
        offset_s: Where in the track the clip begins.
        speed: Playback speed of the clip; 1 is the track's own.
        confidence: Probability in percent that the clip is of this track, 0 to 100.
    """

    track_key: str
    score: int
    spans: int
    support: float
    offset_s: float
    speed: float
    confidence: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic regression on what speaks for a candidate.

    Every track of the index is one more that may resemble the clip by so much, so the odds fall in
    proportion to their number.

    Attributes:
        bias: Log odds of nothing in an index of one track.
        spans: Weight of the logarithm of one more than the half-seconds with votes.
        support: Weight of the evidence's deviations, of `MOST_SUPPORT` at most.
    """

    bias: float
    spans: float
    support: float

    def confidence(self, spans: int, support: float, n_tracks: int) -> int:
        """Percent, rounded down, so that 100 is never claimed."""
        odds = (
            self.bias
            + self.spans * math.log1p(spans)
            + self.support * min(support, MOST_SUPPORT)
            - math.log(max(n_tracks, 1))
        )
        return int(100 / (1 + math.exp(-max(min(odds, 30.0), -30.0))) - 1e-6)


MOST_SUPPORT = 12.0
CALIBRATION = Calibration(bias=-7.3, spans=4.0, support=1.06)
"""Fitted to clips of 93 indexed and 91 unknown real tracks (-6.8), and moved towards caution: music
that shares a sound with a track is rarer there than in the world."""


def best_of(first: list[IndexMatch], again: list[IndexMatch]) -> list[IndexMatch]:
    """Join two looks' matches, each track once, as surely as it was found."""
    joined: dict[str, IndexMatch] = {}
    for match in _by_confidence([*first, *again]):
        joined.setdefault(match.track_key, match)
    return list(joined.values())[:N_MATCHES]


def _by_confidence(matches: list[IndexMatch]) -> list[IndexMatch]:
    return sorted(matches, key=lambda match: (-match.confidence, -match.support, -match.score))


@dataclass(frozen=True, slots=True)
class _Found:
    """A track's best candidate in one look-up; `start` is the track's place on the timeline."""

    key: str
    candidate: Candidate
    segment: Segment
    start: float


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
            FingerprintIndexError: There is none, or it does not fit this version.
        """
        return cls(folder)

    @property
    def n_tracks(self) -> int:
        """Tracks that can be found."""
        return self._manifest.n_tracks

    @property
    def size_bytes(self) -> int:
        """Size of all segments on disk."""
        return sum(segment.size_bytes for segment, _ in self._segments)

    def keys(self) -> set[str]:
        """The keys of all tracks that can be found."""
        return {
            key
            for segment, dropped in self._segments
            for number, key in enumerate(segment.keys)
            if number not in dropped
        }

    def refresh(self) -> bool:
        """Take up what a builder has committed since; tells whether there was anything.

        Raises:
            FingerprintIndexError: The index is gone or does not fit this version.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                stamp = self._current_stamp()
                if stamp == self._stamp:
                    return False
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
                except FileNotFoundError:
                    continue  # merged away between the two reads
                self._manifest, self._stamp = manifest, stamp
                return True
            raise FingerprintIndexError(f"{self._folder} changes too fast to be opened.")

    def warm(self) -> None:
        """Read all segments into memory; see `Segment.warm`."""
        for segment, _ in self._segments:
            segment.warm()

    def query(self, fingerprint: Fingerprint, closer: CloserLook) -> list[IndexMatch]:
        """Find the tracks that a clip may be of.

        Args:
            fingerprint: Of a clip of 3 to 12 s.
            closer: Its evidence, and its dense landmarks, looked up where the fingerprint leaves a
                doubt.

        Returns:
            At most `N_MATCHES`, best first; empty for silence.
        """
        first = self.look(query_hashes(fingerprint), closer.evidence)
        if first and first[0].confidence >= SURE:
            return first
        again = self.look(query_hashes(closer.landmarks, is_dense=True), closer.evidence)
        return best_of(first, again)

    def look(self, wanted: QueryHashes, evidence: NDArray[np.int8]) -> list[IndexMatch]:
        """Look up hashes once, and weigh by the evidence what they find; see `query`."""
        found = sorted(self._look_up(wanted).values(), key=lambda one: -one.candidate.votes)
        return _by_confidence([self._weighed(one, evidence) for one in found[:N_CANDIDATES]])[
            :N_MATCHES
        ]

    def _look_up(self, wanted: QueryHashes) -> dict[str, _Found]:
        """Give each track's best candidate, by its key."""
        best: dict[str, _Found] = {}
        for segment, dropped in self._segments:
            hits = segment.look_up(wanted.hashes, MOST_POSTINGS)
            candidates = find_candidates(hits.positions, wanted.triplets[hits.rows], wanted.frames)
            tracks = segment.track_of(np.array([c.position for c in candidates], np.int64))
            for candidate, track in zip(candidates, tracks.tolist(), strict=True):
                key = segment.keys[track]
                known = best.get(key)
                if track in dropped or (known and known.candidate.votes >= candidate.votes):
                    continue
                best[key] = _Found(key, candidate, segment, float(segment.track_starts[track]))
        return best

    def _weighed(self, found: _Found, evidence: NDArray[np.int8]) -> IndexMatch:
        candidate = found.candidate
        supported = support(evidence, found.segment.landmarks, candidate)
        return IndexMatch(
            track_key=found.key,
            score=candidate.votes,
            spans=candidate.spans,
            support=supported,
            offset_s=round((candidate.offset - found.start) * FRAME_S, 3),
            speed=round(1 + candidate.speed, 4),
            confidence=CALIBRATION.confidence(candidate.spans, supported, self.n_tracks),
        )

    def _current_stamp(self) -> tuple[int, int]:
        try:
            status = (self._folder / FILE_NAME).stat()
        except FileNotFoundError as error:
            raise NoIndexError(self._folder) from error
        return status.st_mtime_ns, status.st_ino


_ATTEMPTS = 20
