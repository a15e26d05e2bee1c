"""The rows of a back-fill, from the list of files to the finished tables.

Invariant: a row's name derives from the file's location, size and time, and the checkpoints; the
same file with the same checkpoints has the same name in every run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from pipelines.analysis.records import EMBEDDING_DIMENSION, TrackFeatures
from pipelines.audio.waveform import (
    AudioTooLongError,
    AudioTooShortError,
    UndecodableAudioError,
)
from serve_app.domain.errors import UrlFetchError
from serve_app.domain.identity import TrackIdentity
from serve_app.library.track import TrackFile
from serve_app.services.scan.places import Found, Trouble

Row = dict[str, Any]

_SOURCE = [
    pa.field("id", pa.string(), nullable=False),
    pa.field("location", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("mtime_ns", pa.int64()),
    pa.field("made_by", pa.string(), nullable=False),
]

_IDENTITY = {
    "artist": pa.string(),
    "title": pa.string(),
    "album": pa.string(),
    "year": pa.int32(),
    "isrc": pa.string(),
    "mbid": pa.string(),
}

_TAG = pa.struct([("tag", pa.string()), ("score", pa.float32())])
_TEMPO = pa.struct([("tempo", pa.float64()), ("score", pa.float64())])

_FEATURES = {
    "duration_s": pa.float64(),
    "tempo": pa.float64(),
    "tempo_confidence": pa.float64(),
    "tempo_alternatives": pa.list_(_TEMPO),
    "beats": pa.list_(pa.float64()),
    "downbeats": pa.list_(pa.float64()),
    "time_signature": pa.int32(),
    "time_signature_confidence": pa.float64(),
    "key": pa.int32(),
    "mode": pa.int32(),
    "key_confidence": pa.float64(),
    "camelot": pa.string(),
    "loudness_lufs": pa.float64(),
    "loudness_range_lu": pa.float64(),
    "true_peak_dbtp": pa.float64(),
    "mix_in_s": pa.float64(),
    "mix_out_s": pa.float64(),
    "acousticness": pa.float64(),
    "danceability": pa.float64(),
    "energy": pa.float64(),
    "instrumentalness": pa.float64(),
    "liveness": pa.float64(),
    "speechiness": pa.float64(),
    "valence": pa.float64(),
    "mood_tags": pa.list_(_TAG),
    "models": pa.map_(pa.string(), pa.string()),
    "embedding": pa.list_(pa.float32(), EMBEDDING_DIMENSION),
}
"""Fields of `TrackFeatures`. Segments, sections, chords, tuning and the attributes' confidence are
only in the library."""

HEARD = pa.schema(
    [
        *_SOURCE,
        pa.field("track_id", pa.string(), nullable=False),
        pa.field("content_sha256", pa.string()),
        pa.field("audio_sha256", pa.string()),
        *(pa.field(name, kind) for name, kind in _IDENTITY.items()),
        *(pa.field(name, kind) for name, kind in _FEATURES.items()),
    ]
)
ERRORS = pa.schema([*_SOURCE, ("code", pa.string()), ("message", pa.string())])

OF_THE_FILE = {
    *(UndecodableAudioError.code, AudioTooLongError.code, AudioTooShortError.code),
    UrlFetchError.code,
}
"""Codes of errors that the same file gives again. Others are temporary, and not remembered."""


def row_id(location: str, size_bytes: int | None, mtime_ns: int | None, made_by: str) -> str:
    """Return the name of a file's row."""
    text = json.dumps([location, size_bytes, mtime_ns, made_by])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def source_row(one: Found | Trouble, made_by: str) -> Row:
    """Return the columns of both tables that say where a row comes from."""
    size_bytes, mtime_ns = (
        (one.size_bytes, one.mtime_ns) if isinstance(one, Found) else (None, None)
    )
    return {
        "id": row_id(one.location, size_bytes, mtime_ns, made_by),
        "location": one.location,
        "size_bytes": size_bytes,
        "mtime_ns": mtime_ns,
        "made_by": made_by,
    }


def heard_row(
    source: Mapping[str, Any],
    file: TrackFile,
    track_id: str,
    identity: TrackIdentity,
    features: TrackFeatures,
) -> Row:
    """Return the row of a file that was analysed."""
    whole = asdict(features)
    return {
        **source,
        "track_id": track_id,
        "content_sha256": file.content_sha256,
        "audio_sha256": file.audio_sha256,
        **{name: getattr(identity, name) for name in _IDENTITY},
        **{name: whole[name] for name in _FEATURES},
        "models": list(features.models.items()),
        "embedding": features.embedding or [0.0] * EMBEDDING_DIMENSION,
    }
