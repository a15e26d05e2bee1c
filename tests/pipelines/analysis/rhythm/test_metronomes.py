"""Metronomes, with the shipped beat network: right, or told as an alternative."""

import numpy as np
import pytest
import torch

from configs.tables import load_table
from models.checkpoints.cache import default_model_dir
from models.checkpoints.cards import choose_cards, parse_cards
from models.rhythm.network import SAMPLE_RATE
from pipelines.analysis.rhythm.beats import BeatEvidence, BeatModel, load_beat_model
from pipelines.analysis.rhythm.estimate import Rhythm, estimate_rhythm, weigh_alternatives
from pipelines.batching.steps import forward_windows

SECONDS = 16.0
HZ = {"woodblock": (820.0, 1240.0, 2710.0), "beep": (1000.0,)}
DECAY_S = {"click": 0.002, "woodblock": 0.025}
SOUNDS = ("click", "woodblock", "beep")


def sound(name: str, *, is_accent: bool) -> np.ndarray:
    t = np.arange(int(0.06 * SAMPLE_RATE)) / SAMPLE_RATE
    if name == "click":
        wave = np.random.default_rng(5).standard_normal(len(t))
    else:
        wave = sum(np.sin(2 * np.pi * f * (1.5 if is_accent else 1.0) * t) for f in HZ[name])
    if name in DECAY_S:
        wave = wave * np.exp(-t / DECAY_S[name])
    else:
        wave = wave * np.minimum(1, np.minimum(t, t[::-1]) / 0.002)
    return wave / np.abs(wave).max() * (1.0 if is_accent else 0.6)


def metronome(tempo: float, name: str, metre: int, noise_db: float = -np.inf) -> np.ndarray:
    n = int(SECONDS * SAMPLE_RATE)
    track = np.zeros(n + SAMPLE_RATE)
    for i, beat in enumerate(np.arange(0.2, SECONDS, 60 / tempo)):
        one = sound(name, is_accent=metre > 0 and i % metre == 0)
        at = round(beat * SAMPLE_RATE)
        track[at : at + len(one)] += one
    track += 10 ** (noise_db / 20) * np.random.default_rng(0).standard_normal(len(track))
    return (0.7 * track[:n]).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> BeatModel:
    card = choose_cards(parse_cards(load_table("models")))["beats"][0]
    return load_beat_model(card, default_model_dir(), torch.device("cpu"))


def heard(model: BeatModel, samples: np.ndarray) -> tuple[BeatEvidence, Rhythm]:
    rows = forward_windows(model, model.windows(torch.from_numpy(samples)), 1)
    evidence = model.join(rows, len(samples))
    return evidence, estimate_rhythm(evidence)


@pytest.mark.parametrize("tempo", [60, 90, 120, 180])
@pytest.mark.parametrize("name", SOUNDS)
def test_a_metronome_has_its_tempo_and_its_beats(model: BeatModel, name: str, tempo: float) -> None:
    _, rhythm = heard(model, metronome(tempo, name, metre=0))
    assert rhythm.tempo == pytest.approx(tempo, rel=0.01)
    beats = np.arange(0.2, SECONDS, 60 / tempo)
    assert np.median(np.abs(rhythm.beats[:, None] - beats).min(axis=1)) < 0.02


@pytest.mark.parametrize("metre", [0, 3, 4])
@pytest.mark.parametrize("tempo", [40, 50, 220, 240])
def test_what_lies_at_the_ends_of_the_range_is_an_alternative_at_least(
    model: BeatModel, tempo: float, metre: int
) -> None:
    for name in SOUNDS:
        evidence, rhythm = heard(model, metronome(tempo, name, metre))
        told = [rhythm.tempo, *(t for t, _ in weigh_alternatives(evidence, rhythm.tempo))]
        assert min(abs(t / tempo - 1) for t in told) < 0.01, (name, told)


@pytest.mark.parametrize("name", SOUNDS)
def test_without_accents_there_are_four_beats_in_a_bar(model: BeatModel, name: str) -> None:
    _, rhythm = heard(model, metronome(100, name, metre=0))
    assert rhythm.time_signature == 4
