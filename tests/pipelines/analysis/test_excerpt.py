"""Which parts of a track are analysed, and that seeking reads the same ones."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.analysis.excerpt import Excerpt, decode_excerpt
from pipelines.analysis.records import MoodResult
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.decode_answer import AudioClaims
from pipelines.audio.waveform import AudioTooLongError, Waveform
from tests.data.audio_files import encode

RATE = 44_100
SMALL = Excerpt(n_parts=3, part_s=1.0)
LIMITS = DecodeLimits(max_seconds=60)


def ramp(duration_s: float, channels: int = 2) -> Waveform:
    """Samples whose value is their position."""
    n = round(duration_s * RATE)
    return Waveform(np.repeat(np.arange(n, dtype=np.float32)[None], channels, axis=0))


def test_the_parts_lie_in_the_middle_of_equal_shares() -> None:
    assert Excerpt().segments(180.0) == [(25.0, 10.0), (85.0, 10.0), (145.0, 10.0)]
    assert SMALL.segments(3.0) == [(0.0, 3.0)]
    assert np.allclose(SMALL.segments(3.6), [(0.1, 1.0), (1.3, 1.0), (2.5, 1.0)])


def test_taking_joins_the_parts() -> None:
    heard = SMALL.take(ramp(12.0))
    assert heard.samples.shape == (2, 3 * RATE)
    starts = heard.samples[0, [0, RATE, 2 * RATE]] / RATE
    assert starts == pytest.approx([1.5, 5.5, 9.5])
    short = ramp(2.5)
    assert SMALL.take(short) is short


def test_a_result_tells_what_was_heard() -> None:
    mood = MoodResult(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, [], {"tags": "x"})
    assert Excerpt().mark(mood).models == {"tags": "x", "excerpt": "3 x 10 s"}


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds, each with a different pitch."""
    t = np.arange(12 * RATE) / RATE
    samples = 0.3 * np.sin(2 * np.pi * (200 + 100 * np.floor(t)) * t)
    path = tmp_path_factory.mktemp("tones") / "a.mp3"
    return encode(path, np.stack([samples, samples]).astype(np.float32), "mp3", "libmp3lame")


def test_seeking_gives_what_cutting_gives(tones: Path) -> None:
    sought = decode_excerpt(tones, LIMITS, SMALL).samples[0]
    cut = SMALL.take(decode(tones, LIMITS)).samples[0]
    assert sought.shape == cut.shape
    pitches = [
        int(np.abs(np.fft.rfft(part[RATE // 8 : RATE // 8 + RATE // 4])).argmax()) * 4
        for samples in (sought, cut)
        for part in samples.reshape(3, RATE)
    ]
    assert pitches[:3] == pitches[3:]
    assert len(set(pitches)) == 3


@pytest.mark.parametrize("claimed_s", [None, 100.0, 40.0, 2.0])
def test_wrong_headers_lead_to_the_whole_track(tones: Path, claimed_s: float | None) -> None:
    def claims(_: Path, __: DecodeLimits) -> AudioClaims:
        return AudioClaims("mp3", "mp3", RATE, 2, claimed_s)

    heard = decode_excerpt(tones, LIMITS, SMALL, read_claims=claims)
    expected = SMALL.take(decode(tones, LIMITS))
    assert np.array_equal(heard.samples, expected.samples)


def test_too_long_a_track_is_refused_as_always(tones: Path) -> None:
    with pytest.raises(AudioTooLongError):
        decode_excerpt(tones, DecodeLimits(max_seconds=5), SMALL)
