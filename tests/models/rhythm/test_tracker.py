"""afa's own beat tracker with random weights: ensembles, silence, rows."""

import numpy as np
import pytest
import torch

from models.rhythm.network import SAMPLE_RATE, BeatNetwork
from models.rhythm.tracker import BeatTracker


def network(seed: int) -> BeatNetwork:
    torch.manual_seed(seed)
    return BeatNetwork(channels=8, n_blocks=3).eval()


def waveform(seconds: int, seed: int = 0) -> torch.Tensor:
    samples = np.random.default_rng(seed).normal(0, 1, seconds * SAMPLE_RATE)
    return torch.from_numpy(samples.astype(np.float32))


def test_one_network() -> None:
    tracker = BeatTracker.from_tensors(network(0).state_dict())
    assert not tracker.training
    samples = waveform(4)
    outputs = tracker(samples[None])
    assert outputs["activations"].shape == (1, 200, 2)
    assert outputs["tempo"].shape == (1, 4, 64)
    logits = network(0)(tracker.features(samples[None]))
    beat, downbeat = logits.beat.sigmoid(), logits.downbeat.sigmoid()
    expected = torch.stack([(beat - downbeat).clamp_min(0), downbeat], dim=-1)
    torch.testing.assert_close(outputs["activations"], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(outputs["tempo"], logits.tempo, atol=1e-5, rtol=0)


def test_several_networks_are_averaged() -> None:
    tensors = {
        f"{i}.{name}": tensor for i in (1, 2) for name, tensor in network(i).state_dict().items()
    }
    tracker = BeatTracker.from_tensors(tensors)
    samples = waveform(3)[None]
    tempi = [BeatTracker([network(i)]).eval()(samples)["tempo"] for i in (1, 2)]
    torch.testing.assert_close(
        tracker(samples)["tempo"], (tempi[0] + tempi[1]) / 2, atol=1e-5, rtol=0
    )
    assert tracker.receptive_frames == network(1).receptive_frames + 2


def test_a_row_equals_itself_alone_whatever_follows_it() -> None:
    tracker = BeatTracker([network(0)]).eval()
    short = torch.cat([waveform(5), torch.zeros(25 * SAMPLE_RATE)])
    rows = tracker(torch.stack([waveform(30, 1), short]))
    alone = tracker(short[None, : 10 * SAMPLE_RATE])
    found = rows["activations"][1, :300]
    torch.testing.assert_close(found, alone["activations"][0, :300], atol=1e-5, rtol=0)
    torch.testing.assert_close(rows["tempo"][1, :6], alone["tempo"][0, :6], atol=1e-5, rtol=0)


def test_silence() -> None:
    outputs = BeatTracker([network(0)]).eval()(torch.zeros(2, 12 * SAMPLE_RATE))
    assert outputs["activations"].shape == (2, 600, 2)
    assert torch.isfinite(outputs["activations"]).all()


def test_no_beat_begins_in_silence() -> None:
    samples = waveform(6)
    samples[2 * SAMPLE_RATE : 4 * SAMPLE_RATE] = 0.0
    activations = BeatTracker([network(0)]).eval()(samples[None])["activations"][0]
    assert (activations[102:198] == 0).all()
    assert (activations[:98] > 0).any(dim=1).all()
    assert (activations[202:] > 0).any(dim=1).all()


@pytest.mark.parametrize("dither", [0.0, 1.5e-4])
def test_beats_go_on_for_five_seconds_behind_the_last_sound(dither: float) -> None:
    tracker, samples = BeatTracker([network(0)]).eval(), waveform(12)
    samples[4 * SAMPLE_RATE :] *= dither
    activations = tracker((samples / tracker.level(samples))[None])["activations"][0]
    told = activations.amax(dim=1) > 0
    assert told[: 9 * 50].all()
    assert not told[9 * 50 + 2 :].any()


def test_pauses_change_no_level() -> None:
    tracker, sound = BeatTracker([network(0)]), waveform(10)
    sparse = torch.zeros_like(sound)
    for start in range(0, len(sound), SAMPLE_RATE):
        sparse[start : start + SAMPLE_RATE // 20] = sound[start : start + SAMPLE_RATE // 20]
    assert tracker.level(sparse) == pytest.approx(tracker.level(sound), rel=0.1)


@pytest.mark.parametrize("gain", [0.05, 4.0])
def test_the_level_follows_the_gain(gain: float) -> None:
    tracker, samples = BeatTracker([network(0)]), waveform(5)
    assert tracker.level(samples * gain) == pytest.approx(gain * tracker.level(samples), rel=1e-3)
