"""The local fingerprint index: which track a clip is of, without asking anybody."""

import math
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.fingerprint.hashes import QueryHashes, query_hashes
from models.fingerprint.landmarks import FRAME_S, Fingerprint
from serve_app.providers.fingerprints.manifest import (
    FILE_NAME,
    FingerprintIndexError,
    Manifest,
    NoIndexError,
    read_manifest,
)
from serve_app.providers.fingerprints.segment import Segment
from serve_app.providers.fingerprints.votes import Candidate, find_candidates

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
        offset_s: Where in the track the clip begins.
        speed: Playback speed of the clip; 1 is the track's own.
        confidence: Probability in percent that the clip is of this track, 0 to 100.
    """

    track_key: str
    score: int
    spans: int
    offset_s: float
    speed: float
    confidence: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic regression on the logarithms (of one more) of a candidate's two counts.

    Every track of the index is one more that may resemble the clip by so much, so the odds fall in
    proportion to their number: among 12 to 96 real tracks wrong candidates of four votes and four
    spans become 8.0 times as frequent, those of six and five 5.9 times.

    Attributes:
        bias: Log odds of nothing in an index of one track.
        votes: Weight.
        spans: Weight.
        length_s: The spans of a clip of another length are counted as so many of this one, since a
            longer clip has more by chance; None where all lengths were fitted as they are.
    """

    bias: float
    votes: float
    spans: float
    length_s: float | None = None

    def confidence(self, votes: int, spans: int, n_tracks: int, duration_s: float) -> int:
        """Percent for a clip of this length, rounded down, so that 100 is never claimed."""
        odds = (
            self.bias
            + self.votes * math.log1p(votes)
            + self.spans * math.log1p(spans * self.scale(duration_s))
            - math.log(max(n_tracks, 1))
        )
        return int(100 / (1 + math.exp(-max(min(odds, 30.0), -30.0))) - 1e-6)

    def scale(self, duration_s: float) -> float:
        """What a span of a clip of this length counts."""
        return 1.0 if self.length_s is None else self.length_s / duration_s


CALIBRATION = Calibration(bias=-12.1, votes=4.5, spans=4.1)
"""Fitted to 92 tracks against indexes of 26 and 96 real ones (-9.6, 4.5, 4.1), then moved towards
caution: music that shares a sound with a track is rarer there than in the world."""

DENSE_CALIBRATION = Calibration(bias=-13.6, votes=3.6, spans=6.4, length_s=5.0)
"""Of the second look. Fitted where the first was unsure, on clips of 70 tracks and of 56 unknown
ones (-11.6, 3.6, 6.4), then moved towards caution as the first: to -12.6, and to -13.6 after 3 of
1,584 unknown clips of other music were named. With weights of 5 s and without the length, 5 of 224
unknown clips of 10 s were named."""


def surer(first: list[IndexMatch], again: list[IndexMatch]) -> list[IndexMatch]:
    """Give the look, each with its best match first, that states more."""
    return max(first, again, key=lambda found: found[0].confidence if found else -1)


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

    def query(self, fingerprint: Fingerprint, dense: Fingerprint | None = None) -> list[IndexMatch]:
        """Find the tracks that a clip may be of.

        Args:
            fingerprint: Of a clip of 3 to 12 s.
            dense: Its dense landmarks, looked up where the usual ones leave a doubt; without them
                the doubt stays.

        Returns:
            At most `N_MATCHES`, best first, of the look that states more; empty for silence.
        """
        matches = self.ask(query_hashes(fingerprint), CALIBRATION)
        if dense is None or (matches and matches[0].confidence >= SURE):
            return matches
        again = self.ask(query_hashes(dense, is_dense=True), DENSE_CALIBRATION)
        return surer(matches, again)

    def ask(self, wanted: QueryHashes, calibration: Calibration) -> list[IndexMatch]:
        """Look up hashes once; what comes back is as of `query`."""
        best: dict[str, tuple[Candidate, float]] = {}
        for segment, dropped in self._segments:
            found = segment.look_up(wanted.hashes, MOST_POSTINGS)
            candidates = find_candidates(
                found.positions, wanted.triplets[found.rows], wanted.frames
            )
            tracks = segment.track_of(np.array([c.position for c in candidates], np.int64))
            for candidate, track in zip(candidates, tracks.tolist(), strict=True):
                key = segment.keys[track]
                known = best.get(key)
                if track in dropped or (known is not None and known[0].votes >= candidate.votes):
                    continue
                best[key] = (candidate, float(segment.track_starts[track]))
        ranked = sorted(best.items(), key=lambda item: -item[1][0].votes)
        return [
            IndexMatch(
                track_key=key,
                score=candidate.votes,
                spans=candidate.spans,
                offset_s=round((candidate.offset - start) * FRAME_S, 3),
                speed=round(1 + candidate.speed, 4),
                confidence=calibration.confidence(
                    candidate.votes, candidate.spans, self.n_tracks, wanted.duration_s
                ),
            )
            for key, (candidate, start) in ranked[:N_MATCHES]
        ]

    def _current_stamp(self) -> tuple[int, int]:
        try:
            status = (self._folder / FILE_NAME).stat()
        except FileNotFoundError as error:
            raise NoIndexError(self._folder) from error
        return status.st_mtime_ns, status.st_ino


_ATTEMPTS = 20
