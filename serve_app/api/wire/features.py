"""Map the extended record to the canonical and the Spotify shape."""

from typing import Any

from pipelines.analysis.records import TrackFeatures
from serve_app.api.wire.schemas import (
    AnalysisFeatures,
    ExtendedFeatures,
    Features,
    MoodTagBody,
    SpotifyFeatures,
)
from serve_app.api.wire.spotify import time_signature
from serve_app.api.wire.tracks import ExtendedSpotifyFeatures

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
MODES = {1: "major", 0: "minor"}


def _percent(value: float) -> int:
    return round(100 * min(1.0, max(0.0, value)))


def _unit(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 6)


def _canonical(features: TrackFeatures, artist: str, title: str) -> dict[str, Any]:
    return {
        "artist": artist,
        "title": title,
        "tempo": round(features.tempo, 3),
        "key": PITCH_CLASSES[features.key] if features.key >= 0 else None,
        "mode": MODES.get(features.mode),
        "camelot": features.camelot or None,
        "energy": _percent(features.energy),
        "danceability": _percent(features.danceability),
        "happiness": _percent(features.valence),
        "acousticness": _percent(features.acousticness),
        "instrumentalness": _percent(features.instrumentalness),
    }


def _extended(features: TrackFeatures, artist: str, title: str) -> dict[str, Any]:
    return _canonical(features, artist, title) | {
        "mix_in": round(features.mix_in_s, 3),
        "mix_out": round(features.mix_out_s, 3),
        "mood_tags": [MoodTagBody(tag=t.tag, score=_unit(t.score)) for t in features.mood_tags],
        "loudness": round(features.loudness_lufs, 2),
        "time_signature": features.time_signature,
        "duration_ms": round(1000 * features.duration_s),
        "speechiness": _percent(features.speechiness),
        "liveness": _percent(features.liveness),
        "tempo_confidence": _unit(features.tempo_confidence),
        "key_confidence": _unit(features.key_confidence),
        "models": features.models,
    }


def to_canonical(features: TrackFeatures, artist: str, title: str) -> Features:
    """Give the canonical shape."""
    return Features(**_canonical(features, artist, title))


def to_extended(features: TrackFeatures, artist: str, title: str) -> ExtendedFeatures:
    """Give the canonical shape with the service's own fields."""
    return ExtendedFeatures(**_extended(features, artist, title))


def to_analysis(features: TrackFeatures) -> AnalysisFeatures:
    """Give the result of an analysis job; the embedding is there if the record has it."""
    return AnalysisFeatures(
        **_extended(features, "", ""),
        beats=[round(beat, 3) for beat in features.beats],
        downbeats=[round(beat, 3) for beat in features.downbeats],
        embedding=features.embedding or None,
        embedding_model=features.models.get("embedding") if features.embedding else None,
    )


def to_spotify(features: TrackFeatures, track_id: str, base_url: str) -> SpotifyFeatures:
    """Give Spotify's shape.

    Args:
        features: The extended record.
        track_id: The id that was asked for; the job id for uploads.
        base_url: Address of the service, for the links.
    """
    return SpotifyFeatures(
        id=track_id,
        uri=f"afa:track:{track_id}",
        track_href=f"{base_url}/v1/resolve/{track_id}",
        analysis_url=f"{base_url}/spotify/v1/audio-analysis/{track_id}",
        key=features.key,
        mode=features.mode,
        tempo=round(features.tempo, 3),
        loudness=round(features.loudness_lufs, 3),
        time_signature=time_signature(features.time_signature),
        duration_ms=round(1000 * features.duration_s),
        energy=_unit(features.energy),
        danceability=_unit(features.danceability),
        valence=_unit(features.valence),
        acousticness=_unit(features.acousticness),
        instrumentalness=_unit(features.instrumentalness),
        speechiness=_unit(features.speechiness),
        liveness=_unit(features.liveness),
        embedding=features.embedding or None,
        embedding_model=features.models.get("embedding") if features.embedding else None,
    )


def to_extended_spotify(
    features: TrackFeatures, track_id: str, base_url: str
) -> ExtendedSpotifyFeatures:
    """Give Spotify's shape with the service's own fields."""
    own = _extended(features, "", "")
    names = ("camelot", "mix_in", "mix_out", "mood_tags", "tempo_confidence", "key_confidence")
    return ExtendedSpotifyFeatures(
        **to_spotify(features, track_id, base_url).model_dump(),
        **{name: own[name] for name in (*names, "models")},
    )
