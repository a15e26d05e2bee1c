"""Float files whose samples are not sound: refused, or silenced if only a few are affected."""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.audio.decode import DecodeLimits, Decoder
from pipelines.audio.shared_rows import LOUDEST
from pipelines.audio.waveform import UndecodableAudioError
from tests.data.audio_files import click_track, encode, float_wav

RATE = 44_100
LIMITS = DecodeLimits()


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = Decoder()
    yield decoder
    decoder.close()


def tone(seconds: float = 4.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)


WRONG = {
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "largest float": 3.4e38,
    "int16 as float": 32_768.0,
    "just over": 8.01,
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_a_file_of_them_is_refused(
    decoder: Decoder, tmp_path: Path, value: float, dtype: str
) -> None:
    source = float_wav(tmp_path / "a", np.full(RATE * 4, value), dtype=dtype)
    with pytest.raises(UndecodableAudioError, match="100% of the audio's samples are not sound"):
        decoder.decode(source, LIMITS)


def test_a_file_beyond_float32_is_refused(decoder: Decoder, tmp_path: Path) -> None:
    source = float_wav(tmp_path / "a", np.full(RATE * 4, 1e308), dtype="<f8")
    with pytest.raises(UndecodableAudioError, match="samples are not sound"):
        decoder.decode(source, LIMITS)


def test_they_are_refused_when_resampled_too(decoder: Decoder, tmp_path: Path) -> None:
    samples = tone()
    samples[::50] = np.nan
    source = float_wav(tmp_path / "a", samples, rate=48_000)
    with pytest.raises(UndecodableAudioError, match="samples are not sound"):
        decoder.decode(source, LIMITS)


def test_segments_are_looked_at_too(decoder: Decoder, tmp_path: Path) -> None:
    samples = tone()
    samples[RATE * 2 :] = np.nan
    source = float_wav(tmp_path / "a", samples)
    (good,) = decoder.decode_segments(source, [(0.5, 1.0)], LIMITS)
    np.testing.assert_allclose(good.samples[0], samples[RATE // 2 : RATE * 3 // 2], atol=1e-6)
    with pytest.raises(UndecodableAudioError, match="samples are not sound"):
        decoder.decode_segments(source, [(2.5, 1.0)], LIMITS)


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_few_of_them_are_silenced_and_nothing_else(
    decoder: Decoder, tmp_path: Path, value: float
) -> None:
    samples = tone()
    wrong = np.random.default_rng(0).choice(len(samples), len(samples) // 101, replace=False)
    samples[wrong] = value
    found = decoder.decode(float_wav(tmp_path / "a", samples), LIMITS).samples[0]
    samples[wrong] = 0.0
    np.testing.assert_allclose(found, samples, atol=1e-6)


def test_one_in_a_hundred_is_too_many(decoder: Decoder, tmp_path: Path) -> None:
    samples = tone()
    samples[: len(samples) // 99] = np.nan
    with pytest.raises(UndecodableAudioError, match="1% of the audio's samples are not sound"):
        decoder.decode(float_wav(tmp_path / "a", samples), LIMITS)


def test_loud_is_not_wrong(decoder: Decoder, tmp_path: Path) -> None:
    samples = tone() * 2 * LOUDEST
    found = decoder.decode(float_wav(tmp_path / "a", samples), LIMITS).samples[0]
    np.testing.assert_allclose(found, samples, rtol=1e-6)


@pytest.mark.parametrize("seed", [21, 34, 48])
def test_a_flipped_bit_in_an_mp3_is_not_the_end_of_it(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A frame decodes to samples out of all bounds; players play the rest, and so does afa."""
    encoded = encode(tmp_path / "a", click_track(120, 4.0), "mp3", "libmp3lame").read_bytes()
    flipped, rng = bytearray(encoded), np.random.default_rng(seed)
    for at in rng.integers(2000, len(flipped), 8):
        flipped[at] ^= 1 << int(rng.integers(8))
    (tmp_path / "b").write_bytes(flipped)
    found = decoder.decode(tmp_path / "b", LIMITS).samples
    assert np.abs(found).max() <= LOUDEST
    monkeypatch.setattr("pipelines.audio.shared_rows.LOUDEST", np.inf)
    raw = decoder.decode(tmp_path / "b", LIMITS).samples
    assert np.abs(raw).max() > LOUDEST
    np.testing.assert_array_equal(found, np.where(np.abs(raw) <= LOUDEST, raw, 0.0))


def test_the_file_is_what_it_says(tmp_path: Path) -> None:
    head = float_wav(tmp_path / "a", tone(), dtype="<f8").read_bytes()[:44]
    assert struct.unpack("<4sI4s4sIHHIIHH4sI", head)[5:11] == (3, 1, RATE, RATE * 8, 8, 64)
