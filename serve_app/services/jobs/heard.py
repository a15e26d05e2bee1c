"""What an analysis heard as a track, although the library does not have it."""

from datetime import datetime

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.identity import TrackIdentity
from serve_app.library.track import Analysis, LibraryTrack


def heard_track(name: str, features: TrackFeatures, at: datetime) -> LibraryTrack:
    """Return the track of an analysis; it has its embedding with it, if there is one.

    Args:
        name: What it is called by: a job's id, or a path.
        features: What was heard.
        at: When.
    """
    who = TrackIdentity(artist=features.artist, title=features.title, source="tags")
    models = (features.models["embedding"],) if any(features.embedding) else ()
    return LibraryTrack(name, who, analysis=Analysis(features, "", at), embeddings=models)
