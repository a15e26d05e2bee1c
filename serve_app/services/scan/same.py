"""Recognises files that hold the same recording, as an MP3 and a FLAC of one master do.

Invariant: two tracks are joined only if their landmarks agree wherever they are compared. Covers,
remixes, other takes and instrumental versions sound alike, but their landmarks do not
agree everywhere, or their names differ.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.agreement import agreement
from models.fingerprint.landmarks import Fingerprint
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import decode_segments
from pipelines.audio.waveform import AudioError
from serve_app.domain.errors import UrlFetchError
from serve_app.library.library import Library
from serve_app.library.query import TrackQuery
from serve_app.library.spelling import normalise_title, version_words
from serve_app.library.track import OPERATOR, LibraryTrack, Place
from serve_app.providers.tags.identity import TAGS, TaggedIdentity
from serve_app.services.scan.facts import LIMITS

N_NEAREST = 8
MAX_DISTANCE = 0.05
"""Cosine distance of two embeddings; a codec moves one by less than .01."""
MAX_DIFFERENCE_S = 1.0
"""Difference of durations; an encoder pads a tenth of a second."""
CLIPS, CLIP_S, SAME_CLIP = 4, 12.0, 0.09
"""Clips of a track, their length in seconds, and the agreement that every pair needs.

On 69 tracks of games, cut to 25 to 60 s, every copy is recognised in MP3 at 128 and 64 kbit/s,
in Opus at 64, and with .9 s more or less at the front; .97 are with both that and 64 kbit/s, and
.83 if the sound was also strongly compressed. Of their 138 pairs of parts that begin 1.5 to 10 s
apart, none agrees by more than .03 in every clip; clips of different tracks agree by at most .006.
"""


class SameRecording:
    """Finds the library's track of which a new file is another copy."""

    def __init__(self, library: Library) -> None:
        from pipelines.fingerprint.make import Fingerprinter  # brings torch, which takes seconds

        self._library = library
        self._fingerprinter = Fingerprinter()

    def find(
        self,
        named: TaggedIdentity,
        features: TrackFeatures,
        at_hand: Callable[[], AbstractContextManager[Path]],
    ) -> str | None:
        """Return the id of the operator's track of the same recording, if one certainly is.

        Args:
            named: The identity in the file.
            features: The file's analysis.
            at_hand: Returns a path to read it from; called only if a track is similar.
        """
        model = features.models.get("embedding")
        if model is None or not any(features.embedding) or model not in self._library.models():
            return None
        near = self._library.nearest(model, features.embedding, N_NEAREST, [OPERATOR], TrackQuery())
        tracks = (self._library.get(one.track_id) for one in near if one.distance <= MAX_DISTANCE)
        candidates = [
            track
            for track in tracks
            if track is not None
            and track.analysis is not None
            and may_be_same(track, track.analysis.features.duration_s, named, features.duration_s)
        ]
        if not candidates:
            return None
        with suppress(AudioError, OSError, UrlFetchError), at_hand() as path:
            clips = self._clips(path, features.duration_s)
            for track in candidates:
                if any(
                    self._is_of(Path(file.location), clips, features.duration_s)
                    for file in track.files
                    if file.place is Place.PATH
                ):
                    return track.track_id
        return None

    def _is_of(self, other: Path, clips: list[Fingerprint], duration_s: float) -> bool:
        """Compare the landmarks of a file with another's, at the same positions."""
        try:
            pairs = zip(clips, self._clips(other, duration_s), strict=True)
            return all(
                agreement(mine, theirs, MAX_DIFFERENCE_S) >= SAME_CLIP for mine, theirs in pairs
            )
        except (AudioError, OSError):
            return False

    def _clips(self, path: Path, duration_s: float) -> list[Fingerprint]:
        n = max(1, min(CLIPS, int(duration_s / CLIP_S)))
        room_s = max(0.0, duration_s - CLIP_S)
        starts = [room_s * (2 * k + 1) / (2 * n) for k in range(n)]
        clips = decode_segments(path, [(start, CLIP_S) for start in starts], LIMITS)
        return self._fingerprinter.make_landmarks(clips)


def are_near(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two embeddings are as close as those of copies of one recording."""
    return float(np.dot(one, other)) >= 1.0 - MAX_DISTANCE


def may_be_same(
    one: LibraryTrack | TaggedIdentity,
    one_s: float,
    other: LibraryTrack | TaggedIdentity,
    other_s: float,
) -> bool:
    """Whether durations, identifiers and tagged names allow two files to be one recording."""
    if abs(one_s - other_s) > MAX_DIFFERENCE_S:
        return False
    for name in ("mbid", "isrc"):
        mine, theirs = getattr(one.identity, name), getattr(other.identity, name)
        if mine and theirs:
            return bool(mine == theirs)
    if not one.sources.get("title") == other.sources.get("title") == TAGS:
        return True
    title, its = one.identity.title, other.identity.title
    return normalise_title(title) == normalise_title(its) and version_words(title) == version_words(
        its
    )
