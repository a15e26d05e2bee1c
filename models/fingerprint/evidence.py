"""How strongly every point of a clip's spectrogram suggests a hidden landmark there.

Noise, a room or other music leave few landmarks of a track as local maxima, and fewer triplets.
The traces of the others are still more than chance: from a point's surroundings, a small network
estimates how likely it is that a landmark of the clip's own track lies there. Summed over all
landmarks of a passage, this shows whether a clip comes from it (`models.fingerprint.support`).
"""

from importlib.resources import files

import torch
import torch.nn.functional as torch_f
from safetensors.torch import load
from torch import Tensor, nn

WEIGHTS = "afa-landmarks-3.safetensors"
CHANNELS = 12
KERNEL = (3, 5)
"""Bins and frames of each of three layers, which see 7 bins (75 Hz) by 13 frames (0.3 s) in all."""
STEP = 1 / 12
"""Evidence is kept as int8 in steps of this size, in natural log-odds: ±10.6."""
LOWEST_PROMINENCE, HIGHEST_PROMINENCE = -3.0, 5.0
LOWEST_DISTANCE = -4.0


class EvidenceNetwork(nn.Module):
    """Three convolutions (see `models/weights/afa-landmarks-3.md`)."""

    def __init__(self) -> None:
        super().__init__()
        padding = (KERNEL[0] // 2, KERNEL[1] // 2)
        self.convs = nn.ModuleList(
            nn.Conv2d(n, CHANNELS, KERNEL, padding=padding) for n in (2, CHANNELS, CHANNELS)
        )
        self.out = nn.Conv2d(CHANNELS, 1, 1)

    @classmethod
    def shipped(cls) -> "EvidenceNetwork":
        """Return the network with the weights that are part of afa."""
        network = cls()
        network.load_state_dict(load(files("models").joinpath("weights", WEIGHTS).read_bytes()))
        return network.eval()

    def forward(self, prominence: Tensor, distance: Tensor) -> Tensor:
        """Weigh every point.

        Args:
            prominence: float32 ``[B, F, N]``, level over the mean around, natural log of magnitude.
            distance: The same shape, level over the largest one around: 0 or less.

        Returns:
            Natural log-odds, float32 ``[B, F, N]``, that a landmark lies there, if its presence and
            absence are equally frequent.
        """
        x = torch.stack(
            [
                prominence.clamp(LOWEST_PROMINENCE, HIGHEST_PROMINENCE),
                distance.clamp(min=LOWEST_DISTANCE),
            ],
            dim=1,
        ).contiguous(memory_format=torch.channels_last)
        for conv in self.convs:
            x = torch_f.elu(conv(x))
        log_odds: Tensor = self.out(x)[:, 0]
        return log_odds


def to_steps(log_odds: Tensor) -> Tensor:
    """Round to int8 in steps of `STEP`."""
    return (log_odds / STEP).round().clamp(-127, 127).to(torch.int8)
