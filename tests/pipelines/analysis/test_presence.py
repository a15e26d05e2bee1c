"""Audience and speech from the tags: the arithmetic, and the real network on sounds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import uniform_filter1d
from scipy.signal import butter, sosfilt
from torch import Tensor

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard, choose_cards
from models.vibenet import ATTRIBUTES
from pipelines.analysis import embedding
from pipelines.analysis.embedding import EmbeddingStep
from pipelines.analysis.records import EmbeddingResult, MoodResult
from pipelines.analysis.tags.presence import audience, speech, with_presence
from pipelines.analysis.tags.tagging import AUDIOSET, MSD, MTT, Vocabulary
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local

RATE = 44_100


@pytest.fixture(scope="module")
def step(cards: dict[str, ModelCard], model_dir: Path) -> EmbeddingStep:
    pull(cards["afa-embed-1"], model_dir)
    return embedding.build(choose_cards(cards), model_dir, torch.device("cpu"))


def windows(*tags: dict[str, float]) -> Tensor:
    return torch.tensor([[of.get(name, 0.001) for name in AUDIOSET.names] for of in tags])


def test_one_window_of_applause_is_an_audience_and_none_is_none() -> None:
    quiet = windows({}, {}, {}, {})
    assert audience(AUDIOSET, quiet) < 0.05
    assert audience(AUDIOSET, windows({}, {}, {}, {"applause": 0.3})) > 0.85
    assert audience(AUDIOSET, windows({"cheering": 0.05}, {})) == pytest.approx(0.5, abs=1e-3)
    assert audience(AUDIOSET, windows({"drums": 0.9})) == audience(AUDIOSET, quiet)


def test_speech_is_what_a_whole_track_has_of_it() -> None:
    assert speech(AUDIOSET, windows({"speech": 0.8}, {"speech": 0.9})) == pytest.approx(0.85)
    assert speech(AUDIOSET, windows({"narration": 0.8}, {}, {}, {})) == pytest.approx(0.2, abs=0.01)
    assert speech(AUDIOSET, windows({"singing": 0.9})) < 0.01


@pytest.mark.parametrize("vocabulary", [MTT, MSD])
def test_a_vocabulary_of_music_cannot_tell(vocabulary: Vocabulary) -> None:
    everything = torch.ones(2, len(vocabulary.names))
    assert audience(vocabulary, everything) == speech(vocabulary, everything) == 0.0


def test_it_raises_and_never_lowers() -> None:
    mood = MoodResult(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, [], {})
    heard = EmbeddingResult([], [], {}, audience=0.9, speech=0.2)
    raised = with_presence(mood, heard)
    assert (raised.liveness, raised.speechiness, raised.valence) == (0.9, 0.6, 0.7)
    assert with_presence(mood, EmbeddingResult([], [], {})) == mood


def test_voices_move_instrumentalness_and_bound_speech() -> None:
    mood = MoodResult(0.1, 0.2, 0.3, 0.3, 0.5, 0.6, 0.7, [], {})
    nobody = with_presence(mood, EmbeddingResult([], [], {}, voices=-1.5))
    assert nobody.instrumentalness > 0.9
    assert nobody.speechiness < 0.2
    somebody = with_presence(mood, EmbeddingResult([], [], {}, speech=0.7, voices=2.0))
    assert somebody.instrumentalness < 0.05
    assert somebody.speechiness == 0.7


def test_what_is_raised_has_no_spread_of_the_network() -> None:
    spread = dict.fromkeys(ATTRIBUTES, 0.05)
    mood = MoodResult(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, [], {}, spread, 4)
    loud = with_presence(mood, EmbeddingResult([], [], {}, audience=0.9, speech=0.65))
    assert set(spread) - set(loud.spread) == {"liveness"}
    assert with_presence(mood, EmbeddingResult([], [], {}, audience=0.55)).spread == spread


def test_voices_that_settle_it_leave_less_spread() -> None:
    spread = dict.fromkeys(ATTRIBUTES, 0.05)
    mood = MoodResult(0.1, 0.2, 0.3, 0.5, 0.5, 0.1, 0.7, [], {}, spread, 4)
    nobody = with_presence(mood, EmbeddingResult([], [], {}, voices=-1.5)).spread
    assert nobody.pop("instrumentalness") < 0.01
    assert nobody.items() < spread.items()


def melody(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Plucked notes of a tune."""
    t = np.arange(int(seconds * RATE)) / RATE
    notes = 220 * 2 ** (np.random.default_rng(0).choice([0, 2, 4, 7, 9], 200) / 12)
    phase = 2 * np.pi * np.cumsum(notes[(t / 0.3).astype(int)]) / RATE
    return 0.1 * np.sin(phase) * np.exp(-5 * (t % 0.3))


