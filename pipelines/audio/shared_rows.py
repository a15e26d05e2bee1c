"""Samples that a decoding child writes into memory shared with us.

Invariant: memory that a living child can change is read only through copies, and every sample that
leaves here is finite and within ±`LOUDEST`.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.audio.waveform import SAMPLE_RATE, Samples

_MOVED_BYTES = 1 << 24
_CHECKED_SAMPLES = 1 << 17
"""Samples of a channel read at a time: this many fit into a processor's cache."""
LONG = 15 * 60 * SAMPLE_RATE
"""Longer tracks are held in half precision, whose error is 73 dB below the sound: an hour of stereo
takes 640 MB."""
LOUDEST = 8.0
"""No sample of music is louder: +18 dBFS, which peaks reach if a file's alignment level (18 dB
below full scale, EBU R 68) is mistaken for full scale. Integers stored as floats are far louder."""

_LEAST_IN_MONO = 0.1
"""If mono keeps a smaller share of the energy, a channel is inverted; unrelated ones keep half."""


class SharedRows:
    """Shared memory that a child writes a track ``[C, T]`` into.

    Beyond `LONG`, samples are moved to half precision as they arrive, with all those before them.
    The child can write as long as it lives, so only copies are read until it ends.

    Attributes:
        row_samples: Room for each channel.
        channels: As reported by the child; 0 before that.
        n: Samples in each channel so far.
    """

    def __init__(self, descriptor: int, capacity: int) -> None:
        page_samples = mmap.PAGESIZE // 4
        self.row_samples = -(-capacity // page_samples) * page_samples
        n_bytes = 2 * 4 * self.row_samples
        os.ftruncate(descriptor, n_bytes)
        fixed = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fixed)
        self._memory = mmap.mmap(descriptor if n_bytes else -1, n_bytes or 1)
        self._rows = np.frombuffer(self._memory, np.float32, n_bytes // 4).reshape(2, -1)
        self._halves: tuple[mmap.mmap, Samples] | None = None
        self.channels = self._n_moved = self._n_wrong = 0
        self.n = 0
        self._products = np.zeros((2, 2))

    def take(self, channels: int, size: int) -> None:
        """Note that ``size`` more samples have been written to each channel's row."""
        self.channels = channels
        self.n += size
        if self.n > LONG:
            self._move()

    def checked(self) -> tuple[Samples, int]:
        """Return the track of a child that has ended; invalid samples are set to 0.

        If one channel is the inverse of the other, as from a wrongly wired cable, it is inverted
        back: a mono mix would be almost empty, and level and peak are the same either way.

        Returns:
            ``[C, T]``, and the number of invalid samples.
        """
        if self._halves is None:
            samples = self._rows[: self.channels or 1, : self.n]
            for stretch in _stretches(0, self.n):
                self._check(samples[:, stretch])
        else:
            samples = pack(*self._halves, self.n)
        if self._products.sum() < 2.0 * _LEAST_IN_MONO * self._products.trace():
            np.negative(samples[1], out=samples[1])
        return samples, self._n_wrong

    def _check(self, block: Samples) -> None:
        """Silence invalid samples, and add up the products of the channels with each other."""
        self._n_wrong += _silence_wrong(block)
        swings = block - block.mean(axis=1, keepdims=True)  # without the DC offset
        channels = slice(len(block))
        # Not dot, whose threads would busy-wait for more work.
        self._products[channels, channels] += np.einsum("it,jt->ij", swings, swings)

    def _move(self) -> None:
        """Move the samples so far to half precision, and free their memory."""
        if self._halves is None:
            self._halves = ask_rows(self.channels, self.row_samples, np.float16)
        for stretch in _stretches(self._n_moved, self.n):
            block = self._rows[: self.channels, stretch].copy()
            self._check(block)
            self._halves[1][:, stretch] = block
        pages = [n * 4 // mmap.PAGESIZE * mmap.PAGESIZE for n in (self._n_moved, self.n)]
        for row in range(self.channels):
            begin = 4 * row * self.row_samples + pages[0]
            with contextlib.suppress(OSError):  # only saves memory
                self._memory.madvise(mmap.MADV_REMOVE, begin, pages[1] - pages[0])
        self._n_moved = self.n


def _stretches(start: int, stop: int) -> Iterator[slice]:
    """Split samples ``start`` to ``stop`` into stretches of `_CHECKED_SAMPLES`."""
    for first in range(start, stop, _CHECKED_SAMPLES):
        yield slice(first, min(stop, first + _CHECKED_SAMPLES))


def _silence_wrong(block: Samples) -> int:
    """Set invalid samples to 0, in place; return how many."""
    with np.errstate(invalid="ignore"):
        if block.min() >= -LOUDEST and block.max() <= LOUDEST:  # false for NaN
            return 0
        wrong = ~(np.abs(block) <= LOUDEST)
    block[wrong] = 0.0
    return int(np.count_nonzero(wrong))


def ask_rows(c: int, capacity: int, dtype: type[np.floating[Any]]) -> tuple[mmap.mmap, Samples]:
    """Map memory for ``[C, capacity]``, whose pages are allocated only once they are filled."""
    n_bytes = np.dtype(dtype).itemsize * c * capacity
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    rows: Samples = np.frombuffer(memory, dtype, c * capacity).reshape(c, capacity)
    return memory, rows


def pack(memory: mmap.mmap, rows: Samples, n: int) -> Samples:
    """Move the second channel up to the end of the first, and free the memory it leaves.

    It goes block by block, so that a long track never takes more than its own memory.
    """
    c, capacity = rows.shape
    flat = np.frombuffer(memory, rows.dtype, c * n)
    if c == 2 and n < capacity:
        packed, source = n * flat.itemsize, capacity * flat.itemsize
        left = -(-max(2 * packed, source) // mmap.PAGESIZE) * mmap.PAGESIZE
        for start in range(0, packed, _MOVED_BYTES):
            size = min(_MOVED_BYTES, packed - start)
            at = flat.ctypes.data + start
            ctypes.memmove(at + packed, at + source, size)
            done = (source + start + size) // mmap.PAGESIZE * mmap.PAGESIZE
            if done > left:
                memory.madvise(mmap.MADV_DONTNEED, left, done - left)
                left = done
    return flat.reshape(c, n)
