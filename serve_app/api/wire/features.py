"""Audio features on the wire, in the canonical and in Spotify's shape, and their mapping."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BeforeValidator, Field

from pipelines.analysis.records import TrackFeatures
from pipelines.analysis.tags.kinds import TagKind, kind_of
from pipelines.analysis.tonality.notes import mode_name, pitch_class
from serve_app.api.wire.bodies import KeyName, Meta, Percent, RequestModel, Unit, WireModel
from serve_app.api.wire.dialects.spotify import time_signature
from serve_app.api.wire.meanings import (
    ARTIST,
    ATTRIBUTE,
    ATTRIBUTE_CONFIDENCE,
    DURATION_MS,
    KEY_CONFIDENCE,
    LOUDNESS,
    META,
    MODELS,
    PERCENT,
    TEMPO,
    TEMPO_CONFIDENCE,
    TITLE,
    UNIT,
)
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import InvalidTrackIdError, parse_track_id

_OWN_PREFIX = re.compile(r"^\s*afa:(?:track:)?", re.ASCII | re.IGNORECASE)
_PLAIN_ID = re.compile(r"[\w:-]+", re.ASCII)

TRACK_ID_EXAMPLE = "0AfaDemoTrack000000001"


class MoodTagBody(WireModel):
    """A tag and its calibrated score."""

    tag: str = Field(description="A word in lower case.")
    kind: TagKind = Field(
        description="What the tag describes; `sound` includes pace, loudness and audience noise."
    )
    score: Unit = Field(
        description="0 to 1, comparable between tags; a tag is strong from .6 on. A strong voice "
        "tag is right in 9 of 10 cases; strong genres and instruments are guesses."
    )


class TempoAlternativeBody(WireModel):
    """Another tempo at which the beats may be counted."""

    tempo: float = Field(gt=0, description="BPM.")
    score: Unit = Field(description="Its probability; `tempo` and all alternatives add up to 1.")


class Features(WireModel):
    """Audio features in the canonical shape."""

    artist: str = Field(description=ARTIST)
    title: str = Field(description=TITLE)
    tempo: float = Field(ge=0, description=TEMPO)
    key: KeyName | None = Field(description="Musical key; null when there is none.")
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(
        description="Camelot wheel notation; null when there is no key.", examples=["8A"]
    )
    energy: Percent = Field(description=PERCENT + ATTRIBUTE["energy"])
    danceability: Percent = Field(description=PERCENT + ATTRIBUTE["danceability"])
    happiness: Percent = Field(description=PERCENT + ATTRIBUTE["valence"])
    acousticness: Percent = Field(description=PERCENT + ATTRIBUTE["acousticness"])
    instrumentalness: Percent = Field(description=PERCENT + ATTRIBUTE["instrumentalness"])


class ExtendedFeatures(Features):
    """Features with the service's own fields."""

    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="Tags, highest score first.")
    loudness: float = Field(description=LOUDNESS)
    loudness_range: float = Field(
        ge=0, description="Loudness range in LU (EBU Tech 3342): between quiet and loud parts."
    )
    true_peak: float = Field(description="Highest peak, also between samples, in dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: Unit = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(ge=0, description=DURATION_MS)
    speechiness: Percent = Field(description=PERCENT + ATTRIBUTE["speechiness"])
    liveness: Percent = Field(description=PERCENT + ATTRIBUTE["liveness"])
    tempo_confidence: Unit = Field(description=TEMPO_CONFIDENCE)
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and other tempi at which the beats may be counted, most likely "
        "first; use `tempo_range` to ask for one of them."
    )
    key_confidence: Unit = Field(description=KEY_CONFIDENCE)
    attribute_confidence: dict[str, Unit] = Field(description=ATTRIBUTE_CONFIDENCE)
    models: dict[str, str] = Field(description=MODELS)


class AnalysisFeatures(ExtendedFeatures):
    """Result of an analysis job."""

    beats: list[float] = Field(description="Time of every beat in seconds.")
    downbeats: list[float] = Field(description="Time of the first beat of every bar in seconds.")
    embedding: list[float] | None = Field(
        None, description="768 floats, L2-normalised; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        None, description="Model of the embedding; compare only embeddings of the same model."
    )


