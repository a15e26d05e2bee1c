"""The analysis of a track, in forms for a notebook: arrays, names, a table, a picture."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from pipelines.analysis.records import ATTRIBUTES, TrackFeatures
from pipelines.analysis.tonality.notes import mode_name, pitch_class

if TYPE_CHECKING:
    from afa.plot import Picture

Vector = NDArray[np.float32]
Seconds = NDArray[np.float64]

SHOWN_TAGS = 8


@dataclass(frozen=True, eq=False)
class Track:
    """An analysed track.

    Attributes:
        path: Its file.
        duration_s: Length in seconds.
        tempo: BPM; 0 if there is no beat.
        beats: Times of all beats in seconds, ascending.
        downbeats: Times of the beats that begin a bar.
        time_signature: Beats in a bar.
        key: Such as ``A minor``; None if there is none.
        camelot: The key's name on the Camelot wheel.
        loudness_lufs: Integrated loudness (BS.1770-4); silence is -70.
        attributes: Energy, danceability, valence and so on, each 0 to 1.
        tags: Score of each tag, 0 to 1, highest first.
        embedding: float32 ``[768]`` of norm 1 (zeros for silence); compare only embeddings of the
            same model.
        models: Id of the checkpoint that was used for each role.
        record: Everything else: confidences (also of attributes), mix points, chords, segments,
            sections.
    """

    path: Path
    duration_s: float
    tempo: float
    beats: Seconds
    downbeats: Seconds
    time_signature: int
    key: str | None
    camelot: str | None
    loudness_lufs: float
    attributes: dict[str, float]
    tags: dict[str, float]
    embedding: Vector
    models: dict[str, str]
    record: TrackFeatures

    @classmethod
    def of(cls, path: Path, record: TrackFeatures) -> Self:
        """Make a track from the record that the analysis steps merged into."""
        name, mode = pitch_class(record.key), mode_name(record.mode)
        return cls(
            path=path,
            duration_s=record.duration_s,
            tempo=record.tempo,
            beats=np.array(record.beats),
            downbeats=np.array(record.downbeats),
            time_signature=record.time_signature,
            key=f"{name} {mode}" if name and mode else None,
            camelot=record.camelot or None,
            loudness_lufs=record.loudness_lufs,
            attributes={name: getattr(record, name) for name in ATTRIBUTES},
            tags={tag.tag: tag.score for tag in record.mood_tags},
            embedding=np.array(record.embedding, dtype=np.float32),
            models=record.models,
            record=record,
        )

    def __repr__(self) -> str:
        return (
            f"<Track {self.path.name}: {self.tempo:.1f} BPM, {self.key or 'no key'}, "
            f"{self.loudness_lufs:.1f} LUFS, {self.duration_s:.0f} s>"
        )

    def _repr_html_(self) -> str:
        key = f"{self.key} ({self.camelot})" if self.key else "none"
        rows = {
            "tempo": f"{self.tempo:.1f} BPM, {self.time_signature}/4, {len(self.beats)} beats",
            "key": key,
            "loudness": f"{self.loudness_lufs:.1f} LUFS",
            "length": f"{self.duration_s:.1f} s",
            "tags": escape(", ".join(list(self.tags)[:SHOWN_TAGS])) or "none",
        }
        rows |= {name: _bar(value) for name, value in self.attributes.items()}
        cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items())
        return f"<table><caption>{escape(self.path.name)}</caption>{cells}</table>"

    def plot(self) -> "Picture":
        """Draw waveform and beats, chroma and key, and the attributes; the file is read again.

        Raises:
            AudioError: The file can no longer be read.
        """
        from afa.plot import draw
        from afa.reading import read

        return draw(read(self.path), self.record, self.path.name)


def _bar(value: float) -> str:
    style = f"display:inline-block;height:.8em;width:{8 * value:.2f}em;background:#4b6cb7"
    return f'<span style="{style}"></span> {value:.2f}'
