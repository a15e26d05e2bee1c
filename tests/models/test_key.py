"""Pitch class profiles and key on synthetic chords."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from models.tonality.key import (
    HOP_LENGTH,
    SAMPLE_RATE,
    WIN_LENGTH,
    Hpcp,
    choose_key,
    fold,
    profile_correlations,
)


def tones(frequencies: list[float], seconds: float = 1.0) -> torch.Tensor:
    """Sum of harmonic tones, ``[1, T]``."""
    t = torch.arange(int(seconds * SAMPLE_RATE), dtype=torch.float64) / SAMPLE_RATE
    sound = sum(torch.sin(2 * torch.pi * f * h * t) / h for f in frequencies for h in range(1, 5))
    return (0.1 * torch.as_tensor(sound)).float()[None]


def pitch(midi: float) -> float:
    return float(440.0 * 2 ** ((midi - 69) / 12))


@pytest.mark.parametrize("midi", [33, 45, 57, 60, 70, 80])
def test_a_tone_is_its_own_pitch_class(midi: int) -> None:
    profile = fold(Hpcp()(tones([pitch(midi)]))[0].numpy()).mean(axis=0)
    assert int(profile.argmax()) == midi % 12


def test_frames_and_scale() -> None:
    profile = Hpcp()(tones([440.0, 554.37]))
    assert profile.shape == (1, 1 + (SAMPLE_RATE - WIN_LENGTH) // HOP_LENGTH, 120)
    torch.testing.assert_close(profile.amax(-1), torch.ones(profile.shape[:2]))
    assert (profile >= 0).all()


def test_level_does_not_matter() -> None:
    sound = tones([220.0, 277.18, 329.63])
    quiet, loud = (fold(Hpcp()(x)[0].numpy()) for x in (sound * 0.01, sound))
    np.testing.assert_allclose(quiet, loud, atol=1e-2)


def test_the_order_in_which_peaks_vote_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = 0.1 * torch.randn(1, SAMPLE_RATE, generator=torch.Generator().manual_seed(0))
    in_order = Hpcp()(noise)
    topk = torch.Tensor.topk

    def shuffled(
        rows: torch.Tensor, k: int, dim: int, sorted: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = topk(rows, k, dim=dim, sorted=sorted)
        order = torch.randperm(k)
        return values[..., order], places[..., order]

    monkeypatch.setattr(torch.Tensor, "topk", shuffled)
    assert torch.equal(Hpcp()(noise), in_order)


def test_silence_is_zero() -> None:
    silent = Hpcp()(torch.zeros(1, WIN_LENGTH))
    assert not silent.any()
    assert not fold(silent[0].numpy()).any()


def test_folding_weighs_by_distance_from_the_semitone() -> None:
    profile = np.zeros((3, 120), dtype=np.float32)
    profile[0, [70, 0]] = 1.0, 0.5  # G, C
    profile[1, [73, 0]] = 1.0, 0.5  # G 30 cents sharp
    profile[2, 115] = 1.0  # halfway between B and C
    chroma = fold(profile)
    assert chroma.shape == (3, 12)
    assert chroma[0, [7, 0]].tolist() == [1.0, 0.5]
    assert chroma[1, 7] / chroma[1, 0] == pytest.approx(2 * np.cos(0.3 * np.pi) ** 2, rel=1e-5)
    assert not chroma[2].any()


def test_folding_follows_the_tuning() -> None:
    profile = np.random.default_rng(0).random((4, 120), dtype=np.float32)
    sharp = np.roll(profile, 3, axis=1)
    np.testing.assert_allclose(fold(sharp, 30.0), fold(profile), atol=1e-6)
    up = fold(np.roll(profile, 20, axis=1))
    np.testing.assert_allclose(up, np.roll(fold(profile), 2, axis=1), atol=1e-6)


def test_a_row_equals_itself_alone() -> None:
    batch = torch.cat([tones([261.6]), tones([392.0, 493.9]), torch.zeros(1, SAMPLE_RATE)])
    hpcp = Hpcp()
    for row, sound in zip(hpcp(batch), batch, strict=True):
        torch.testing.assert_close(hpcp(sound[None])[0], row)


@pytest.mark.parametrize("tonic", range(12))
@pytest.mark.parametrize(("mode", "degrees"), [(1, (0, 4, 7)), (0, (0, 3, 7))])
def test_profiles_turn_with_the_tonic(tonic: int, mode: int, degrees: tuple[int, ...]) -> None:
    chroma = np.zeros(12)
    chroma[[(tonic + d) % 12 for d in degrees]] = [1.0, 0.6, 0.8]
    key = choose_key(profile_correlations(chroma))
    assert (key.key, key.mode) == (tonic, mode)
    assert 0.5 < key.confidence <= 1


def test_correlations_are_pearsons() -> None:
    chroma = np.random.default_rng(0).random(12)
    major = [1.00, 0.00, 0.42, 0.00, 0.53, 0.37, 0.00, 0.77, 0.00, 0.38, 0.21, 0.30]
    expected = np.corrcoef(np.roll(major, 2), chroma)[0, 1]
    assert profile_correlations(chroma)[2] == pytest.approx(expected)


def test_a_witness_decides_between_close_keys() -> None:
    correlations = np.zeros(24)
    correlations[[0, 7]] = [0.9, 0.88]
    witness = np.full(24, 0.01)
    witness[7] = 0.77
    alone, together = choose_key(correlations), choose_key(correlations, witness[None])
    assert (alone.key, together.key) == (0, 7)
    assert alone.confidence == pytest.approx(np.exp(0.24) / (1 + np.exp(0.24)), abs=1e-3)
    twice = choose_key(correlations, np.stack([witness, witness]))
    assert twice.confidence > together.confidence > 0.5


def test_witnesses_that_contradict_each_other_leave_it_to_the_profiles() -> None:
    correlations = np.zeros(24)
    correlations[[0, 7]] = [0.9, 0.88]
    witnesses = np.full((2, 24), 0.01)
    witnesses[0, 0] = witnesses[1, 7] = 0.77
    found = choose_key(correlations, witnesses)
    assert found.key == 0
    assert found.confidence < choose_key(correlations).confidence


def test_a_flat_profile_tells_nothing() -> None:
    assert not profile_correlations(np.ones(12)).any()
    assert not profile_correlations(np.zeros(12)).any()


def test_folding_wakes_no_other_thread() -> None:
    """After a product, numpy's threads wait for the next at full speed, for 1/50 of a second."""
    script = """
import time, numpy, torch
from models.tonality.key import fold
torch.set_num_threads(1)
profile = numpy.ones((2000, 120), numpy.float32)
fold(profile)
time.sleep(0.1)
begun = time.process_time() - time.thread_time()
for _ in range(5):
    fold(profile)
    time.sleep(0.1)
print(time.process_time() - time.thread_time() - begun)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert float(told.stdout) < 0.03
