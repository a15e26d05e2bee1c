"""Chords and basses, five times a second, from a small equivariant network."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.tonality.keynet import HIDDEN, HOP_LENGTH, WIN_LENGTH, KeyBands, KeyTrunk, compressed

SAMPLE_RATE = 22_050
FRAMES_TOGETHER = 2
FRAME_SAMPLES = FRAMES_TOGETHER * HOP_LENGTH
"""Samples from a frame to the next, .186 s."""
OVERHANG = WIN_LENGTH - HOP_LENGTH
"""Samples by which the last frame exceeds its hop."""
FRAME_CENTRE = (FRAME_SAMPLES + OVERHANG) // 2
"""Samples from a frame's start to its middle."""

N_CHORDS = 25
"""C major … B major, C minor … B minor, and none."""
NO_CHORD = 24
N_BASSES = 13
"""C … B, and none."""

_DILATIONS = (1, 2, 4, 8)
_LEVEL_FRAMES = 21
_QUIETEST = 0.05
"""Least level to divide by; music with a peak of 1 has some 13."""
RECEPTIVE_FRAMES = _LEVEL_FRAMES // 2 + 3 + sum(_DILATIONS)
"""Frames on either side that a frame's answer depends on."""


def levelled(bands: Tensor) -> Tensor:
    """Divide ``[B, N, 180]`` by the mean of some four seconds around, at least `_QUIETEST`."""
    means = bands.mean(-1)[:, None]
    around = functional.avg_pool1d(
        means, _LEVEL_FRAMES, 1, _LEVEL_FRAMES // 2, count_include_pad=False
    )
    return bands / around[:, 0, :, None].clamp_min(_QUIETEST)


class ChordHead(nn.Module):
    """Maps features of each pitch class and time to chords, basses and pitch classes."""

    def __init__(self) -> None:
        super().__init__()
        self.local = nn.Conv2d(HIDDEN, 4, 1)
        """Major, minor, bass, sounding."""
        self.none = nn.Linear(HIDDEN, 2)
        """No chord, no bass."""

    def forward(self, heard: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map ``[B, 32, 12, N]`` to logits ``[B, N, 25]``, ``[B, N, 13]`` and ``[B, N, 12]``."""
        major, minor, bass, sounding = self.local(heard).transpose(2, 3).unbind(1)
        no_chord, no_bass = self.none(heard.mean(2).transpose(1, 2)).split(1, dim=-1)
        return (
            torch.cat([major, minor, no_chord], dim=-1),
            torch.cat([bass, no_bass], dim=-1),
            sounding,
        )


class ChordNetwork(nn.Module):
    """Bands, trunk and head (see `models/weights/afa-chords-2.md`)."""

    def __init__(self) -> None:
        super().__init__()
        self.bands = KeyBands(FRAMES_TOGETHER)
        self.trunk = KeyTrunk(_DILATIONS)
        self.head = ChordHead()

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ChordNetwork":
        """Build from a checkpoint's tensors, for inference.

        Raises:
            RuntimeError: Tensors are missing, extra or misshapen.
        """
        network = cls()
        network.load_state_dict(dict(tensors))
        network.eval().trunk.settle()
        return network

    def logits(self, bands: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map magnitudes ``[B, N, 180]`` to logits; see `ChordHead`."""
        heard = self.trunk(compressed(levelled(bands)))
        chords, basses, sounding = self.head(heard)
        return chords, basses, sounding

    def forward(self, waveform: Tensor) -> Tensor:
        """Find the chords in float32 ``[B, T]`` at 22,050 Hz, in tune with 440 Hz, T ≥ 6,144.

        Returns:
            Log-probabilities, float32 ``[B, N, 38]``, a frame every `FRAME_SAMPLES` samples: the
            25 chords (see `N_CHORDS`), then the 13 basses.
        """
        chords, basses, _ = self.logits(self.bands.magnitudes(waveform))
        return torch.cat([chords.log_softmax(-1), basses.log_softmax(-1)], dim=-1)
