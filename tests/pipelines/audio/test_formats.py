"""All accepted formats decode in the same sandbox; other formats are refused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.audio.decode import DecodeLimits, Decoder
from pipelines.audio.waveform import AudioError, UndecodableAudioError
from tests.data.audio_files import (
    APE_BLOCKS,
    ENCODINGS,
    MUSEPACK,
    RATE,
    Encoding,
    click_track,
    encode,
    silent_ape,
    write_dff,
    write_dsf,
)

LIMITS = DecodeLimits()
TRACKERS = {
    "mod": b"song".ljust(20, b"\0") + bytes(930) + b"\1\x7f" + bytes(128) + b"M.K." + bytes(9000),
    "xm": b"Extended Module: song".ljust(37) + b"\x1aFastTracker v2.00   \4\1" + bytes(9000),
    "it": b"IMPMsong" + bytes(9000),
    "s3m": b"song".ljust(28, b"\0") + b"\x1a\x10" + bytes(14) + b"SCRM" + bytes(9000),
}


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = Decoder()
    yield decoder
    decoder.close()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: f"{e.name}-{e.codec}")
def test_every_format_is_heard(decoder: Decoder, tmp_path: Path, encoding: Encoding) -> None:
    source = encoding.write(tmp_path / "upload", 2.0)
    check_chord(decoder, source)


@pytest.mark.parametrize("write", [write_dsf, write_dff])
def test_dsd_is_heard(
    decoder: Decoder, tmp_path: Path, write: Callable[[Path, np.ndarray], Path]
) -> None:
    check_chord(decoder, write(tmp_path / "upload", click_track(120, 2.0)))


def test_musepack_is_heard(decoder: Decoder) -> None:
    check_chord(decoder, MUSEPACK)


def check_chord(decoder: Decoder, source: Path) -> None:
    waveform = decoder.decode(source, LIMITS)
    assert waveform.duration_s == pytest.approx(2.0, abs=0.12)
    heard = np.abs(np.fft.rfft(waveform.samples[0][RATE // 2 : RATE // 2 + RATE]))
    assert int(heard[100:400].argmax()) + 100 in {219, 220, 221, 261, 262, 329, 330}
    decoder.check_head(source, LIMITS)


def test_ape_is_heard(decoder: Decoder, tmp_path: Path) -> None:
    source = silent_ape(tmp_path / "a", 2)
    waveform = decoder.decode(source, LIMITS)
    assert waveform.samples.shape == (2, 2 * APE_BLOCKS)
    assert decoder.probe(source, LIMITS).codec == "ape"


@pytest.mark.parametrize("module", TRACKERS.values(), ids=TRACKERS)
def test_tracker_modules_are_refused(decoder: Decoder, tmp_path: Path, module: bytes) -> None:
    (tmp_path / "a").write_bytes(module)
    with pytest.raises(UndecodableAudioError):
        decoder.decode(tmp_path / "a", LIMITS)


@pytest.mark.parametrize(
    ("container", "codec", "sample_format"),
    [("avi", "pcm_s16le", "s16"), ("flv", "aac", "fltp"), ("voc", "pcm_s16le", "s16")],
)
def test_other_containers_are_refused(
    decoder: Decoder, tmp_path: Path, container: str, codec: str, sample_format: str
) -> None:
    tones = click_track(120, 2.0)
    source = encode(tmp_path / "a", tones, container, codec, sample_format=sample_format)
    with pytest.raises(UndecodableAudioError):
        decoder.decode(source, LIMITS)


@pytest.mark.parametrize("seed", range(12))
def test_the_head_of_random_bytes_is_refused(decoder: Decoder, tmp_path: Path, seed: int) -> None:
    (tmp_path / "a").write_bytes(np.random.default_rng(seed).bytes(100_000))
    with pytest.raises(AudioError):
        decoder.check_head(tmp_path / "a", LIMITS)


def test_the_head_of_half_a_second_will_do(decoder: Decoder, tmp_path: Path) -> None:
    decoder.check_head(
        Encoding("WAV", "wav", "pcm_s16le", "s16").write(tmp_path / "a", 0.5), LIMITS
    )


def test_the_head_of_an_m4a_without_its_index_is_refused(decoder: Decoder, tmp_path: Path) -> None:
    whole = Encoding("M4A", "ipod", "aac").write(tmp_path / "a", 4.0).read_bytes()
    for n in (8, 40, 2_000, len(whole) // 2):
        (tmp_path / "b").write_bytes(whole[:n])
        with pytest.raises(UndecodableAudioError, match="damaged or incomplete"):
            decoder.check_head(tmp_path / "b", LIMITS)
