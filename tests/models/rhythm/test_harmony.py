"""Where the harmony changes, derived from chroma and from chords."""

import numpy as np
import pytest

from models.rhythm.harmony import chord_change, chord_novelty, harmonic_change, standardised


def test_harmonic_change_is_where_the_chord_changes() -> None:
    c, g = np.zeros(12), np.zeros(12)
    c[[0, 4, 7]] = g[[7, 11, 2]] = 1
    chroma = np.repeat([c, c, g, g, c, np.zeros(12)], 5, axis=0).astype(np.float32)
    times = np.arange(30) / 10 + 0.05
    change = harmonic_change(chroma, times, np.arange(6) / 2)
    np.testing.assert_allclose(change, [0, 0, 2 / 3, 0, 2 / 3, 0], atol=1e-6)


def chords(*names: int, frames: int = 5) -> np.ndarray:
    """Probabilities of three chords, each held for ``frames`` frames."""
    return np.repeat(np.eye(3)[list(names)], frames, axis=0)


def test_chord_change_is_how_far_the_probabilities_move() -> None:
    times = np.arange(20) / 10 + 0.05
    sure = chord_change(chords(0, 0, 1, 1), times, np.arange(4) / 2)
    np.testing.assert_allclose(sure, [0, 0, 1, 0])
    torn = chord_change(
        0.5 * chords(0, 0, 1, 1) + 0.5 * chords(2, frames=20), times, np.arange(4) / 2
    )
    np.testing.assert_allclose(torn, [0, 0, 0.5, 0])


def test_novelty_lies_between_the_frames() -> None:
    times = np.arange(20) / 10 + 0.05
    at = np.arange(200) / 100
    novelty = chord_novelty(chords(0, 0, 1, 1), times, at)
    assert at[novelty.argmax()] == pytest.approx(1.0)
    assert novelty.max() == pytest.approx(1.0)
    assert not novelty[np.abs(at - 1.0) > 0.11].any()


def test_a_single_frame_has_no_novelty() -> None:
    assert not chord_novelty(chords(0, frames=1), np.array([0.1]), np.arange(5) / 10).any()


def test_what_hardly_changes_does_not_count() -> None:
    change = np.tile([0.0, 0.0, 0.0, 0.4], 8)
    assert standardised(change).max() > 1.3
    assert standardised(change / 100).max() < 0.1
