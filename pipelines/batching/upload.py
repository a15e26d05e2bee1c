"""Copy a track to a device: once, unchanged, through pinned blocks of a fixed size.

Not in half precision: its error, 73 dB below the sound, fills the bands that a lossy format leaves
empty, which changes embeddings (decision 0059).
"""

import threading
from collections import deque

import torch
from torch import Tensor

from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform

DEPTH = 2
"""Blocks per thread: one is filled while the other is read."""
BLOCK_SAMPLES = 1 << 20


class StagingBlocks(threading.local):
    """Host memory that tracks pass through on their way; every thread has its own blocks.

    Invariant: a block is reused only when its copy has finished.

    Attributes:
        is_pinned: Whether the blocks are pinned, so that a GPU can copy them by itself.
    """

    def __init__(self, *, is_pinned: bool) -> None:
        self.is_pinned = is_pinned
        self._blocks: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()

    def next(self) -> Tensor:
        """Return float32 ``[BLOCK_SAMPLES]`` that nothing is reading."""
        if len(self._blocks) == DEPTH:
            block, copied = self._blocks.popleft()
            if copied is not None:
                copied.synchronize()
        else:
            block = torch.empty(BLOCK_SAMPLES, pin_memory=self.is_pinned)
        self._blocks.append((block, None))
        return block

    def is_copied_after(self, copied: torch.cuda.Event) -> None:
        """Mark the block returned last as reusable after an event."""
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
    """Copy a track to its device; on the CPU, the track shares the waveform's memory.

    Args:
        waveform: The track.
        device: The target; for a GPU, the copy runs on the current stream.
        is_mono: Whether only the mean of the channels is needed.
        blocks: Reusable for the next track.
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
                # Named explicitly, since the current device may be another one.
                copied.record(torch.cuda.current_stream(device))
                blocks.is_copied_after(copied)
    return Track(samples, waveform.sample_rate)
