"""How a track comes to a device: once, as it is, through pinned blocks of a fixed size.

Not in half precision: its error, 73 dB below the sound, fills the bands that a lossy format leaves
empty, which embeddings hear (decision 0059).
"""

import threading
from collections import deque

import torch
from torch import Tensor

from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform

DEPTH = 2
"""Blocks of a thread: one is filled while the other is read."""
BLOCK_SAMPLES = 1 << 20


class StagingBlocks(threading.local):
    """Host memory that tracks pass through on their way; every thread has blocks of its own.

    Invariant: a block is written again only when its copy has ended.

    Attributes:
        is_pinned: So that a GPU copies them by itself.
    """

    def __init__(self, *, is_pinned: bool) -> None:
        self.is_pinned = is_pinned
        self._blocks: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()

    def next(self) -> Tensor:
        """Return float32 ``[BLOCK_SAMPLES]`` that nobody reads."""
        if len(self._blocks) == DEPTH:
            block, copied = self._blocks.popleft()
            if copied is not None:
                copied.synchronize()
        else:
            block = torch.empty(BLOCK_SAMPLES, pin_memory=self.is_pinned)
        self._blocks.append((block, None))
        return block

    def is_copied_after(self, copied: torch.cuda.Event) -> None:
        """Say that what was given last may be written again after an event."""
        block, _ = self._blocks.pop()
        self._blocks.append((block, copied))


@torch.inference_mode()
def bring(
    waveform: Waveform,
    device: torch.device,
    *,
    is_mono: bool = False,
    blocks: StagingBlocks | None = None,
) -> Track:
    """Bring a track to where it is analysed; the host's memory is shared with it.

    Args:
        waveform: The track.
        device: Where to; of a GPU, on the current stream.
        is_mono: The mean of the channels is all that is wanted of it.
        blocks: To be used again for the next track.
    """
    if device.type == "cpu":
        return Track.of(waveform)
    if blocks is None:
        blocks = StagingBlocks(is_pinned=device.type == "cuda" and torch.cuda.is_available())
    source = Track.of(waveform).samples
    is_mixed = is_mono and len(source) == 2
    n = source.shape[1]
    samples = torch.empty((1 if is_mixed else len(source), n), device=device)
    for channel, row in enumerate(samples):
        for start in range(0, n, BLOCK_SAMPLES):
            stretch = slice(start, min(n, start + BLOCK_SAMPLES))
            staged = blocks.next()[: stretch.stop - start]
            if is_mixed:
                left, right = source[:, stretch].float()
                torch.lerp(left, right, 0.5, out=staged)
            else:
                staged.copy_(source[channel, stretch])
            row[stretch].copy_(staged, non_blocking=True)
            if blocks.is_pinned:
                copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
                # Said, since the current device need not be this one.
                copied.record(torch.cuda.current_stream(device))
                blocks.is_copied_after(copied)
    return Track(samples, waveform.sample_rate)
