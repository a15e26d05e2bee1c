"""Recordings without labels, and the chords that the teacher finds in them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from models.tonality.chordnet import FRAME_CENTRE, FRAME_SAMPLES, FRAMES_TOGETHER, SAMPLE_RATE
from models.tonality.keynet import KeyBands
from models.tonality.tuning import estimate_tuning
from pipelines.analysis.tonality.key import played_in_tune
from pipelines.audio.gain import peak_of
from pipelines.training.chords.teacher import ChordTeacher
from pipelines.training.kept import reading
from pipelines.training.recordings import SHORTEST_S, decode_beginning

LONGEST_S = 180.0


@dataclass(frozen=True, slots=True)
class TaughtRecording:
    """A recording's bands and chords.

    Attributes:
        bands: float16 ``[N, 180]``, in tune with 440 Hz, see
            `models.tonality.keynet.KeyBands.magnitudes`.
        chords: float16 ``[N, 37]``, see `pipelines.training.chords.teacher.TaughtChords`.
        basses: float16 ``[N, 13]``.
    """

    bands: NDArray[np.float16]
    chords: NDArray[np.float16]
    basses: NDArray[np.float16]

    def save(self, path: Path) -> None:
        """Write the recording; the file appears whole or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(part, bands=self.bands, chords=self.chords, basses=self.basses)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "TaughtRecording":
        """Read what `save` wrote; raises as `pipelines.training.kept.reading`."""
        with reading(path) as file, np.load(file) as content:
            return cls(content["bands"], content["chords"], content["basses"])


class ChordEar:
    """Makes the chord network's input from recordings, and the teacher's output for them.

    Raises:
        FileNotFoundError: The teacher has no weights.
    """

    def __init__(self) -> None:
        self._bands = KeyBands(FRAMES_TOGETHER)
        self._teacher = ChordTeacher()

    def read(self, source: Path) -> TaughtRecording | None:
        """Analyse a file's first three minutes; None if it is not music."""
        samples = decode_beginning(source, LONGEST_S, SAMPLE_RATE)
        return None if samples is None else self.hear(samples)

    def hear(self, samples: NDArray[np.float32]) -> TaughtRecording | None:
        """Analyse float32 ``[T]`` at 22,050 Hz; None if it is silent or shorter than 31 s."""
        waveform = torch.from_numpy(samples)
        peak = peak_of(waveform)
        if len(samples) < SHORTEST_S * SAMPLE_RATE or not peak:
            return None
        in_tune = played_in_tune(waveform, estimate_tuning(waveform)) / peak
        with torch.inference_mode():
            bands = self._bands.magnitudes(in_tune[None])[0]
        middles = (np.arange(len(bands)) * FRAME_SAMPLES + FRAME_CENTRE) / SAMPLE_RATE
        # The teacher tunes itself, and analyses the recording at its original speed.
        taught = self._teacher.hear(samples).around(middles * (len(samples) / len(in_tune)))
        return TaughtRecording(
            bands.clamp_max(60_000).numpy().astype(np.float16),
            taught.chords.astype(np.float16),
            taught.basses.astype(np.float16),
        )