def clapping(seconds: float, n_claps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Many short bursts of noise around 1 kHz, each with its own pitch and length."""
    rng = np.random.default_rng(1)
    n = int(seconds * RATE)
    claps = np.zeros(n + RATE)
    for at in rng.integers(0, n, n_claps):
        length = int(rng.uniform(550, 2200))
        sos = butter(2, rng.uniform(800, 1800) * np.array([0.6, 1.8]), "bp", fs=RATE, output="sos")
        noise = rng.standard_normal(length) * np.exp(-5 * np.arange(length) / length)
        claps[at : at + length] += rng.uniform(0.2, 1) * sosfilt(sos, noise)
    return 0.1 * claps[:n] / claps.std()


def sung(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Vowels on a tune, with vibrato: harmonics through three formants that change."""
    t = np.arange(int(seconds * RATE)) / RATE
    notes = 220 * 2 ** (np.random.default_rng(3).choice([0, 2, 4, 5, 7], 200) / 12)
    vibrato = 1 + 0.012 * np.sin(2 * np.pi * 5.5 * t) * np.minimum(1, (t % 0.8) / 0.3)
    phase = 2 * np.pi * np.cumsum(notes[(t / 0.8).astype(int)] * vibrato) / RATE
    source = sum(np.sin(k * phase) / k for k in range(1, 30))
    now = np.random.default_rng(4).integers(0, 4, 200)[(t / 0.4).astype(int)]
    voice = np.zeros_like(t)
    for i, vowel in enumerate(
        ((700, 1150, 2700), (400, 800, 2600), (300, 2200, 2900), (530, 1850, 2500))
    ):
        for hz, width, gain in zip(vowel, (70, 90, 120), (1, 0.6, 0.25), strict=True):
            sos = butter(2, [hz - width, hz + width], "bp", fs=RATE, output="sos")
            voice += gain * sosfilt(sos, source) * uniform_filter1d((now == i) * 1.0, 1500)
    voice *= np.minimum(1, (t % 0.8) / 0.05) * np.minimum(1, (0.8 - t % 0.8) / 0.06)
    return 0.1 * voice / voice.std()


def test_a_singer_is_heard_in_a_tune_and_nobody_in_the_tune_alone(step: EmbeddingStep) -> None:
    def heard(samples: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
        return run_local(step, Waveform(samples[None].astype(np.float32), RATE)).voices

    alone, with_a_singer = heard(melody(10.0)), heard(melody(10.0) + sung(10.0))
    assert alone is not None
    assert with_a_singer is not None
    assert alone < 0 < with_a_singer


def test_a_tune_that_ends_in_applause_has_an_audience_and_noise_has_none(
    step: EmbeddingStep,
) -> None:
    def heard(samples: np.ndarray[tuple[int], np.dtype[np.float64]]) -> EmbeddingResult:
        return run_local(step, Waveform(samples[None].astype(np.float32), RATE))

    alone = heard(melody(20.0))
    noise = heard(0.1 * np.random.default_rng(2).standard_normal(20 * RATE))
    live = heard(np.concatenate([melody(12.0), clapping(8.0, 4000)]))
    assert alone.audience < 0.2
    assert noise.audience < 0.2
    assert live.audience > 0.5
    assert max(alone.speech, noise.speech, live.speech) < 0.2
