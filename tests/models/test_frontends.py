"""Front-ends compared with the reference implementations: librosa and torchaudio's Kaldi port."""

import librosa
import numpy as np
import pytest
import torch
from scipy.signal import get_window
from torch import Tensor

from models.frontends import (
    KALDI_LOG_FLOOR,
    KaldiFbank,
    MusicnnMel,
    PowerMel,
    VibenetMel,
    htk_bands,
    magnitudes,
    slaney_bands,
)


def music(seconds: float = 3.0, seed: int = 0, sample_rate: int = 16_000) -> Tensor:
    """Chords with noise bursts and a fade: something at every level and every frequency."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * sample_rate)) / sample_rate
    tones = sum(np.sin(2 * np.pi * f * t) / k for k, f in enumerate((220, 277.2, 1108, 5000), 1))
    noise = rng.standard_normal(len(t)) * (np.sin(2 * np.pi * 2 * t) > 0.8)
    return torch.from_numpy(
        ((0.2 * tones + 0.1 * noise) * np.linspace(1, 1e-3, len(t))).astype("f4")
    )


@pytest.mark.parametrize(("n_fft", "n_mels"), [(512, 96), (1024, 128), (2048, 40)])
def test_slaney_bands_are_librosas(n_fft: int, n_mels: int) -> None:
    want = librosa.filters.mel(sr=16_000, n_fft=n_fft, n_mels=n_mels)
    np.testing.assert_allclose(slaney_bands(16_000, n_fft, n_mels), want, atol=1e-7)


def test_htk_bands_are_torchaudios() -> None:
    import torchaudio

    want = torchaudio.functional.melscale_fbanks(513, 0.0, 8000.0, 64, 16_000).T
    np.testing.assert_allclose(htk_bands(16_000, 1024, 64), want.numpy(), atol=1e-5)


def test_magnitudes_are_torchs() -> None:
    spectra = torch.fft.rfft(music().view(-1, 480), 2048)
    spectra[0] = 0.0
    spectra[1] *= 1e6
    torch.testing.assert_close(magnitudes(spectra[..., 3:700]), spectra[..., 3:700].abs())


@pytest.mark.slow
def test_musicnn_features_are_librosas_within_1e_4() -> None:
    wave = music()
    mel = librosa.feature.melspectrogram(
        y=wave.numpy(), sr=16_000, n_fft=512, hop_length=256, n_mels=96, center=False
    )
    got = MusicnnMel()(wave[None])[0]
    assert got.shape == (96, 186)
    np.testing.assert_allclose(got.numpy(), np.log10(10_000 * mel + 1), atol=1e-4)


def test_vibenet_features_are_decibels_of_librosas_bands() -> None:
    wave = music()
    frames = np.lib.stride_tricks.sliding_window_view(wave.numpy(), 640)[::320]
    power = np.abs(np.fft.rfft(frames * get_window("hann", 640), n=1024)) ** 2
    mel = librosa.filters.mel(sr=16_000, n_fft=1024, n_mels=128) @ power.T
    level = 10 * np.log10(np.maximum(mel, 1e-10))
    want = np.maximum(level, level.max() - 80)
    got = VibenetMel()(wave[None])[0]
    assert got.shape == (128, 149)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-2)


def test_kaldi_fbank_is_torchaudios_within_1e_3() -> None:
    from torchaudio.compliance import kaldi

    wave = music()
    want = kaldi.fbank(
        wave[None],
        htk_compat=True,
        sample_frequency=16_000,
        use_energy=False,
        window_type="hanning",
        num_mel_bins=128,
        dither=0.0,
        frame_shift=10,
    )
    got = KaldiFbank(16_000, 128)(wave[None])[0]
    assert got.shape == want.shape == (298, 128)
    torch.testing.assert_close(got, want, atol=1e-3, rtol=0)


@pytest.mark.parametrize("front_end", [MusicnnMel(), VibenetMel(), KaldiFbank(16_000, 128)])
def test_a_row_of_a_batch_is_the_window_alone(front_end: torch.nn.Module) -> None:
    batch = torch.stack([music(seed=1), music(seed=2) * 0.1, torch.zeros(48_000)])
    together = front_end(batch)
    for row, window in zip(together, batch, strict=True):
        torch.testing.assert_close(row, front_end(window[None])[0], atol=1e-4, rtol=0)


def test_silence() -> None:
    silence = torch.zeros(1, 16_000)
    assert not PowerMel(16_000, 512, 256, 96)(silence).any()
    assert not MusicnnMel()(silence).any()
    assert (VibenetMel()(silence) == -100).all()
    torch.testing.assert_close(
        KaldiFbank(16_000, 128)(silence).unique(), torch.tensor([KALDI_LOG_FLOOR]).log()
    )
