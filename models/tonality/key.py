"""Musical key from harmonic pitch class profiles and probe-tone-like profiles."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.frontends import blocks_of, magnitudes

SAMPLE_RATE = 22_050
WIN_LENGTH = 4096
HOP_LENGTH = 2048
BINS_PER_SEMITONE = 10

_F_MIN_HZ, _F_MAX_HZ = 25.0, 3500.0
_N_PEAKS = 60
_N_HARMONICS = 4
_HARMONIC_DECAY = 0.6
_VOTE = float(1 << 22)
"""Vote of a frame's strongest peak; the sum of a frame's votes stays far below 2³¹."""
_FAINTEST = 1e-5 * WIN_LENGTH / 4
"""Magnitude of a sine at -100 dBFS: the dither of 16 bits is silence, not twelve notes."""
_C0_HZ = 440.0 * 2.0 ** (-57 / 12)

# Faraldo, Jordà, Herrera, "A multi-profile method for key estimation in EDM", AES Conference on
# Semantic Audio, 2017 ("bgate"): tonic first. It accommodates modes and flat sevenths.
_MAJOR = (1.00, 0.00, 0.42, 0.00, 0.53, 0.37, 0.00, 0.77, 0.00, 0.38, 0.21, 0.30)
_MINOR = (1.00, 0.00, 0.36, 0.39, 0.00, 0.38, 0.00, 0.74, 0.27, 0.00, 0.42, 0.23)
_TEMPLATES = np.stack([np.roll(of_mode, n) for of_mode in (_MAJOR, _MINOR) for n in range(12)])
_TEMPLATES -= _TEMPLATES.mean(axis=1, keepdims=True)
_TEMPLATES /= np.linalg.norm(_TEMPLATES, axis=1, keepdims=True)


_EVIDENCE = 12.0
"""Log-odds per unit of correlation. This value calibrates the posterior of the profiles alone on
real recordings (on rendered music, 16 to 20 would)."""
_WITNESS_FLOOR = 0.001
_BESIDE_WITNESSES = 8.0
"""Like `_EVIDENCE`, if there are witnesses."""
_TOGETHER = 0.4
"""Factor of all evidence if there are witnesses, since they overlap with the profiles. This value
calibrates real recordings (rendered music: more than .45)."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key estimate.

    Attributes:
        key: Pitch class of the tonic, C = 0; -1 unknown.
        mode: 1 major, 0 minor, -1 unknown.
        confidence: 0 to 1.
    """

    key: int
    mode: int
    confidence: float


UNKNOWN = Key(-1, -1, 0.0)


class Hpcp(nn.Module):
    """Harmonic pitch class profile of spectral peaks, ten bins per semitone."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WIN_LENGTH))
        shifts = 12.0 * torch.log2(torch.arange(1, _N_HARMONICS + 1, dtype=torch.float64))
        self._shifts = tuple(shifts.tolist())
        self._first = int(np.ceil(_F_MIN_HZ * WIN_LENGTH / SAMPLE_RATE))
        self._last = int(_F_MAX_HZ * WIN_LENGTH / SAMPLE_RATE)

    def forward(self, waveform: Tensor) -> Tensor:
        """Compute the profile of every whole frame.

        Each of the 60 strongest spectral peaks votes for the pitch classes whose first to fourth
        harmonic it may be, with less weight for higher harmonics.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, T ≥ 4096.

        Returns:
            float32 ``[B, 1 + ⌊(T - 4096) / 2048⌋, 120]`` from C upwards, 10 cents per bin, each
            frame's largest value 1; silence gives zeros. See `fold`.
        """
        bins = slice(self._first - 1, self._last + 2)
        spectra = [
            magnitudes(torch.fft.rfft(frames * self.window)[..., bins])
            for frames in blocks_of(waveform.unfold(-1, WIN_LENGTH, HOP_LENGTH))
        ]
        magnitude = torch.cat(spectra, dim=1)
        left, centre, right = magnitude[..., :-2], magnitude[..., 1:-1], magnitude[..., 2:]
        is_peak = (centre > left) & (centre >= right)
        strength, picks = (centre * is_peak).topk(_N_PEAKS, dim=-1, sorted=False)
        a, c = left.gather(-1, picks), right.gather(-1, picks)
        # If there are fewer peaks, the rest have no strength and no weight.
        curve = (2.0 * strength - a - c).clamp_min(1e-12)
        places = picks + self._first + (0.5 * (c - a) / curve).clamp(-0.5, 0.5)
        pitch = 12.0 * torch.log2(places * (SAMPLE_RATE / WIN_LENGTH / _C0_HZ))
        # Counted in integers: a GPU adds in any order, and sums of floats would differ.
        loudest = strength.amax(-1, keepdim=True)
        unit = _VOTE / loudest.clamp_min(1e-12)
        counts = torch.zeros(
            *strength.shape[:-1], 12 * BINS_PER_SEMITONE, dtype=torch.int32, device=waveform.device
        )
        for harmonic, shift in enumerate(self._shifts):
            nearest = ((pitch - shift) * BINS_PER_SEMITONE).round().long()
            votes = (strength * (unit * _HARMONIC_DECAY**harmonic)).int()
            counts.scatter_add_(-1, nearest % (12 * BINS_PER_SEMITONE), votes)
        profile = counts.float()
        largest = profile.amax(-1, keepdim=True)
        is_heard = largest * loudest > _FAINTEST * _VOTE
        return torch.where(is_heard, profile / largest.clamp_min(1.0), 0.0)


