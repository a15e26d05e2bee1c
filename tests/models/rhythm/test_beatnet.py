"""The beat network: front-end, published weights, batching."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from models.rhythm.beatnet import HOP_LENGTH, SAMPLE_RATE, BeatEnsemble, BeatFrontEnd, filter_bank


@pytest.fixture(scope="module")
def network(checkpoint: Callable[[str], dict[str, Tensor]]) -> BeatEnsemble:
    return BeatEnsemble.from_tensors(checkpoint("beatnet"))


def clicks(tempo: float, seconds: float) -> tuple[Tensor, np.ndarray]:
    """Noise bursts on the beats, ``[1, T]``, and their times."""
    rng = np.random.default_rng(0)
    beats = np.arange(0.5, seconds - 0.2, 60 / tempo)
    waveform = np.zeros(int(seconds * SAMPLE_RATE))
    burst = rng.standard_normal(2205) * np.exp(-np.arange(2205) / 300) * 0.5
    for beat in beats:
        start = round(beat * SAMPLE_RATE)
        waveform[start : start + len(burst)] += burst
    return torch.from_numpy(waveform).float()[None], beats


def test_filter_bank() -> None:
    bank = filter_bank()
    assert bank.shape == (705, 136)
    np.testing.assert_allclose(bank.sum(axis=0), 1.0, rtol=1e-6)
    centres = bank.argmax(axis=0)
    assert (np.diff(centres) > 0).all()
    # 24 bands per octave once the bins are finer than the bands.
    frequencies = centres * SAMPLE_RATE / 1410
    octave = np.searchsorted(frequencies, 8000) - np.searchsorted(frequencies, 4000)
    assert octave == 24


def test_features_of_one_frame_are_the_published_recipe() -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(0, 0.1, 4410)
    features = BeatFrontEnd()(torch.from_numpy(samples).float()[None])[0].double().numpy()
    assert features.shape == (10, 272)

    def bands(frame: int) -> np.ndarray:
        padded = np.concatenate([np.zeros(705), samples, np.zeros(1411)])
        windowed = padded[frame * HOP_LENGTH :][:1411] * np.hanning(1411)
        return np.log10(1 + np.abs(np.fft.rfft(windowed))[:705] @ filter_bank())

    np.testing.assert_allclose(features[5, :136], bands(5), atol=2e-6)
    rise = np.maximum(bands(5) - bands(4), 0)
    np.testing.assert_allclose(features[5, 136:], rise, atol=3e-6)
    assert not features[0, 136:].any()


def test_silence_has_zero_features() -> None:
    assert not BeatFrontEnd()(torch.zeros(1, 2205)).any()


def test_probabilities_peak_on_clicks(network: BeatEnsemble) -> None:
    waveform, beats = clicks(120, 12)
    with torch.inference_mode():
        activations = network(waveform)[0]
    assert activations.shape == (600, 2)
    assert (activations >= 0).all()
    assert (activations.sum(-1) <= 1).all()
    pulse = activations.sum(-1).numpy()
    at = np.round(beats[8:] * 50).astype(int)
    on = np.max([pulse[at + d] for d in (-1, 0, 1)], axis=0)
    off = pulse[at[:-1] + 12]
    assert on.min() > 0.5
    assert off.max() < 0.2


def test_the_ensemble_is_the_mean_of_its_networks(
    checkpoint: Callable[[str], dict[str, Tensor]], network: BeatEnsemble
) -> None:
    tensors = checkpoint("beatnet")
    waveform, _ = clicks(100, 4)
    singles = [
        BeatEnsemble.from_tensors({k: v for k, v in tensors.items() if k[0] == number})
        for number in "123"
    ]
    with torch.inference_mode():
        mean = torch.stack([single(waveform) for single in singles]).mean(0)
        torch.testing.assert_close(network(waveform), mean, atol=1e-6, rtol=1e-5)


def test_a_row_equals_itself_alone(network: BeatEnsemble) -> None:
    batch = torch.cat([clicks(90, 5)[0], clicks(140, 5)[0], torch.zeros(1, 5 * SAMPLE_RATE)])
    with torch.inference_mode():
        together = network(batch)
        for row, wave in zip(together, batch, strict=True):
            torch.testing.assert_close(network(wave[None])[0], row, atol=1e-5, rtol=1e-4)


def test_a_frame_does_not_know_the_future(network: BeatEnsemble) -> None:
    waveform, _ = clicks(120, 6)
    cut = waveform.clone()
    cut[:, 3 * SAMPLE_RATE :] = 0.3
    with torch.inference_mode():
        torch.testing.assert_close(
            network(cut)[:, :148], network(waveform)[:, :148], atol=1e-6, rtol=1e-5
        )


def test_foreign_tensors_are_refused(checkpoint: Callable[[str], dict[str, Tensor]]) -> None:
    tensors = checkpoint("beatnet")
    with pytest.raises(RuntimeError, match="surplus"):
        BeatEnsemble.from_tensors({**tensors, "1.surplus": torch.zeros(1)})
    del tensors["2.linear.bias"]
    with pytest.raises(RuntimeError, match=r"linear\.bias"):
        BeatEnsemble.from_tensors(tensors)
