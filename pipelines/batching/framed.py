"""Windows on a frame grid, whose rows join without a seam.

A frame-based model sees a track in windows of one length. Frames that a window cannot fully compute
(a recurrent state warming up, an FFT reaching over the end) are taken from its neighbour, so that
the joined frames equal those of the track in one piece.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.batching.windows import WindowSpec

_STEPS_TOGETHER = 64
"""Steps checked together before single ones: a short track's window is mostly silence."""


def pad_to(samples: Tensor, length: int) -> Tensor:
    """Append zeros to ``[…, T]`` up to ``length`` samples; longer input is unchanged."""
    short = length - samples.shape[-1]
    return samples if short <= 0 else functional.pad(samples, (0, short))


def up_to_silence(
    windows: Tensor,
    hop_length: int,
    forward: Callable[[Tensor], Tensor],
    *,
    overhang: int = 0,
    before: int = 0,
    behind: int = 0,
    trim: int = 1,
) -> Tensor:
    """Map windows as `forward` does, but skip most of the silence that follows each one's sound.

    Frames of silence that depend on neither the sound nor the end are all the same.

    Args:
        windows: ``[B, T]`` on a CPU.
        hop_length: Samples between frames.
        forward: Maps ``[1, T]``, T = N · hop length + overhang, to frames ``[1, N, …]``.
        overhang: Samples of the last frame beyond its hop.
        before: Earlier frames that a frame depends on.
        behind: Later frames that it depends on.
        trim: Frames are computed in multiples of this number, so that few shapes occur.
    """
    n_frames = (windows.shape[-1] - overhang) // hop_length
    rows = []
    for window in torch.split(windows, 1):
        heard = -(-_n_heard(window[0], hop_length) // hop_length)
        n = min(n_frames, -(-(heard + before + behind + 1) // trim) * trim)
        row = forward(window[:, : n * hop_length + overhang])
        if n < n_frames:
            row = row[:, : n - behind]
            row = torch.cat([row, row[:, -1:].expand(1, n_frames - n + behind, *row.shape[2:])], 1)
        rows.append(row)
    return torch.cat(rows)


def _n_heard(samples: Tensor, step: int) -> int:
    """Samples of ``[T]`` up to the last sound, plus less than a step."""
    sound, n = samples.numpy(), len(samples)  # NumPy's any() is three times as fast
    for stride in (_STEPS_TOGETHER * step, step):
        while n > 0 and not sound[max(0, n - stride) : n].any():
            n -= stride
    return max(0, n)


@dataclass(frozen=True, slots=True)
class FrameGrid:
    """How a model's windows lie on its frames.

    Attributes:
        sample_rate: Hz.
        hop_length: Samples between frames.
        n_frames: Frames in a window.
        lead: Frames at a window's start that are taken from the window before.
        tail: Frames at a window's end that are taken from the next window.
        overhang: Samples of the last frame beyond its hop, for frames that are not centred.
        channels: Channels of the windows.
        trim: If the whole track fits into one window, this is cut to a multiple of so many frames,
            at least two of them after the track; 0: never. For models that treat silence like
            whatever lies outside the window, and whose frames span two hops.
    """

    sample_rate: int
    hop_length: int
    n_frames: int
    lead: int = 0
    tail: int = 0
    overhang: int = 0
    channels: int = 1
    trim: int = 0

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
        """Frames of a track of ``n_samples`` samples, at least one; the last may exceed it."""
        return max(1, -(-(n_samples - self.overhang) // self.hop_length))

    def padded_length(self, n_samples: int) -> int:
        """Samples that the windows of a track of ``n_samples`` samples span."""
        return (self.n_windows(n_samples) - 1) * self.spec.hop + self._length(n_samples)

    def windows(self, samples: Tensor, n_samples: int | None = None) -> Tensor:
        """Cut ``[T]`` or ``[C, T]`` into windows ``[W, …, length]``, the last padded with zeros.

        The windows are a view: overlaps cost no memory, and neither do several models' windows of
        samples that are already padded.

        Args:
            samples: The track, with or without trailing zeros.
            n_samples: Length of the track without them; all of ``samples`` when None.
        """
        n_samples = samples.shape[-1] if n_samples is None else n_samples
        wanted = self.padded_length(n_samples)
        whole = pad_to(samples, wanted)[..., :wanted]
        return whole.unfold(-1, self._length(n_samples), self.spec.hop).movedim(-2, 0)

    def join(self, rows: Tensor, n_samples: int) -> Tensor:
        """Join rows ``[W, n_frames, …]`` into the track's frames ``[N, …]``, N from `count`."""
        if len(rows) == 1:
            return rows[0, : self.count(n_samples)]
        inner = rows[:, self.lead : self.n_frames - self.tail].flatten(0, 1)
        # The first window has no neighbour before it, the last none after it.
        joined = torch.cat([rows[0, : self.lead], inner, rows[-1, self.n_frames - self.tail :]])
        return joined[: self.count(n_samples)]

    def n_windows(self, n_samples: int) -> int:
        """Windows of a track of ``n_samples`` samples, at least one; only the last exceeds it."""
        hop_frames = self.n_frames - self.lead - self.tail
        return 1 + max(0, -(-(self.count(n_samples) - self.n_frames) // hop_frames))

    def _length(self, n_samples: int) -> int:
        """Samples of each window of a track."""
        n_frames = self.n_frames
        if self.trim and self.n_windows(n_samples) == 1:
            n_frames = min(n_frames, -(-(self.count(n_samples) + 2) // self.trim) * self.trim)
        return n_frames * self.hop_length + self.overhang