def fold(profile: NDArray[np.float32], tuning_cents: float = 0.0) -> NDArray[np.float32]:
    """Fold the bins of `Hpcp` to pitch classes.

    The farther a vote lies from equal temperament, the less it counts (cos²).

    Args:
        profile: float32 ``[N, 120]``.
        tuning_cents: Offset of the recording's pitch classes, see `models.tonality.tuning`.

    Returns:
        Chroma, float32 ``[N, 12]`` from C, each frame's largest value 1; silence gives zeros.
    """
    at = np.arange(12 * BINS_PER_SEMITONE) / BINS_PER_SEMITONE - tuning_cents / 100.0
    distance = (at[:, None] - np.arange(12) + 6.0) % 12.0 - 6.0
    weights = np.where(np.abs(distance) < 0.5, np.cos(np.pi * distance) ** 2, 0.0)
    # torch uses only the threads it is given; NumPy's would busy-wait for more work.
    chroma = (torch.from_numpy(profile) @ torch.from_numpy(weights).float()).numpy()
    largest = chroma.max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(chroma / np.where(largest > 0.0, largest, 1.0), dtype=np.float32)


def profile_correlations(chroma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlate a pitch class profile with the key profiles.

    Args:
        chroma: float ``[12]`` from C.

    Returns:
        Pearson correlations ``[24]``: C major … B major, C minor … B minor; a flat profile gives 0.
    """
    centred = chroma - chroma.mean()
    norm = np.linalg.norm(centred)
    if norm < 1e-9:
        return np.zeros(24)
    return np.asarray(_TEMPLATES @ centred / norm)


def choose_key(
    correlations: NDArray[np.float64], witnesses: NDArray[np.float64] | None = None
) -> Key:
    """Choose the likeliest of the 24 keys; its posterior probability is the confidence.

    Args:
        correlations: See `profile_correlations`.
        witnesses: Probabilities ``[K, 24]`` of networks, in the same order.
    """
    if witnesses is None:
        evidence = _EVIDENCE * correlations
    else:
        heard = np.log(witnesses + _WITNESS_FLOOR).sum(axis=0)
        evidence = _TOGETHER * (_BESIDE_WITNESSES * correlations + heard)
    posterior = np.exp(evidence - evidence.max())
    best = int(evidence.argmax())
    return Key(best % 12, 1 if best < 12 else 0, float(posterior[best] / posterior.sum()))
