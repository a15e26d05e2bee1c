"""Which of a library's tracks can be exported: analysed, with a file that exists."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.identity import TrackIdentity
from serve_app.library.library import Library
from serve_app.library.rows import location_term
from serve_app.library.track import OPERATOR, LibraryTrack, Place, TrackFile


@dataclass(frozen=True, slots=True)
class ExportTrack:
    """A track with one of its files; ``features`` have that file's level, if it is known."""

    track: LibraryTrack
    file: TrackFile
    features: TrackFeatures

    @property
    def identity(self) -> TrackIdentity:
        """The track's identity."""
        return self.track.identity

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(self.file.location)


def files_of(track: LibraryTrack) -> list[ExportTrack]:
    """Return an analysed track with each of its files on this machine."""
    if track.analysis is None:
        return []
    return [
        ExportTrack(track, file, _levelled(track.analysis.features, file))
        for file in track.files
        if file.place is Place.PATH
        and file.missing_since is None
        and not file.location.startswith("s3://")
    ]


def _levelled(features: TrackFeatures, file: TrackFile) -> TrackFeatures:
    if file.loudness_lufs is None or file.true_peak_dbtp is None:
        return features
    return replace(features, loudness_lufs=file.loudness_lufs, true_peak_dbtp=file.true_peak_dbtp)


def track_at(library: Library, location: str) -> ExportTrack | None:
    """Return the operator's analysed track that has a file at a location, unless it is missing."""
    tracks = library.of_term(location_term(location), OPERATOR)
    files = (one for track in tracks for one in files_of(track))
    return next((one for one in files if one.file.location == location), None)


def tracks_of(library: Library) -> Iterator[ExportTrack]:
    """Yield the operator's tracks that have an existing file, each once, newest first."""
    return (one for one in looked_for(library) if one is not None)


def looked_for(library: Library) -> Iterator[ExportTrack | None]:
    """Yield as `tracks_of`, with None for a track none of whose files is still in place."""
    for track in library.all([OPERATOR]):
        if files := files_of(track):
            yield next((one for one in files if os.path.exists(one.path)), None)
