"""A recording in AcousticBrainz's two documents, low-level and high-level.

It contains only what afa measures, under AcousticBrainz's name for it. Clients ignore what is
missing: statistics of spectra, chords, rhythm styles, timbre and genres.

References:
    https://essentia.upf.edu/streaming_extractor_music.html, and the answers of AcousticBrainz's
    server, https://github.com/metabrainz/acousticbrainz-server.
"""

from typing import Any

from pipelines.analysis.records import UNKNOWN_KEY, TrackFeatures
from pipelines.analysis.tonality.notes import mode_name, pitch_class
from serve_app.domain.identity import TrackIdentity

Document = dict[str, Any]

MOODS_BY_TAG = {
    "aggressive": ("angry",),
    "electronic": ("electronic",),
    "party": ("party",),
    "relaxed": ("chill", "mellow"),
    "sad": ("sad",),
}
"""Moods reported if a track has one of these tags; of other tracks nothing is known."""


def low_level(identity: TrackIdentity, heard: TrackFeatures | None) -> Document:
    """Return tempo, beats, key and loudness.

    Args:
        identity: What is known of the recording, with tempo and key measured elsewhere.
        heard: afa's analysis; None if it has not analysed the recording.
    """
    measured = identity if heard is None else heard
    rhythm: Document = {"bpm": round(measured.tempo, 3)} if measured.tempo else {}
    key = pitch_class(UNKNOWN_KEY if measured.key is None else measured.key)
    scale = mode_name(UNKNOWN_KEY if measured.mode is None else measured.mode)
    tonal: Document = {"key_key": key, "key_scale": scale} if key and scale else {}
    lowlevel: Document = {}
    if heard is not None:
        rhythm["beats_count"] = len(heard.beats)
        rhythm["beats_position"] = [round(beat, 4) for beat in heard.beats]
        if tonal:
            tonal["key_strength"] = round(heard.key_confidence, 6)
        lowlevel["loudness_ebu128"] = {
            "integrated": round(heard.loudness_lufs, 2),
            "loudness_range": round(heard.loudness_range_lu, 2),
        }
    metadata = _metadata(identity, heard)
    return {"lowlevel": lowlevel, "metadata": metadata, "rhythm": rhythm, "tonal": tonal}


def high_level(identity: TrackIdentity, heard: TrackFeatures | None) -> Document:
    """Return danceability, moods and voice, or nothing if afa has not analysed the recording."""
    classified = {} if heard is None else _classified(heard)
    return {"highlevel": classified, "metadata": _metadata(identity, heard)}


def _classified(heard: TrackFeatures) -> Document:
    scores = {tag.tag: tag.score for tag in heard.mood_tags}
    classified = {
        "danceability": _either("danceable", "not_danceable", heard.danceability),
        "mood_acoustic": _either("acoustic", "not_acoustic", heard.acousticness),
        "mood_happy": _either("happy", "not_happy", heard.valence),
        "voice_instrumental": _either("instrumental", "voice", heard.instrumentalness),
    }
    for mood, tags in MOODS_BY_TAG.items():
        score = max(scores.get(tag, 0.0) for tag in tags)
        if score:
            classified[f"mood_{mood}"] = _either(mood, f"not_{mood}", score)
    female, male = scores.get("female vocals", 0.0), scores.get("male vocals", 0.0)
    if female != male:
        classified["gender"] = _either("female", "male", female if female > male else 1 - male)
    return classified


def _either(name: str, other: str, probability: float) -> Document:
    """Return one of two classes, by the probability of the first."""
    both = {name: round(probability, 6), other: round(1 - probability, 6)}
    value = max(both, key=lambda one: both[one])
    return {"all": both, "probability": both[value], "value": value}


def _metadata(identity: TrackIdentity, heard: TrackFeatures | None) -> Document:
    tags = {
        "artist": identity.artist,
        "title": identity.title,
        "album": identity.album,
        "isrc": identity.isrc,
        "musicbrainz_recordingid": identity.mbid,
    }
    properties: Document = {}
    version: Document = {"extractor": identity.source}
    if heard is not None:
        properties["length"] = round(heard.duration_s, 3)
        version = {"extractor": "afa", "models": heard.models}
    elif identity.duration_s is not None:
        properties["length"] = identity.duration_s
    return {
        "audio_properties": properties,
        "tags": {name: [value] for name, value in tags.items() if value},
        "version": version,
    }
