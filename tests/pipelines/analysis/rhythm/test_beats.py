"""Windows of the beat networks: borders, level, and the choice of network by card."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints.cards import CardError, ModelCard
from models.rhythm.beatnet import SAMPLE_RATE
from models.rhythm.network import BeatNetwork
from models.rhythm.tracker import BeatTracker
from pipelines.analysis.rhythm.beats import BeatModel, load_beat_model
from pipelines.batching.steps import forward_windows


@pytest.fixture(scope="module")
def model() -> BeatModel:
    torch.manual_seed(0)
    network = BeatTracker([BeatNetwork(channels=8, n_blocks=8).eval()]).eval()
    return BeatModel("own", network, torch.device("cpu"))


def noise(seconds: float) -> np.ndarray:
    """Noise whose level swells every half second, with a silent break."""
    n = int(seconds * SAMPLE_RATE)
    rng = np.random.default_rng(0)
    samples = rng.normal(0, 0.1, n) * (1.2 + np.sin(np.arange(n) * (4 * np.pi / SAMPLE_RATE)))
    samples[n // 2 : n // 2 + 2 * SAMPLE_RATE] = 0.0
    return samples.astype(np.float32)


@pytest.mark.parametrize("seconds", [0.01, 7.3, 121.0, 290.0])
def test_windows_join_to_the_whole(model: BeatModel, seconds: float) -> None:
    samples = noise(seconds)
    windows = model.windows(torch.from_numpy(samples))
    assert len(windows) == (1 if seconds < 130 else 3)
    rows = forward_windows(model, windows, 2)
    found = model.join(rows, len(samples))
    assert found.tempo is not None
    tracker = model._network
    assert isinstance(tracker, BeatTracker)
    whole_seconds = -(-len(samples) // SAMPLE_RATE) + 30
    whole = np.zeros(whole_seconds * SAMPLE_RATE, dtype=np.float32)
    whole[: len(samples)] = samples / tracker.level(torch.from_numpy(samples))
    with torch.inference_mode():
        expected = tracker(torch.from_numpy(whole)[None])
    n = len(found.activations)
    assert n == max(1, -(-len(samples) // 441))
    np.testing.assert_allclose(found.activations, expected["activations"][0, :n], atol=1e-5)
    np.testing.assert_allclose(found.tempo, expected["tempo"][0, : len(found.tempo)], atol=1e-4)
    assert len(found.tempo) == max(1, -(-len(samples) // SAMPLE_RATE))


def test_gain_changes_nothing(model: BeatModel) -> None:
    samples = noise(20)
    quiet = samples * np.float32(0.03)
    a, b = (
        model.join(forward_windows(model, model.windows(torch.from_numpy(x)), 2), len(x))
        for x in (samples, quiet)
    )
    np.testing.assert_allclose(a.activations, b.activations, atol=1e-3)


def test_padding_behind_the_track_is_not_measured(model: BeatModel) -> None:
    samples = noise(12)
    padded = np.pad(samples, (0, 90 * SAMPLE_RATE))
    torch.testing.assert_close(
        model.windows(torch.from_numpy(padded), len(samples))[:],
        model.windows(torch.from_numpy(samples))[:],
    )


def test_a_card_of_another_network_is_refused(cards: dict[str, ModelCard], tmp_path: Path) -> None:
    with pytest.raises(CardError, match="nothing tracks beats with a 'wheel'"):
        load_beat_model(replace(cards["beatnet"], network="wheel"), tmp_path, torch.device("cpu"))
