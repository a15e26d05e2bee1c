"""Onsets, level, timbre, boundaries."""

import numpy as np
import pytest
import torch

from models.segments import (
    FRAME_RATE,
    SAMPLE_RATE,
    SoundFrames,
    band_filters,
    find_boundaries,
    section_boundaries,
)


def tone(hertz: float, seconds: float, level_db: float = -12.0) -> torch.Tensor:
    t = torch.arange(int(seconds * SAMPLE_RATE), dtype=torch.float64) / SAMPLE_RATE
    return (10 ** (level_db / 20) * torch.sin(2 * torch.pi * hertz * t)).float()[None]


def test_filters_cover_every_band() -> None:
    bank = band_filters()
    assert bank.shape == (513, 40)
    np.testing.assert_allclose(bank.sum(axis=0), 1.0, rtol=1e-6)


@pytest.mark.parametrize("level_db", [-6.0, -30.0])
def test_level_is_that_of_the_sine(level_db: float) -> None:
    sound = SoundFrames()(tone(1000, 1.0, level_db))[0]
    assert sound.shape == (50, 14)
    np.testing.assert_allclose(sound[5:45, 1], level_db, atol=0.1)


def test_onsets_are_where_sound_begins() -> None:
    sound = torch.cat([torch.zeros(1, SAMPLE_RATE), tone(700, 1.0)], dim=1)
    onset = SoundFrames()(sound)[0, :, 0]
    assert abs(int(onset.argmax()) - 50) <= 1
    assert float(onset.max()) > 10
    assert float(onset[60:90].max()) < 0.1


def test_silence() -> None:
    sound = SoundFrames()(torch.zeros(1, SAMPLE_RATE))[0]
    assert not sound[:, 0].any()
    np.testing.assert_allclose(sound[:, 1], -100.0, atol=1e-3)


def test_timbre_tells_bright_from_dark_and_ignores_level_but_in_the_first() -> None:
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(1, SAMPLE_RATE, generator=rng) * 0.1
    dark = torch.nn.functional.avg_pool1d(noise[None], 9, 1, 4)[0]
    frames = SoundFrames()
    bright, dull, soft = (frames(x)[0, 10:40, 2:].mean(0) for x in (noise, dark, noise * 0.1))
    assert float(dull[1] - bright[1]) > 30
    assert float(bright[0] - soft[0]) == pytest.approx(20 * 40**0.5, rel=0.01)
    torch.testing.assert_close(bright[1:], soft[1:], atol=0.1, rtol=0)


def test_boundaries_at_peaks() -> None:
    onset = np.full(500, 0.2, dtype=np.float32)
    onset[[100, 150, 152, 300]] = [8, 9, 5, 6]
    np.testing.assert_array_equal(find_boundaries(onset)[1:-1], [100, 150, 300, 400])


def test_boundaries_tile_without_long_gaps() -> None:
    edges = find_boundaries(np.zeros(1000, dtype=np.float32))
    assert edges[0] == 0
    assert edges[-1] == 1000
    assert np.diff(edges).max() <= 3 * FRAME_RATE
    np.testing.assert_array_equal(find_boundaries(np.zeros(0, dtype=np.float32)), [0])


def test_sections_change_with_the_sound() -> None:
    rng = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0, 0], [3, 0, 0], [0, 3, 3]], [40, 60, 50], axis=0)
    features = centres + rng.normal(0, 0.3, centres.shape)
    edges, confidence = section_boundaries(features, half_width=20, shortest=16)
    assert len(edges) == 4
    assert confidence[0] == 1
    assert 0 < confidence[1] < confidence[2] < 1  # the second change is larger
    np.testing.assert_allclose(edges, [0, 40, 100, 150], atol=2)


def test_one_great_change_does_not_hide_smaller_ones_elsewhere() -> None:
    rng = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0], [1, 0], [0, 0], [1, 0], [0, 20]], 60, axis=0)
    features = centres + rng.normal(0, 0.1, centres.shape)
    edges, _ = section_boundaries(features, half_width=24, shortest=16)
    assert {int(np.abs(edges - want).min()) <= 2 for want in (60, 120, 240)} == {True}


def test_a_short_track_is_one_section() -> None:
    edges, confidence = section_boundaries(np.zeros((20, 3)), 20, 16)
    np.testing.assert_array_equal(edges, [0, 20])
    np.testing.assert_array_equal(confidence, [1])


def test_a_track_that_never_changes_is_one_section() -> None:
    edges, confidence = section_boundaries(np.ones((200, 3)), 20, 16)
    np.testing.assert_array_equal(edges, [0, 200])
    np.testing.assert_array_equal(confidence, [1])


@pytest.mark.parametrize("seed", range(10))
def test_what_differs_by_chance_is_one_section(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=(240, 24))
    edges, _ = section_boundaries(noise, 24, 16)
    np.testing.assert_array_equal(edges, [0, 240])


def test_a_click_at_the_start_begins_no_section_later() -> None:
    features = np.ones((200, 3))
    features[0] = 9.0
    edges, _ = section_boundaries(features, 24, 16)
    np.testing.assert_array_equal(edges, [0, 200])


def test_a_row_equals_itself_alone() -> None:
    rows = torch.cat([tone(440, 2.0), tone(90, 2.0, -40.0), torch.zeros(1, 2 * SAMPLE_RATE)])
    frames = SoundFrames()
    for row, sound in zip(frames(rows), rows, strict=True):
        torch.testing.assert_close(frames(sound[None])[0], row)
