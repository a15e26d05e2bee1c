"""AcousticBrainz's shapes, for the reference; `services.export.acousticbrainz` makes the values."""

from typing import Any

from pydantic import Field

from serve_app.api.wire.bodies import RequestModel, Unit, WireModel
from serve_app.api.wire.meanings import ARTIST, IDS, KEY_CONFIDENCE, LOUDNESS, MODELS, TITLE


class AudioProperties(WireModel):
    """The audio that was measured."""

    length: float | None = Field(None, description="Seconds.")


class RecordingTags(WireModel):
    """Names and identifiers of the recording; each in a list, as tags are."""

    artist: list[str] | None = Field(None, description=ARTIST)
    title: list[str] | None = Field(None, description=TITLE)
    album: list[str] | None = Field(None, description="Album or single it is on.")
    isrc: list[str] | None = Field(None, description=IDS["isrc"])
    musicbrainz_recordingid: list[str] | None = Field(None, description=IDS["mbid"])


class ExtractorVersion(WireModel):
    """What measured the recording."""

    extractor: str = Field(description="`afa`, or another source such as `acousticbrainz`.")
    models: dict[str, str] | None = Field(None, description=MODELS)


class RecordingMetadata(WireModel):
    """What the document describes."""

    audio_properties: AudioProperties = Field(description="Its length.")
    tags: RecordingTags = Field(description="Its names and identifiers.")
    version: ExtractorVersion = Field(description="Who measured it, and with what.")


class LoudnessEbu128(WireModel):
    """Loudness by EBU R 128."""

    integrated: float = Field(description=LOUDNESS)
    loudness_range: float = Field(description="In LU (EBU Tech 3342).")


class LowLevelSignal(WireModel):
    """The part of AcousticBrainz's `lowlevel` that afa measures."""

    loudness_ebu128: LoudnessEbu128 | None = Field(None, description="Loudness by EBU R 128.")


class Rhythm(WireModel):
    """Tempo and beats."""

    bpm: float | None = Field(None, description="Beats per minute; left out if there is no beat.")
    beats_count: int | None = Field(None, description="Number of beats.")
    beats_position: list[float] | None = Field(None, description="Time of every beat in seconds.")


class Tonal(WireModel):
    """The key."""

    key_key: str | None = Field(None, description="Pitch class, C to B, in sharps.")
    key_scale: str | None = Field(None, description="`major` or `minor`.")
    key_strength: Unit | None = Field(None, description=KEY_CONFIDENCE)


class LowLevel(WireModel):
    """The low-level document of a recording, with what afa measures."""

    lowlevel: LowLevelSignal = Field(description="Its loudness.")
    metadata: RecordingMetadata = Field(description="Which recording, and who measured it.")
    rhythm: Rhythm = Field(description="Its tempo, and where its beats are.")
    tonal: Tonal = Field(description="Its key; empty when there is none.")


class Classified(WireModel):
    """One of two classes."""

    all: dict[str, float] = Field(description="The probability of each class.")
    probability: Unit = Field(description="Probability of `value`.")
    value: str = Field(description="The more likely class.")


class HighLevel(WireModel):
    """The high-level document of a recording, with what afa measures."""

    highlevel: dict[str, Classified] = Field(
        description="`danceability`, `mood_acoustic`, `mood_happy` and `voice_instrumental`; "
        "`mood_aggressive`, `mood_electronic`, `mood_party`, `mood_relaxed`, `mood_sad` and "
        "`gender` if they were found. Empty if afa has not analysed the recording."
    )
    metadata: RecordingMetadata = Field(description="Which recording, and who measured it.")


class DocumentCount(WireModel):
    """How many documents a recording has."""

    count: int = Field(ge=0, le=1, description="1, or 0 if nothing is known about it.")


class RecordingCount(DocumentCount):
    """How many documents one recording has."""

    mbid: str = Field(description=IDS["mbid"])


class LowLevelSubmission(RequestModel):
    """A low-level document as `streaming_extractor_music` writes it; all else is ignored."""

    rhythm: dict[str, Any] = Field(description="`bpm` is kept.", examples=[{"bpm": 124.0}])
    tonal: dict[str, Any] = Field(
        description="`key_key` and `key_scale` are kept; from newer extractors, `key_edma`.",
        examples=[{"key_key": "A", "key_scale": "minor"}],
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="From `tags`, artist, title, album and ISRC are kept; from "
        "`audio_properties`, the length.",
    )


class Submitted(WireModel):
    """The document was kept."""

    message: str = Field(description="`ok`.")
