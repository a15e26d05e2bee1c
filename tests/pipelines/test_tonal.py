"""Key of chord progressions in every key, tuned and mistuned."""

import numpy as np
import pytest
import torch

from models.key import SAMPLE_RATE, UNKNOWN
from pipelines.tonal import ChromaModel, estimate_key
from tests.data.synthetic_music import steady

MODEL = ChromaModel("hpcp", torch.device("cpu"))


def chroma(samples: np.ndarray) -> np.ndarray:
    mono = samples.mean(axis=0).reshape(-1, 2).mean(axis=1)  # 44.1 to 22.05 kHz
    with torch.inference_mode():
        rows = MODEL.forward(MODEL.grid.windows(mono.astype(np.float32)))["chroma"]
    return MODEL.grid.join(rows, len(mono)).numpy()


@pytest.mark.parametrize("key", range(12))
@pytest.mark.parametrize("mode", ["major", "minor"])
def test_every_key(key: int, mode: str) -> None:
    found = estimate_key(chroma(steady(120, 10, key=key, mode=mode).samples))
    assert (found.key, found.mode) == (key, int(mode == "major"))
    assert found.confidence > 0.3


@pytest.mark.parametrize("cents", [-30, -15, 20, 30])
def test_mistuned_music(cents: float) -> None:
    found = estimate_key(chroma(steady(120, 10, key=7, mode="minor", cents=cents).samples))
    assert (found.key, found.mode) == (7, 0)


@pytest.mark.parametrize("seconds", [1.0, 5.0, 30.0])
def test_noise_has_no_key(seconds: float) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (1, int(seconds * 2 * SAMPLE_RATE)))
    assert estimate_key(chroma(noise)) == UNKNOWN


def test_silence_has_no_key() -> None:
    assert estimate_key(np.zeros((10, 12), dtype=np.float32)) == UNKNOWN


def test_confidence_falls_with_ambiguity() -> None:
    clear = np.zeros((1, 12), dtype=np.float32)
    clear[0, [0, 2, 4, 5, 7, 9, 11]] = [1, 0.4, 0.6, 0.4, 0.9, 0.3, 0.3]
    vague = clear + np.roll(clear, 7, axis=1)
    assert estimate_key(clear).confidence > 1.5 * estimate_key(vague).confidence
