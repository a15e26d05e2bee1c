"""Presents an analysis as a track, although the library does not have it."""

from datetime import datetime

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.identity import TrackIdentity
from serve_app.library.track import Analysis, LibraryTrack


def heard_track(name: str, features: TrackFeatures, at: datetime) -> LibraryTrack:
    """Return an analysis as a track, with its embedding if there is one.

    Args:
        name: The track's name: a job's id, or a path.
        features: The analysis's results.
        at: When it was made.
    """
    who = TrackIdentity(artist=features.artist, title=features.title, source="tags")
    models = (features.models["embedding"],) if any(features.embedding) else ()
    return LibraryTrack(name, who, analysis=Analysis(features, "", at), embeddings=models)
