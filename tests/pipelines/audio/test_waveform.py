"""The waveform and the audio errors."""

import pickle

import numpy as np
import pytest

from pipelines.audio.waveform import (
    AudioError,
    AudioTooLongError,
    AudioTooShortError,
    UndecodableAudioError,
    Waveform,
)


def test_duration_and_mono() -> None:
    stereo = Waveform(np.array([[1, 0, 0.5], [0, 1, -0.5]], np.float32), 2)
    assert stereo.duration_s == 1.5
    assert stereo.mono().tolist() == [0.5, 0.5, 0.0]
    assert stereo.mono().dtype == np.float32
    mono = Waveform(np.array([[0.25, 0.5]], np.float32))
    assert mono.mono().tolist() == [0.25, 0.5]
    assert mono.sample_rate == 44_100


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (UndecodableAudioError, "unprocessable_audio"),
        (AudioTooLongError, "audio_too_long"),
        (AudioTooShortError, "audio_too_short"),
    ],
)
def test_errors_cross_processes_with_code_and_message(kind: type[AudioError], code: str) -> None:
    error = pickle.loads(pickle.dumps(kind("what to do")))  # noqa: S301 - our own bytes
    assert type(error) is kind
    assert (error.code, str(error)) == (code, "what to do")
