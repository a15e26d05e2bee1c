"""What is written into tags, as text, apart from how each format keeps it."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from pipelines.analysis.records import TrackFeatures
from serve_app.services.export.key_names import KeyFormat, key_name

REPLAYGAIN_LUFS = -18.0
"""Loudness that ReplayGain 2.0 brings tracks to."""
R128_LUFS = -23.0
"""Loudness that Opus' own gain refers to (RFC 7845, 5.2.1)."""


class Field(StrEnum):
    """Fields that can be written."""

    BPM = "bpm"
    KEY = "key"
    ENERGY = "energy"
    REPLAYGAIN = "replaygain"
    COMMENT = "comment"


DEFAULT_FIELDS = (Field.BPM, Field.KEY, Field.ENERGY, Field.REPLAYGAIN)


class Tag(StrEnum):
    """A value in a file; `serve_app.cli.library.tag_formats` knows its name in each format."""

    BPM = "BPM"
    KEY = "key"
    ENERGY = "energy level"
    GAIN = "track gain"
    PEAK = "track peak"
    R128_GAIN = "R128 track gain"
    COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants written, and in which key format."""

    fields: Collection[Field]
    key_format: KeyFormat


def values_of(heard: TrackFeatures, wish: Wish) -> dict[Tag, str]:
    """Return the values for a track; tags for what is unknown stay as they are."""
    key = key_name(heard.key, heard.mode, wish.key_format)
    energy = str(max(1, round(10 * heard.energy)))
    gain_db = REPLAYGAIN_LUFS - heard.loudness_lufs
    is_silent = heard.loudness_lufs <= -70.0
    known: dict[Field, dict[Tag, str]] = {
        Field.BPM: {Tag.BPM: f"{heard.tempo:.2f}".rstrip("0").rstrip(".")} if heard.tempo else {},
        Field.KEY: {Tag.KEY: key} if key else {},
        Field.ENERGY: {Tag.ENERGY: energy},
        Field.REPLAYGAIN: {}
        if is_silent
        else {
            Tag.GAIN: f"{gain_db:.2f} dB",
            Tag.PEAK: f"{10 ** (heard.true_peak_dbtp / 20):.6f}",
            Tag.R128_GAIN: str(round(256 * (R128_LUFS - heard.loudness_lufs))),
        },
        Field.COMMENT: {Tag.COMMENT: f"{key} - Energy {energy}" if key else f"Energy {energy}"},
    }
    return {tag: text for field in wish.fields for tag, text in known[field].items()}
