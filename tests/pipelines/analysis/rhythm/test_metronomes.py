"""Metronomes and programmed drums, with the shipped networks: tempo, beats and bars."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.accuracy.metronomes import FIRST_S, metronome
from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis.records import SpectralResult
from pipelines.analysis.spectral import SpectralStep, build
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.steps import run_local

SECONDS = 16.0
SOUNDS = ("click", "woodblock", "beep")


@pytest.fixture(scope="module")
def step(model_dir: Path) -> SpectralStep:
    cards = choose_cards(parse_cards(load_table("models")))
    return build(cards, model_dir, torch.device("cpu"))


def heard(step: SpectralStep, samples: np.ndarray) -> SpectralResult:
    return run_local(step, Waveform(samples[None]))


@pytest.mark.parametrize("tempo", [60, 90, 120, 180])
@pytest.mark.parametrize("name", SOUNDS)
def test_a_metronome_has_its_tempo_and_its_beats(
    step: SpectralStep, name: str, tempo: float
) -> None:
    found = heard(step, metronome(tempo, name, 0, SECONDS))
    assert found.tempo == pytest.approx(tempo, rel=0.01)
    beats = np.arange(FIRST_S, SECONDS, 60 / tempo)
    assert np.median(np.abs(np.asarray(found.beats)[:, None] - beats).min(axis=1)) < 0.02


@pytest.mark.parametrize("name", SOUNDS)
@pytest.mark.parametrize(("n_clicks", "tempo"), [(1, 0), (4, 120)])
def test_a_single_click_has_no_tempo(
    step: SpectralStep, name: str, n_clicks: int, tempo: float
) -> None:
    samples = metronome(120, name, 0, SECONDS)
    samples[round((FIRST_S + 0.5 * n_clicks - 0.1) * SAMPLE_RATE) :] = 0.0
    found = heard(step, samples)
    assert found.tempo == pytest.approx(tempo, rel=0.05)
    assert bool(found.beats) == bool(tempo)


@pytest.mark.parametrize("tempo", [60, 120, 150])
def test_what_begins_with_a_beat_has_it(step: SpectralStep, tempo: float) -> None:
    for name in SOUNDS:
        at_once = metronome(tempo, name, 0, SECONDS)[round(FIRST_S * SAMPLE_RATE) :]
        assert heard(step, at_once).beats[0] < 0.07, name


@pytest.mark.parametrize("metre", [0, 3, 4])
@pytest.mark.parametrize("tempo", [40, 50, 220, 240])
def test_what_lies_at_the_ends_of_the_range_is_an_alternative_at_least(
    step: SpectralStep, tempo: float, metre: int
) -> None:
    for name in SOUNDS:
        found = heard(step, metronome(tempo, name, metre, SECONDS))
        told = [found.tempo, *(other.tempo for other in found.tempo_alternatives)]
        assert min(abs(t / tempo - 1) for t in told) < 0.01, (name, told)


@pytest.mark.parametrize("name", SOUNDS)
def test_without_accents_there_are_four_beats_in_a_bar(step: SpectralStep, name: str) -> None:
    found = heard(step, metronome(100, name, 0, SECONDS))
    assert found.time_signature == 4


@pytest.mark.parametrize("metre", [3, 4, 5, 7])
@pytest.mark.parametrize("tempo", [90, 132])
def test_the_louder_clicks_begin_the_bars(step: SpectralStep, tempo: float, metre: int) -> None:
    for name in SOUNDS:
        found = heard(step, metronome(tempo, name, metre, SECONDS))
        assert found.time_signature == metre, name
        accents = np.arange(FIRST_S, SECONDS - 0.1, metre * 60 / tempo)
        np.testing.assert_allclose(found.downbeats, accents, atol=0.04)


def drums(tempo: float, kicks: set[int], snares: set[int]) -> np.ndarray:
    """Repeat a bar of eight half beats: synthetic kick and snare, and a hi-hat on each."""
    random = np.random.default_rng(0)
    t = np.arange(SAMPLE_RATE // 4) / SAMPLE_RATE
    falling = 2 * np.pi * np.cumsum(50 + 100 * np.exp(-30 * t)) / SAMPLE_RATE
    kick = 0.8 * np.sin(falling) * np.exp(-12 * t)
    noise = 0.6 * random.standard_normal(len(t)) + 0.5 * np.sin(2 * np.pi * 190 * t)
    snare = 0.8 * noise * np.exp(-22 * t)
    hat = 0.2 * np.diff(random.standard_normal(len(t)), prepend=0) * np.exp(-80 * t)
    n = int(SECONDS * SAMPLE_RATE)
    track = np.zeros(n + SAMPLE_RATE)
    for i, at in enumerate(np.round(np.arange(0, SECONDS, 30 / tempo) * SAMPLE_RATE).astype(int)):
        for steps, one in ((kicks, kick), (snares, snare), (set(range(8)), hat)):
            if i % 8 in steps:
                track[at : at + len(one)] += one
    return (0.7 * track[:n] / np.abs(track).max()).astype(np.float32)


@pytest.mark.parametrize("tempo", [100, 120, 140])
@pytest.mark.parametrize("kicks", [{0, 4}, {0, 4, 5}, {0, 2, 4, 6}])
def test_programmed_drums_are_counted_in_four_from_their_first_beat(
    step: SpectralStep, kicks: set[int], tempo: float
) -> None:
    found = heard(step, drums(tempo, kicks, snares={2, 6}))
    assert found.tempo == pytest.approx(tempo, rel=0.01)
    assert found.time_signature == 4
    assert found.downbeats[:3] == pytest.approx([0, 240 / tempo, 480 / tempo], abs=0.05)
