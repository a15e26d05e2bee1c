"""A track of the library: its identity, where its audio is, and its analysis."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

from pydantic_core import from_json

from pipelines.analysis import features as feature_json
from pipelines.analysis.records import TrackFeatures
from serve_app.domain import identity as identity_json
from serve_app.domain.assets import AssetRecord
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import LIBRARY_PREFIX
from serve_app.domain.ulid import new_ulid

OPERATOR = ""
"""Owner of the tracks that every key may see; any other owner's are visible only to that owner."""

UNPACKED = 1024
"""Records that stay unpacked, for tracks that are requested often."""

FORMAT = 1
"""Version of the record; increased when a field changes its meaning."""


class Place(StrEnum):
    """Where a file is: a path or S3 address, an asset of its owner, or a web address."""

    PATH = "path"
    ASSET = "asset"
    URL = "url"


@dataclass(frozen=True, slots=True)
class TrackFile:
    """One file that holds the recording.

    Attributes:
        location: An absolute path or ``s3://`` address, an asset id, or a web address.
        content_sha256: Hash of all bytes.
        audio_sha256: Hash of the demuxed audio packets, so that new tags do not change it.
        ctime_ns: When the system last recorded a change of it; None if unknown.
        missing_since: When the file was first found missing.
        loudness_lufs: Loudness of this file, since another master may be louder; None if the file
            itself was not measured.
        true_peak_dbtp: Likewise.
    """

    place: Place
    location: str
    content_sha256: str | None = None
    audio_sha256: str | None = None
    size_bytes: int | None = None
    mtime_ns: int | None = None
    ctime_ns: int | None = None
    missing_since: datetime | None = None
    loudness_lufs: float | None = None
    true_peak_dbtp: float | None = None

    @classmethod
    def of_asset(cls, asset: AssetRecord) -> "TrackFile":
        """Return an asset as a file of a track."""
        return cls(Place.ASSET, asset.asset_id, asset.sha256, size_bytes=asset.size_bytes)


@dataclass(frozen=True, slots=True)
class ServerItem:
    """What a media server calls the track and its artist; a track with two files has two items."""

    server: str
    item_id: str
    artist_id: str | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The track's features, and the checkpoints that made them.

    Attributes:
        features: Without segments, sections and embedding, which are stored separately.
        made_by: Name of the checkpoint set, see `serve_app.checkpoints.choice.models_name`.
    """

    features: TrackFeatures
    made_by: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class LibraryTrack:
    """One recording, however many files contain it.

    Attributes:
        owner: `OPERATOR`, or the one account whose keys see the track.
        sources: Field of ``identity`` to its source: ``tags``, ``owner``, a provider's name.
        tags: The owner's own tags for it.
        items: What media servers call it; see `serve_app.services.media_servers`.
        embeddings: Models whose vectors of the track are stored.
        fingerprint: Chromaprint of the beginning, base64url.
        asked: Services asked to identify it; see `serve_app.services.identify.completion`.
        revision: Counts the changes; 0 before the track is stored.
    """

    track_id: str
    identity: TrackIdentity
    owner: str = OPERATOR
    sources: Mapping[str, str] = field(default_factory=dict)
    files: tuple[TrackFile, ...] = ()
    tags: tuple[str, ...] = ()
    items: tuple[ServerItem, ...] = ()
    analysis: Analysis | None = None
    embeddings: tuple[str, ...] = ()
    fingerprint: str | None = None
    asked: str = ""
    added_at: datetime | None = None
    changed_at: datetime | None = None
    revision: int = 0

    def files_with(self, file: TrackFile) -> tuple[TrackFile, ...]:
        """Return the files with one more, which replaces an earlier one at its location."""
        return (*(one for one in self.files if one.location != file.location), file)


def new_track_id() -> str:
    """Return a new id; ids sort by creation time."""
    return LIBRARY_PREFIX + new_ulid()


def stamped(track: LibraryTrack, revision: int) -> LibraryTrack:
    """Return a track as it is now stored."""
    now = datetime.now(UTC)
    return replace(track, added_at=track.added_at or now, changed_at=now, revision=revision)


def pack(track: LibraryTrack) -> bytes:
    """Write a track as compressed JSON."""
    content = {
        "format": FORMAT,
        "track_id": track.track_id,
        "owner": track.owner,
        "revision": track.revision,
        "identity": json.loads(identity_json.to_json(track.identity)),
        "sources": dict(track.sources),
        "files": [asdict(file) for file in track.files],
        "tags": track.tags,
        "items": [asdict(item) for item in track.items],
        "analysis": None if track.analysis is None else _analysis_fields(track.analysis),
        "embeddings": track.embeddings,
        "fingerprint": track.fingerprint,
        "asked": track.asked,
        "added_at": track.added_at,
        "changed_at": track.changed_at,
    }
    known = {name: value for name, value in content.items() if value}
    text = json.dumps(known, ensure_ascii=False, separators=(",", ":"), default=datetime.isoformat)
    return zlib.compress(text.encode())


@lru_cache(maxsize=UNPACKED)
def unpack(record: bytes) -> LibraryTrack:
    """Read what `pack` wrote.

    Raises:
        ValueError: It has another format.
    """
    content = from_json(zlib.decompress(record))
    if content.pop("format", None) != FORMAT:
        raise ValueError(f"the record of a library track must have format {FORMAT}")
    analysis = content.get("analysis")
    return LibraryTrack(
        track_id=content["track_id"],
        owner=content.get("owner", OPERATOR),
        revision=content["revision"],
        identity=identity_json.from_fields(content.get("identity", {})),
        sources=content.get("sources", {}),
        files=tuple(_file(one) for one in content.get("files", ())),
        tags=tuple(content.get("tags", ())),
        items=tuple(ServerItem(**one) for one in content.get("items", ())),
        analysis=None if analysis is None else _analysis(analysis),
        embeddings=tuple(content.get("embeddings", ())),
        fingerprint=content.get("fingerprint"),
        asked=content.get("asked", ""),
        added_at=_time(content.get("added_at")),
        changed_at=_time(content.get("changed_at")),
    )


def _analysis_fields(analysis: Analysis) -> dict[str, object]:
    return {
        "features": json.loads(feature_json.to_json(analysis.features)),
        "made_by": analysis.made_by,
        "made_at": analysis.made_at,
    }


def _analysis(fields: Mapping[str, object]) -> Analysis | None:
    try:
        features = feature_json.from_fields(fields["features"])
    except feature_json.RecordFormatError:
        return None  # of another version of the pipelines: the track must be analysed again
    return Analysis(
        features, str(fields["made_by"]), datetime.fromisoformat(str(fields["made_at"]))
    )


def _file(fields: Mapping[str, object]) -> TrackFile:
    missing = _time(fields["missing_since"])
    known = {**fields, "place": Place(str(fields["place"])), "missing_since": missing}
    return TrackFile(**known)  # type: ignore[arg-type]  # names and types are those of `asdict`


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
