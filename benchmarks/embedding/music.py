"""Real music that none of our embeddings was trained on, and alterations of it.

Debian packages with game music, fetched and unpacked into ``$AFA_EMBEDDING_AUDIO`` (default:
``afa-embedding`` in ``~/.cache``). None of them is in `configs/train_embedding.yaml`.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.distortions import Audio, at_speed, mp3
from pipelines.analysis.excerpt import Excerpt
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.training.assets import fetch_packages
from pipelines.training.embedding.hear import Track, tracks_of

PACKAGES = (
    "colobot-common-sounds",
    "drascula-music",
    "extremetuxracer-data",
    "hyperrogue-music",
    "marsshooter-data",
    "unknown-horizons",
    "warmux-data",
    "widelands-data",
    "xmoto-data",
    "zaz-data",
)
EXCERPT = Excerpt()
Alteration = Callable[[Waveform], Waveform]


def audio_dir() -> Path:
    """Return the packages' folder."""
    return Path(os.environ.get("AFA_EMBEDDING_AUDIO", "~/.cache/afa-embedding")).expanduser()


def fetch() -> None:
    """Download and unpack what is missing; needs ``apt-get`` and ``dpkg-deb``, but no root.

    Raises:
        PackageError: A package, or a program for it, is unavailable.
    """
    for package in PACKAGES:
        fetch_packages([package], audio_dir() / package)


def tracks() -> list[Track]:
    """Return all files, package by package, each package's in a random order."""
    return [track for package in PACKAGES for track in tracks_of(package, audio_dir() / package, 0)]


def elsewhere(waveform: Waveform) -> Waveform:
    """Cut as much as the excerpt out of the parts of a track that the excerpt leaves out."""
    rate = waveform.sample_rate
    left_out = np.ones(waveform.samples.shape[1], dtype=bool)
    for start_s, length_s in EXCERPT.segments(waveform.duration_s):
        left_out[round(start_s * rate) : round((start_s + length_s) * rate)] = False
    return EXCERPT.take(Waveform(waveform.samples[:, left_out], rate))


def remastered(audio: Audio) -> Audio:
    """Raise both ends of the spectrum by 4 dB, and drive a soft limiter by 9 dB."""
    hz = np.maximum(np.fft.rfftfreq(audio.shape[1], 1 / SAMPLE_RATE), 1)
    gain_db = 4 / (1 + (hz / 120) ** 2) + 4 / (1 + (6000 / hz) ** 2)
    raised = np.fft.irfft(np.fft.rfft(audio) * 10 ** (gain_db / 20), audio.shape[1])
    peak = max(float(np.abs(raised).max()), 1e-6)
    limited: Audio = np.tanh(raised / peak * 10 ** (9 / 20)).astype(np.float32)
    return limited


def _of_the_excerpt(change: Callable[[Audio], Audio]) -> Alteration:
    def altered(waveform: Waveform) -> Waveform:
        samples = EXCERPT.take(waveform).samples.astype(np.float32, copy=False)
        stereo = np.repeat(samples, 2, axis=0) if len(samples) == 1 else samples
        return Waveform(change(stereo), waveform.sample_rate)

    return altered


ALTERATIONS: Mapping[str, Alteration] = {
    "MP3 64 kbit/s": _of_the_excerpt(lambda audio: mp3(audio, 64)),
    "speed +3 %": _of_the_excerpt(lambda audio: at_speed(audio, 1.03)),
    "speed -3 %": _of_the_excerpt(lambda audio: at_speed(audio, 0.97)),
    "-20 dB": _of_the_excerpt(lambda audio: audio * np.float32(0.1)),
    "remastered": _of_the_excerpt(remastered),
    "other 30 s": elsewhere,
}