class SpotifyFeatures(WireModel):
    """Audio features in Spotify's shape."""

    id: str = Field(description="The id that was asked for; for an upload, the id of its job.")
    type: Literal["audio_features"] = Field("audio_features", description="Always the same.")
    uri: str = Field(
        description="The same id as `afa:track:<id>`.",
        examples=["afa:track:job_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    track_href: str = Field(
        description="Address of the track's identifiers.", json_schema_extra={"format": "uri"}
    )
    analysis_url: str = Field(
        description="Address of the audio analysis.", json_schema_extra={"format": "uri"}
    )
    key: int = Field(ge=-1, le=11, description="Pitch class, C = 0; -1 unknown.")
    mode: Literal[-1, 0, 1] = Field(description="1 major, 0 minor, -1 unknown.")
    tempo: float = Field(ge=0, description=TEMPO)
    loudness: float = Field(description=LOUDNESS)
    time_signature: int = Field(ge=3, le=7, description="Beats in a bar, 3 to 7.")
    duration_ms: int = Field(ge=0, description=DURATION_MS)
    energy: Unit = Field(description=UNIT + ATTRIBUTE["energy"])
    danceability: Unit = Field(description=UNIT + ATTRIBUTE["danceability"])
    valence: Unit = Field(description=UNIT + ATTRIBUTE["valence"])
    acousticness: Unit = Field(description=UNIT + ATTRIBUTE["acousticness"])
    instrumentalness: Unit = Field(description=UNIT + ATTRIBUTE["instrumentalness"])
    speechiness: Unit = Field(description=UNIT + ATTRIBUTE["speechiness"])
    liveness: Unit = Field(description=UNIT + ATTRIBUTE["liveness"])
    embedding: list[float] | None = Field(
        None, description="768 floats; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        None, description="Model of the embedding; compare only embeddings of the same model."
    )


class FeaturesAnswer(Features):
    """Audio features in the canonical shape."""

    meta: Meta = Field(alias="_meta", description=META)


class ExtendedSpotifyFeatures(SpotifyFeatures):
    """Audio features in Spotify's shape with the service's own fields."""

    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="Tags, highest score first.")
    tempo_confidence: Unit = Field(description=TEMPO_CONFIDENCE)
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and other tempi at which the beats may be counted, most likely "
        "first."
    )
    key_confidence: Unit = Field(description=KEY_CONFIDENCE)
    models: dict[str, str] = Field(description=MODELS)


def _id_list(value: Any) -> Any:
    """Give missing and malformed lists different, helpful messages."""
    if not isinstance(value, list):
        raise ValueError("must be an array of 1 to 100 track ids")
    return value


class BatchRequest(RequestModel):
    """Which tracks to look up."""

    ids: Annotated[
        list[Annotated[str, Field(strict=True, max_length=2048)]], BeforeValidator(_id_list)
    ] = Field(
        min_length=1,
        max_length=100,
        description="Track IDs in any supported form; duplicates are allowed.",
        examples=[[TRACK_ID_EXAMPLE, "isrc:QZAFA2600001"]],
    )
    extended: bool = Field(
        False,
        description="Adds fields beyond the Spotify-compatible set: camelot, mix_in, mix_out, "
        "mood_tags and more.",
    )


class BatchResponse(WireModel):
    """Features of many tracks, in the order of the request."""

    audio_features: list[
        ExtendedSpotifyFeatures | SpotifyFeatures | ExtendedFeatures | Features | None
    ] = Field(description="null if an ID could not be resolved; such slots are not charged.")
    reasons: dict[str, str] | None = Field(
        None,
        description="With `extended`: for the id of each null slot, an error code such as "
        "`track_not_found` or `tier_required`.",
    )
    meta: Meta = Field(alias="_meta", description=META)


_OWN_NAMES = {"valence": "happiness"}


def _percent(value: float) -> int:
    return round(100 * min(1.0, max(0.0, value)))


def _unit(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 6)


def _canonical(features: TrackFeatures, artist: str, title: str) -> dict[str, Any]:
    return {
        "artist": artist,
        "title": title,
        "tempo": round(features.tempo, 3),
        "key": pitch_class(features.key),
        "mode": mode_name(features.mode),
        "camelot": features.camelot or None,
        "energy": _percent(features.energy),
        "danceability": _percent(features.danceability),
        "happiness": _percent(features.valence),
        "acousticness": _percent(features.acousticness),
        "instrumentalness": _percent(features.instrumentalness),
    }


