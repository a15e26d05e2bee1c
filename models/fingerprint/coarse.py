"""Coarse sub-fingerprints: the majority of five, at every third, to find where to look closely.

In a large index only a few moments of a clip are compared: those at which it changes most. Two of
them are compared as one: for every band, the bit of the moment at which that band changes more.
These are the 64 bits of the pair that noise is least likely to flip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.subfingerprints import to_subfingerprints

_T = TypeVar("_T", bound=np.generic)
STEP = 3
"""Sub-fingerprints between one coarse one and the next."""
WIDTH = 5
"""Sub-fingerprints in a coarse one. An odd number, so there is always a majority."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two moments of a clip, compared as one.

    Attributes:
        first: A place in the clip, in coarse sub-fingerprints.
        second: Another place.
        is_first: Bits of the bands compared at the first place; the others are at the second.
        bits: The clip's bits at those places.
    """

    first: int
    second: int
    is_first: np.uint64
    bits: np.uint64


def count(n_kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many coarse sub-fingerprints tracks with ``n_kept`` sub-fingerprints have."""
    n: NDArray[np.int64] = np.maximum(n_kept - WIDTH + STEP, 0) // STEP
    return n


def coarsen(kept: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Make a track's coarse sub-fingerprints: each bit as at least three of five have it."""
    a, b, c, d, e = _members(kept)
    # Two full adders: the five add up to two carries, each worth two, and a remainder.
    three = a ^ b ^ c
    carry, other = (a & b) | ((a ^ b) & c), (three & d) | ((three ^ d) & e)
    return np.bitwise_or(carry & other, (carry ^ other) & (three ^ d ^ e))


def _members(rows: NDArray[_T]) -> list[NDArray[_T]]:
    """Return the first sub-fingerprint of every coarse one, the second of each, and so on."""
    n = max(len(rows) - WIDTH + 1, 0)
    return [rows[i : i + n : STEP] for i in range(WIDTH)]


def choose(changes: NDArray[np.float32], most: int) -> list[Pair]:
    """Choose a clip's most informative moments; pair those of the first half with the second.

    Args:
        changes: float32 ``[M, N_BANDS]``, the clip's, from `weigh`.
        most: Maximum number of moments.
    """
    coarse = np.sum(_members(changes), axis=0)
    sizes = np.abs(coarse)
    n_pairs = min(most, len(coarse)) // 2
    chosen = np.sort(np.argsort(-sizes.sum(axis=1), kind="stable")[: 2 * n_pairs])
    first, second = chosen[:n_pairs], chosen[n_pairs:]
    is_first = sizes[first] > sizes[second]
    bits = to_subfingerprints(np.where(is_first, coarse[first], coarse[second]))
    masks = to_subfingerprints(is_first.astype(np.float32))
    return [
        Pair(int(one), int(other), mask, wanted)
        for one, other, mask, wanted in zip(first, second, masks, bits, strict=True)
    ]


def differences(
    kept: NDArray[np.uint64], pairs: Sequence[Pair], places: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Count the bits by which a clip's pairs differ from the kept ones at some places.

    Args:
        kept: uint64 ``[N]``, coarse sub-fingerprints of tracks.
        pairs: The clip's pairs.
        places: int64 ``[P]``, where the clip may begin.
    """
    found = np.zeros(len(places), np.uint16)
    for pair in pairs:
        there = kept[places + pair.second]
        there ^= (kept[places + pair.first] ^ there) & pair.is_first
        found += np.bitwise_count(there ^ pair.bits)
    return found


def places_below(
    kept: NDArray[np.uint64], pairs: Sequence[Pair], n_places: int, below: int
) -> Iterator[NDArray[np.int64]]:
    """Yield those of the first places that differ by fewer than ``below`` bits, part by part."""
    buffer = np.empty(_PLACES_AT_ONCE, np.uint64)
    bits, differs = np.empty(_PLACES_AT_ONCE, np.uint8), np.empty(_PLACES_AT_ONCE, np.uint16)
    for begin in range(0, n_places, _PLACES_AT_ONCE):
        n = min(_PLACES_AT_ONCE, n_places - begin)
        there, counted, found = buffer[:n], bits[:n], differs[:n]
        found[:] = 0
        for pair in pairs:
            first, second = (kept[begin + i : begin + i + n] for i in (pair.first, pair.second))
            np.bitwise_xor(first, second, out=there)
            np.bitwise_and(there, pair.is_first, out=there)
            np.bitwise_xor(there, second, out=there)
            np.bitwise_xor(there, pair.bits, out=there)
            found += np.bitwise_count(there, out=counted)
        yield begin + np.flatnonzero(found < below)


_PLACES_AT_ONCE = 1 << 15
"""256 kB: the compared values fit into a core's own cache."""
