"""Recordings without labels, and the keys that afa finds in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.checkpoints.cards import ModelCard
from models.tonality.key import profile_correlations
from models.tonality.keynet import SAMPLE_RATE, KeyBands
from models.tonality.skey import CROP_LENGTH
from models.tonality.tuning import estimate_tuning
from pipelines.analysis.spectral import CHROMA_ID, load_chord_model, load_key_networks
from pipelines.analysis.tonality.chords import join_chords
from pipelines.analysis.tonality.key import ChromaModel, played_in_tune
from pipelines.audio.gain import peak_of
from pipelines.batching.steps import CPU, forward_windows
from pipelines.training.kept import reading
from pipelines.training.key.chord_keys import key_of_chords
from pipelines.training.recordings import SHORTEST_S, decode_beginning

LONGEST_S = 360.0
QUIETEST = 0.02
"""Share of the recording's peak: a stretch that stays below is left out."""
_BATCH = 2
_STRETCH = 30 * SAMPLE_RATE
_PROFILES, _WITNESS_FLOOR, _TOGETHER = 12.0, 0.001, 0.3
"""Weights of a stretch's evidence, as in the service when `afa-key-2` was trained."""
_AROUND = (0.25, 0.5, 1.0, 0.5, 0.25)
"""Weights of the evidence of a stretch and its neighbours for its key."""


@dataclass(frozen=True, slots=True)
class HeardRecording:
    """A recording in stretches of 30 s.

    Attributes:
        bands: float16 ``[S, N, 180]``, see `models.tonality.keynet.KeyBands`, in tune with 440 Hz.
        keys: float32 ``[S, 24]``, probabilities: C major … B major, C minor … B minor.
    """

    bands: NDArray[np.float16]
    keys: NDArray[np.float32]

    def save(self, path: Path) -> None:
        """Write the recording; the file appears whole or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(part, bands=self.bands, keys=self.keys)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "HeardRecording":
        """Read what `save` wrote; raises as `pipelines.training.kept.reading`."""
        with reading(path) as file, np.load(file) as content:
            return cls(content["bands"], content["keys"])


class KeyEar:
    """Finds keys by profiles, key networks and chords.

    Args:
        cards: Role → cards, see `models.checkpoints.cards.choose_cards`.
        model_dir: The model cache.

    Raises:
        CheckpointError: A checkpoint is absent or damaged.
    """

    def __init__(self, cards: Mapping[str, tuple[ModelCard, ...]], model_dir: Path) -> None:
        self._chroma = ChromaModel(CHROMA_ID, CPU)
        self._chords = load_chord_model(cards["chords"][0], model_dir, CPU)
        self._networks = load_key_networks(cards["key"], model_dir, CPU)
        self._bands = KeyBands()

    def read(self, source: Path) -> HeardRecording | None:
        """Analyse a file's first six minutes; None if there is no whole stretch of music."""
        samples = decode_beginning(source, LONGEST_S, SAMPLE_RATE)
        return None if samples is None else self.hear(torch.from_numpy(samples))

    def hear(self, samples: Tensor) -> HeardRecording | None:
        """Analyse float32 ``[T]`` at 22,050 Hz; None if there is no whole stretch of music."""
        peak = peak_of(samples)
        if len(samples) < SHORTEST_S * SAMPLE_RATE or not peak:
            return None
        in_tune = played_in_tune(samples, estimate_tuning(samples)) / peak
        stretches = in_tune.unfold(0, _STRETCH, _STRETCH)
        loud = stretches[stretches.abs().amax(1) >= QUIETEST]
        if not len(loud):
            return None
        with torch.inference_mode():
            bands = self._bands(loud).numpy().astype(np.float16)
            evidence = np.stack([self._evidence(one) for one in loud])
        return HeardRecording(bands, _with_those_around(evidence))

    def _evidence(self, stretch: Tensor) -> NDArray[np.float64]:
        """Return the log-odds of the keys ``[24]``."""
        n, behind = len(stretch), max(self._chroma.spec.length, self._chords.spec.length)
        padded = torch.cat([stretch, torch.zeros(behind)])
        rows = forward_windows(self._chroma, self._chroma.grid.windows(padded, n), _BATCH)
        chroma = self._chroma.chroma(rows, n, 0.0)
        windows, n_in_tune = self._chords.windows(padded, 0.0, n)
        rows = forward_windows(self._chords, windows, _BATCH)
        chords = join_chords(rows, self._chords.grid, n_in_tune, n)
        witnesses = [key_of_chords(chords.probabilities.mean(axis=0))]
        if self._networks is not None:
            crops = torch.stack([stretch[:CROP_LENGTH], stretch[-CROP_LENGTH:]])
            witnesses += [*self._networks.forward(crops)["keys"].mean(0).double().numpy()]
        correlations = profile_correlations(chroma.sum(axis=0, dtype=np.float64))
        heard = np.log(np.stack(witnesses) + _WITNESS_FLOOR).sum(axis=0)
        return np.asarray(_TOGETHER * (_PROFILES * correlations + heard))


def _with_those_around(evidence: NDArray[np.float64]) -> NDArray[np.float32]:
    """Sum ``[S, 24]`` over each stretch and its neighbours, and return the keys' probabilities."""
    reach = len(_AROUND) // 2
    padded = np.pad(evidence, ((reach, reach), (0, 0)))
    together = sum(weight * padded[n : n + len(evidence)] for n, weight in enumerate(_AROUND))
    odds = torch.from_numpy(np.asarray(together))
    return np.asarray(odds.softmax(-1).float().numpy())