def extended_fields(features: TrackFeatures, artist: str, title: str) -> dict[str, Any]:
    """Return the fields of `ExtendedFeatures`."""
    return _canonical(features, artist, title) | {
        "mix_in": round(features.mix_in_s, 3),
        "mix_out": round(features.mix_out_s, 3),
        "mood_tags": [
            MoodTagBody(tag=t.tag, kind=kind_of(t.tag), score=_unit(t.score))
            for t in features.mood_tags
        ],
        "loudness": round(features.loudness_lufs, 2),
        "loudness_range": round(features.loudness_range_lu, 2),
        "true_peak": round(features.true_peak_dbtp, 2),
        "time_signature": features.time_signature,
        "time_signature_confidence": _unit(features.time_signature_confidence),
        "duration_ms": round(1000 * features.duration_s),
        "speechiness": _percent(features.speechiness),
        "liveness": _percent(features.liveness),
        "tempo_confidence": _unit(features.tempo_confidence),
        "tempo_alternatives": [
            TempoAlternativeBody(tempo=round(other.tempo, 3), score=_unit(other.score))
            for other in features.tempo_alternatives
        ],
        "key_confidence": _unit(features.key_confidence),
        "attribute_confidence": {
            _OWN_NAMES.get(name, name): confidence
            for name, confidence in features.attribute_confidence.items()
        },
        "models": features.models,
    }


def to_canonical(features: TrackFeatures, artist: str, title: str) -> Features:
    """Return the canonical shape."""
    return Features(**_canonical(features, artist, title))


def to_extended(features: TrackFeatures, artist: str, title: str) -> ExtendedFeatures:
    """Return the canonical shape with the service's own fields."""
    return ExtendedFeatures(**extended_fields(features, artist, title))


def to_analysis(features: TrackFeatures, artist: str = "", title: str = "") -> AnalysisFeatures:
    """Return the result of an analysis job; the embedding is there if the record has it."""
    return AnalysisFeatures(
        **extended_fields(features, artist or features.artist, title or features.title),
        beats=[round(beat, 3) for beat in features.beats],
        downbeats=[round(beat, 3) for beat in features.downbeats],
        embedding=features.embedding or None,
        embedding_model=features.models.get("embedding") if features.embedding else None,
    )


def to_spotify(features: TrackFeatures, track_id: str, base_url: str) -> SpotifyFeatures:
    """Return Spotify's shape.

    Args:
        features: The extended record.
        track_id: The id that was asked for; the job id for uploads.
        base_url: Address of the service, for the links.
    """
    name = _name_in_links(track_id)
    return SpotifyFeatures(
        id=track_id,
        uri=f"afa:track:{name}",
        track_href=f"{base_url}/v1/resolve/{name}",
        analysis_url=f"{base_url}/spotify/v1/audio-analysis/{name}",
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


def first_id(identity: TrackIdentity) -> str:
    """Return the first known identifier, with its platform only if it needs one."""
    known = next(identity.ids(), None)
    if known is None:
        return identity.library_id or ""
    return known.value if parse_track_id(known.value) == known else str(known)


def _name_in_links(asked: str) -> str:
    """Return an id that fits into a path: what an address, or an id with spaces, stands for."""
    asked = _OWN_PREFIX.sub("", asked)
    if _PLAIN_ID.fullmatch(asked):
        return asked
    try:
        return str(parse_track_id(asked))
    except InvalidTrackIdError:
        return quote(asked, safe="")


def to_extended_spotify(
    features: TrackFeatures, track_id: str, base_url: str
) -> ExtendedSpotifyFeatures:
    """Return Spotify's shape with the service's own fields."""
    own = extended_fields(features, "", "")
    names = ("camelot", "mix_in", "mix_out", "mood_tags", "tempo_confidence", "tempo_alternatives")
    return ExtendedSpotifyFeatures(
        **to_spotify(features, track_id, base_url).model_dump(),
        **{name: own[name] for name in (*names, "key_confidence", "models")},
    )
