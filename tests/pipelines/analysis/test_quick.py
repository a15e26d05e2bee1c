"""Tempo and key computed alone equal those of the whole analysis."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard, choose_cards
from models.rhythm.tempo import TempoRange
from pipelines.analysis import quick, spectral
from pipelines.analysis.quick import QuickAnalyzer
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local

DEMO = Path(__file__).parents[3] / "serve_app" / "data" / "demo.mp3"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def chosen(cards: dict[str, ModelCard], model_dir: Path) -> dict[str, tuple[ModelCard, ...]]:
    chosen = choose_cards(cards, "any", {})
    for card in chosen["beats"]:
        pull(card, model_dir)
    return chosen


@pytest.fixture(scope="module")
def analyzer(chosen: dict[str, tuple[ModelCard, ...]], model_dir: Path) -> QuickAnalyzer:
    return quick.build(chosen, model_dir, CPU)


def test_tempo_and_key_are_those_of_the_whole_analysis(
    analyzer: QuickAnalyzer, chosen: dict[str, tuple[ModelCard, ...]], model_dir: Path
) -> None:
    waveform = decode(DEMO, DecodeLimits())
    whole = run_local(spectral.build(chosen, model_dir, CPU), waveform)
    found = analyzer.analyse(waveform, with_key=True)
    assert found.tempo == pytest.approx(whole.tempo, rel=1e-6)
    assert found.tempo == pytest.approx(124, rel=0.01)
    assert found.tempo_confidence == pytest.approx(whole.tempo_confidence, abs=1e-5)
    assert (found.key, found.mode, found.camelot) == (whole.key, whole.mode, "8A")
    half = TempoRange(50.0, 90.0)
    slow = run_local(spectral.build(chosen, model_dir, CPU).within(half), waveform)
    assert slow.tempo == pytest.approx(62, rel=0.01)
    assert {round(other.tempo) for other in slow.tempo_alternatives} >= {124}
    quick_slow = analyzer.analyse(waveform, with_key=False, tempo_range=half)
    assert quick_slow.tempo == pytest.approx(slow.tempo, rel=1e-6)
    without = analyzer.analyse(waveform, with_key=False)
    assert (without.tempo, without.key, without.mode) == (found.tempo, -1, -1)


def test_silence_has_neither(analyzer: QuickAnalyzer) -> None:
    found = analyzer.analyse(Waveform(np.zeros((1, 88_200), np.float32)), with_key=True)
    assert (found.tempo, found.tempo_confidence, found.key, found.camelot) == (0.0, 0.0, -1, "")


def test_hiss_around_music_takes_neither(analyzer: QuickAnalyzer) -> None:
    music = decode(DEMO, DecodeLimits())
    clear = analyzer.analyse(music, with_key=True)
    rng = np.random.default_rng(0)
    hiss = (1e-3 * rng.standard_normal((2, 40 * music.sample_rate))).astype(np.float32)
    whole = Waveform(np.concatenate([hiss, music.samples, hiss], axis=1), music.sample_rate)
    found = analyzer.analyse(whole, with_key=True)
    assert found.tempo == pytest.approx(clear.tempo, rel=1e-3)
    assert found.camelot == clear.camelot == "8A"
