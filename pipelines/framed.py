"""Windows on a frame grid, whose rows join without a seam.

A model of frames sees a track in windows of one length. Frames that a window cannot know fully (a
recurrent state warming up, an FFT reaching over the end) are taken from its neighbour, so that the
joined frames equal those of the track in one piece.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.windows import WindowSpec


@dataclass(frozen=True, slots=True)
class FrameGrid:
    """How a model's windows lie on its frames.

    Attributes:
        sample_rate: Hz.
        hop_length: Samples between frames.
        n_frames: Frames in a window.
        lead: Frames at a window's start that the window before knows better.
        tail: Frames at a window's end that the next window knows better.
        overhang: Samples of the last frame beyond its hop, for frames that are not centred.
        channels: Of the windows.
    """

    sample_rate: int
    hop_length: int
    n_frames: int
    lead: int = 0
    tail: int = 0
    overhang: int = 0
    channels: int = 1

    @property
    def spec(self) -> WindowSpec:
        """The same as a `WindowSpec`."""
        return WindowSpec(
            sample_rate=self.sample_rate,
            length=self.n_frames * self.hop_length + self.overhang,
            hop=(self.n_frames - self.lead - self.tail) * self.hop_length,
            channels=self.channels,
        )

    def count(self, n_samples: int) -> int:
        """Frames of a track of ``n_samples`` samples, at least one; the last may reach over."""
        return max(1, -(-(n_samples - self.overhang) // self.hop_length))

    def windows(self, samples: NDArray[np.float32]) -> Tensor:
        """Cut ``[T]`` or ``[C, T]`` to windows ``[W, …, length]``, the last one padded with zeros.

        The windows are a view of one padded copy: overlaps cost no memory.
        """
        spec = self.spec
        padded = (self._n_windows(samples.shape[-1]) - 1) * spec.hop + spec.length
        padding = [(0, 0)] * (samples.ndim - 1) + [(0, padded - samples.shape[-1])]
        whole = torch.from_numpy(np.pad(samples, padding))
        return whole.unfold(-1, spec.length, spec.hop).movedim(-2, 0)

    def join(self, rows: Tensor, n_samples: int) -> Tensor:
        """Join rows ``[W, n_frames, …]`` to the track's frames ``[N, …]``, N as `count` says."""
        inner = rows[:, self.lead : self.n_frames - self.tail].flatten(0, 1)
        # The first window has no neighbour before it, the last none behind it.
        joined = torch.cat([rows[0, : self.lead], inner, rows[-1, self.n_frames - self.tail :]])
        return joined[: self.count(n_samples)]

    def _n_windows(self, n_samples: int) -> int:
        hop_frames = self.n_frames - self.lead - self.tail
        return 1 + max(0, -(-(self.count(n_samples) - self.n_frames) // hop_frames))
