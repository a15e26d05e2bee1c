"""Key of a track, and its chroma."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.tonality.key import (
    HOP_LENGTH,
    SAMPLE_RATE,
    UNKNOWN,
    WIN_LENGTH,
    Hpcp,
    Key,
    choose_key,
    fold,
    profile_correlations,
)
from models.tonality.skey import CROP_LENGTH
from pipelines.audio.gain import audible, peak_of, sounding
from pipelines.audio.resample import resample
from pipelines.audio.track import resampled
from pipelines.batching.framed import FrameGrid, pad_to, up_to_silence
from pipelines.batching.windows import WindowSpec, cut, repeated, window_starts

GRID_FRAMES = 320
"""29.8 s, the length of every forward."""
_CROP_SPACING = 3
_MAX_CROPS = 8
_IN_TUNE_CENTS = 5.0
"""A deviation this small changes no key."""
_LEAST_CORRELATION = 0.3
_LEAST_CONTRAST = 0.2
"""Standard deviation over mean of the profile: noise has .09-.20, music .32 and more."""


class ChromaModel:
    """Harmonic pitch class profiles as a windowed model; output ``pitches [B, 320, 120]``."""

    def __init__(self, model_id: str, device: torch.device) -> None:
        self.model_id = model_id
        self.grid = FrameGrid(
            SAMPLE_RATE, HOP_LENGTH, GRID_FRAMES, overhang=WIN_LENGTH - HOP_LENGTH
        )
        self.spec = self.grid.spec
        self._device = device
        self._hpcp = Hpcp().to(device)

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        on_device = windows.to(self._device, torch.float32)
        if self._device.type != "cpu":
            return {"pitches": self._hpcp(on_device)}
        overhang = self.grid.overhang
        return {"pitches": up_to_silence(on_device, HOP_LENGTH, self._hpcp, overhang=overhang)}

    def chroma(
        self, rows: Mapping[str, Tensor], n_samples: int, tuning_cents: float
    ) -> NDArray[np.float32]:
        """Join the rows of a track of ``n_samples`` samples into its chroma ``[N, 12]``."""
        return join_chroma(rows, self.grid, n_samples, tuning_cents)


def join_chroma(
    rows: Mapping[str, Tensor], grid: FrameGrid, n_samples: int, tuning_cents: float
) -> NDArray[np.float32]:
    """Join the rows of `ChromaModel`, as `ChromaModel.chroma` does, given the grid."""
    return fold(grid.join(rows["pitches"], n_samples).numpy(), tuning_cents)


class KeyNetworkModel:
    """K key networks on the same crops; output ``keys [B, K, 24]``.

    Args:
        model_id: One id for all of them.
        networks: Each maps ``[B, T]``, the track's peak at 1, to probabilities ``[B, 24]``.
        device: Where they run.
    """

    def __init__(self, model_id: str, networks: Sequence[nn.Module], device: torch.device) -> None:
        self.model_id = model_id
        self.spec = WindowSpec(
            SAMPLE_RATE, CROP_LENGTH, CROP_LENGTH * _CROP_SPACING, max_windows=_MAX_CROPS
        )
        self._device = device
        self._networks = [network.to(device).requires_grad_(False) for network in networks]

    def windows(self, samples: Tensor, tuning_cents: float) -> Tensor:
        """Cut ``[T]`` into 15 s crops, spread evenly over the sound; less sound is repeated.

        Crops out of tune are brought to 440 Hz by playing them slower or faster: the networks have
        few bins per octave, and a quarter tone between them is noise to them. Silent crops are left
        out.
        """
        samples = sounding(samples, SAMPLE_RATE // 2)
        peak = max(peak_of(samples), 1e-6)
        if 0 < len(samples) < CROP_LENGTH:
            samples = repeated(samples, CROP_LENGTH)
        starts = window_starts(len(samples), self.spec)
        evenly = np.linspace(0, starts[-1], len(starts)).astype(int).tolist()
        crops = audible(cut(samples, evenly, CROP_LENGTH).float())
        if abs(tuning_cents) > _IN_TUNE_CENTS:
            crops = tuned(crops, tuning_cents)
        return crops / peak

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        crops = windows.to(self._device, torch.float32)
        return {"keys": torch.stack([network(crops) for network in self._networks], dim=1)}


def tuned(crops: Tensor, tuning_cents: float) -> Tensor:
    """Play float32 ``[W, T]``, sharp by some cents, in tune; T stays the same."""
    return repeated(played_in_tune(crops, tuning_cents), crops.shape[-1])


def played_in_tune(samples: Tensor, tuning_cents: float) -> Tensor:
    """Play ``[…, T]`` slower if it is sharp by some cents, faster if it is flat; as float32."""
    rate = _rate_in_tune(tuning_cents)
    if samples.device.type != "cpu":
        return resampled(samples, rate, SAMPLE_RATE)
    return torch.from_numpy(resample(samples.float().numpy(), rate, SAMPLE_RATE))


def length_in_tune(n_samples: int, tuning_cents: float) -> int:
    """Return the length of a track of ``n_samples`` samples when `stretch_in_tune` plays it."""
    return -(-n_samples * SAMPLE_RATE // _rate_in_tune(tuning_cents))


def stretch_in_tune(samples: Tensor, tuning_cents: float, start: int, length: int) -> Tensor:
    """Play a stretch of ``[T]`` as `played_in_tune` plays the whole.

    Returns:
        float32 ``[length]`` from sample ``start`` of the played track; zeros after its end.
    """
    rate = _rate_in_tune(tuning_cents)
    # A whole second is a whole number of samples at both rates; one more each side for the filter.
    first_s = max(0, start // SAMPLE_RATE - 1)
    stop = -(-(start + length) * rate // SAMPLE_RATE) + rate
    played = played_in_tune(samples[first_s * rate : stop], tuning_cents)
    return pad_to(played[start - first_s * SAMPLE_RATE :][:length], length)


def _rate_in_tune(tuning_cents: float) -> int:
    """Return the rate to assume for samples so that they are in tune at `SAMPLE_RATE`."""
    rate: int = round(SAMPLE_RATE * 2.0 ** (-tuning_cents / 1200.0))
    return rate


def estimate_key(
    chroma: NDArray[np.float32],
    networks: NDArray[np.float32] | None = None,
) -> Key:
    """Find the key of a stretch of music.

    Args:
        chroma: float32 ``[N, 12]`` from C.
        networks: float32 ``[W, K, 24]``, probabilities of W crops by K networks, if there are any.

    Returns:
        The key; silence and sound without tonality are `UNKNOWN`.
    """
    profile = chroma.sum(axis=0, dtype=np.float64)
    correlations = profile_correlations(profile)
    if correlations.max() < _LEAST_CORRELATION or profile.std() < _LEAST_CONTRAST * profile.mean():
        return UNKNOWN
    witnesses = None if networks is None else networks.mean(axis=0, dtype=np.float64)
    return choose_key(correlations, witnesses)
