"""The tools' answers: what an agent needs to continue, without long rows of numbers."""

from pydantic import BaseModel, Field

from serve_app.api.wire.features import ExtendedFeatures, Features
from serve_app.api.wire.library import LibraryTrackBody
from serve_app.api.wire.similar import SimilarTrack

SHOWN_TAGS = 12
TEMPO = "BPM; 0 when there is no beat, null before the analysis."
KEY = "Such as `A minor`; null when there is none."
CAMELOT = "The key's name on the Camelot wheel."


class UnansweredError(RuntimeError):
    """A tool cannot answer; the text says what to do instead."""


class LookedUp(BaseModel):
    """Audio features of a track."""

    artist: str = Field(description="Artist; empty for a file without a name.")
    title: str = Field(description="Title; empty for a file without a name.")
    tempo: float = Field(description="BPM; 0 when there is no beat.")
    key: str | None = Field(description=KEY)
    camelot: str | None = Field(description=CAMELOT)
    energy: int = Field(description="0 to 100.")
    danceability: int = Field(description="0 to 100.")
    happiness: int = Field(description="0 to 100.")
    acousticness: int = Field(description="0 to 100.")
    instrumentalness: int = Field(description="0 to 100.")


class Analysed(LookedUp):
    """What was found in a file."""

    tempo_confidence: float = Field(description="0 to 1.")
    tempo_alternatives: list[float] = Field(description="Other BPM it may be counted in.")
    key_confidence: float = Field(description="0 to 1.")
    time_signature: int = Field(description="Beats in a bar.")
    duration_s: float = Field(description="Seconds.")
    loudness_lufs: float = Field(description="Integrated loudness.")
    mix_in_s: float = Field(description="Where to start mixing in.")
    mix_out_s: float = Field(description="Where to start mixing out.")
    tags: dict[str, float] = Field(description="Tag to score; from .6 on it is strong.")


class Track(BaseModel):
    """A track of the library."""

    id: str = Field(description="Pass it to other tools.")
    artist: str = Field(description="Artist.")
    title: str = Field(description="Title.")
    album: str | None = Field(description="Album or single it is on.")
    year: int | None = Field(description="Year of that release.")
    tempo: float | None = Field(description=TEMPO)
    key: str | None = Field(description=KEY)
    camelot: str | None = Field(description=CAMELOT)


class Neighbour(Track):
    """A track that sounds like another."""

    distance: float = Field(description="Cosine distance: 0 sounds the same.")
    key_relation: str | None = Field(
        description="Its key compared with the other's; null if unknown."
    )
    tempo_ratio: float | None = Field(description="Its tempo divided by the other's.")
    shared_tags: list[str] = Field(description="Tags that both have.")


class Tracks(BaseModel):
    """Tracks that were found, newest first."""

    tracks: list[Track]


class Neighbours(BaseModel):
    """Tracks that were found, nearest first."""

    tracks: list[Neighbour]


class Identified(BaseModel):
    """Who a recording is."""

    matched: bool = Field(description="Whether it was identified.")
    artist: str | None = Field(None, description="Artist, if matched.")
    title: str | None = Field(None, description="Title, if matched.")
    confidence: int = Field(0, description="0 to 100.")


def key_name(key: str | None, mode: str | None) -> str | None:
    """Write a key as people say it."""
    return f"{key} {mode}" if key and mode else None


def looked_up(body: Features) -> LookedUp:
    """Answer with the features of a track."""
    said = body.model_dump(include=set(LookedUp.model_fields) - {"key"})
    return LookedUp(**said, key=key_name(body.key, body.mode))


def analysed(body: ExtendedFeatures) -> Analysed:
    """Answer with what was found in a file."""
    return Analysed(
        **looked_up(body).model_dump(),
        tempo_confidence=body.tempo_confidence,
        tempo_alternatives=[one.tempo for one in body.tempo_alternatives],
        key_confidence=body.key_confidence,
        time_signature=body.time_signature,
        duration_s=body.duration_ms / 1000,
        loudness_lufs=body.loudness,
        mix_in_s=body.mix_in,
        mix_out_s=body.mix_out,
        tags={one.tag: round(one.score, 3) for one in body.mood_tags[:SHOWN_TAGS]},
    )


def track(body: LibraryTrackBody) -> Track:
    """Answer with a track."""
    said = body.model_dump(include=set(Track.model_fields) - {"key"})
    return Track(**said, key=key_name(body.key, body.mode))


def neighbour(body: SimilarTrack) -> Neighbour:
    """Answer with a track that sounds like another."""
    return Neighbour(
        **track(body.track).model_dump(),
        distance=body.distance,
        key_relation=body.key_relation,
        tempo_ratio=body.tempo_ratio,
        shared_tags=body.shared_tags,
    )
