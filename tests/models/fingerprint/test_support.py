"""How the evidence at one place of a track is compared with that at others."""

import numpy as np
import pytest
from numpy.typing import NDArray

from models.fingerprint.landmarks import LOWEST_BIN, N_BINS
from models.fingerprint.support import Contrast, contrast, supports, surroundings

Landmarks = tuple[NDArray[np.int64], NDArray[np.float64]]


def support(
    evidence: NDArray[np.int8], frames: NDArray[np.int64], bins: NDArray[np.float64], offset: float
) -> float | None:
    found = contrast(evidence, frames, bins, offset, 0.0)
    return None if found is None else found.support


def landmarks(seed: int, n_frames: int = 2600) -> Landmarks:
    """Random landmarks, as many as music has: 30 per second."""
    rng = np.random.default_rng(seed)
    n = n_frames * 7 // 10
    return np.sort(rng.integers(0, n_frames, n)), rng.uniform(LOWEST_BIN + 2, 380, n)


def heard(track: Landmarks, offset: int, n_frames: int = 215) -> NDArray[np.int8]:
    """Noise in which the landmarks of a passage stand out, blurred as a window blurs them."""
    frames, bins = track
    evidence = np.random.default_rng(0).integers(-30, 15, (N_BINS, n_frames)).astype(np.int8)
    inside = (frames >= offset) & (frames < offset + n_frames)
    rows = np.rint(bins[inside]).astype(int) - LOWEST_BIN
    for bin_step, frame_step in np.ndindex(3, 3):
        columns = np.clip(frames[inside] - offset + frame_step - 1, 0, n_frames - 1)
        evidence[np.clip(rows + bin_step - 1, 0, N_BINS - 1), columns] = 40
    return evidence


def test_the_true_place_is_supported_and_no_other() -> None:
    track, other = landmarks(1), landmarks(2)
    evidence = heard(track, 900)
    true = support(evidence, *track, 900)
    assert true is not None
    assert true > 10
    for wrong in (support(evidence, *track, 1500), support(evidence, *other, 900)):
        assert wrong is not None
        assert wrong < 5


def test_the_surroundings_are_all_that_counts() -> None:
    frames, bins = landmarks(1)
    evidence = heard((frames, bins), 900)
    begin, end = surroundings(900, 0.0, evidence.shape[1])
    near = (frames >= begin) & (frames < end)
    assert 0 < near.sum() < len(frames)
    some = support(evidence, frames[near], bins[near], 900)
    assert some == support(evidence, frames, bins, 900)


def test_a_track_that_fits_everywhere_is_not_supported() -> None:
    """Its landmarks recur with every beat, so they do not favour the place."""
    bins = np.tile([28.0, 46.0, 74.0, 121.0], 150)
    frames = np.repeat(np.arange(150) * 12, 4) + 5
    found = support(heard((frames, bins), 432), frames, bins, 432)
    assert found is not None
    assert found < 4


def test_a_clip_s_usual_deviation_tempers_a_track_s_own() -> None:
    alone, restless = Contrast(6.0, 1.0), Contrast(6.0, 2.0)
    assert supports([]) == []
    assert supports([alone]) == [alone.support] == [6.0]
    assert supports([None, alone, None]) == [None, 6.0, None]
    quiet, loud = map(float, filter(None, supports([alone, restless])))
    assert (quiet, loud) == pytest.approx((6 / 1.75**0.5, 6 / 3.25**0.5))
    assert restless.support < loud < quiet < alone.support


def test_nothing_is_said_where_there_is_too_little_to_compare() -> None:
    track = landmarks(1)
    evidence = heard(track, 900)
    assert support(evidence, *track, 1e7) is None
    assert support(evidence[:, :0], *track, 900) is None
    few = tuple(measure[:5] for measure in track)
    assert support(evidence, *few, 0) is None
