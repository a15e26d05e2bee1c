"""Decoding of good, bad and hostile files through the real child process."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from pipelines.audio import decode, shared_rows
from pipelines.audio.decode import DecodeLimits, Decoder, DecoderUnavailableError
from pipelines.audio.waveform import (
    AudioError,
    AudioTooLongError,
    AudioTooShortError,
    UndecodableAudioError,
)

LIMITS = DecodeLimits()
RATE = 44_100


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = Decoder()
    yield decoder
    decoder.close()


def sine(
    duration_s: float, rate: int, frequencies: tuple[float, ...] = (440.0, 660.0)
) -> np.ndarray:
    t = np.arange(round(duration_s * rate)) / rate
    return np.stack([0.5 * np.sin(2 * np.pi * f * t) for f in frequencies]).astype(np.float32)


def encode(
    path: Path,
    samples: np.ndarray,
    container: str,
    codec: str,
    *,
    rate: int = RATE,
    sample_format: str = "fltp",
    options: dict[str, str] | None = None,
    cover: bytes = b"",
) -> Path:
    layout = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}[samples.shape[0]]
    with av.open(str(path), "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate, layout=layout, options=options or {})
        stream.format = sample_format
        if cover:
            picture: Any = output.add_stream("png", rate=1)
            picture.width = picture.height = 8
            picture.pix_fmt = "rgb24"
            picture.disposition = av.stream.Disposition.attached_pic
            for packet in picture.encode(av.VideoFrame(8, 8, "rgb24")):
                output.mux(packet)
        for start in range(0, samples.shape[1], 8192):
            block = np.ascontiguousarray(samples[:, start : start + 8192])
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def write_wav(path: Path, channels: int, rate: int, n_frames: int) -> Path:
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(n_frames) / rate)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(np.repeat(tone[:, None], channels, axis=1).tobytes())
    return path


def peak_frequency(channel: np.ndarray) -> float:
    middle = channel[RATE // 2 : RATE // 2 + RATE]
    return float(np.abs(np.fft.rfft(middle * np.hanning(RATE))).argmax())


FORMATS = [
    ("mp3", "libmp3lame", "fltp", RATE),
    ("wav", "pcm_s16le", "s16", RATE),
    ("wav", "pcm_s24le", "s32", 96_000),
    ("flac", "flac", "s16", RATE),
    ("flac", "flac", "s32", 192_000),
    ("ipod", "aac", "fltp", RATE),
    ("ipod", "alac", "s16p", RATE),
    ("adts", "aac", "fltp", 48_000),
    ("ogg", "vorbis", "fltp", RATE),
    ("ogg", "libopus", "flt", 48_000),
    ("webm", "libopus", "flt", 48_000),
    ("matroska", "flac", "s16", RATE),
    ("aiff", "pcm_s16be", "s16", 22_050),
]


@pytest.mark.parametrize(("container", "codec", "sample_format", "rate"), FORMATS)
def test_every_accepted_format_gives_the_same_tones(
    decoder: Decoder, tmp_path: Path, container: str, codec: str, sample_format: str, rate: int
) -> None:
    source = encode(
        tmp_path / "upload.bin",
        sine(2.0, rate),
        container,
        codec,
        rate=rate,
        sample_format=sample_format,
        options={"strict": "experimental"},
    )
    waveform = decoder.decode(source, LIMITS)
    assert waveform.sample_rate == RATE
    assert waveform.samples.dtype == np.float32
    assert waveform.samples.shape[0] == 2
    assert all(channel.flags.c_contiguous for channel in waveform.samples)
    assert waveform.duration_s == pytest.approx(2.0, abs=0.06)
    assert peak_frequency(waveform.samples[0]) == pytest.approx(440, abs=1)
    tolerance_hz = 20 if codec == "vorbis" else 1  # FFmpeg's own Vorbis encoder is imprecise
    assert peak_frequency(waveform.samples[1]) == pytest.approx(660, abs=tolerance_hz)
    rms = waveform.samples[:, RATE // 2 : -RATE // 2].std(axis=1)
    assert rms == pytest.approx(0.5 / 2**0.5, rel=0.1)


def test_lossless_audio_is_exact(decoder: Decoder, tmp_path: Path) -> None:
    samples = np.round(sine(1.5, RATE) * 32_768) / 32_768
    source = encode(tmp_path / "a", samples, "flac", "flac", sample_format="s16")
    np.testing.assert_array_equal(decoder.decode(source, LIMITS).samples, samples)


def test_mono_stays_mono(decoder: Decoder, tmp_path: Path) -> None:
    waveform = decoder.decode(write_wav(tmp_path / "a", 1, RATE, RATE * 2), LIMITS)
    assert waveform.samples.shape == (1, RATE * 2)


@pytest.mark.parametrize("channels", [1, 2])
def test_long_tracks_are_held_in_half_precision(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channels: int
) -> None:
    source = write_wav(tmp_path / "a", channels, RATE, RATE * 5)
    whole = decoder.decode(source, LIMITS)
    monkeypatch.setattr(shared_rows, "LONG", 5 * RATE)
    assert decoder.decode(source, LIMITS).samples.dtype == np.float32
    monkeypatch.setattr(shared_rows, "LONG", 2 * RATE)
    long = decoder.decode(source, LIMITS)
    assert long.samples.dtype == np.float16
    np.testing.assert_array_equal(long.samples, whole.samples.astype(np.float16))
    assert long.mono().dtype == np.float32


@pytest.mark.parametrize("long_s", [5, 1])
@pytest.mark.parametrize(("share", "is_turned"), [(-1.0, True), (-0.8, True), (-0.3, False)])
def test_a_channel_that_was_turned_round_is_turned_back(
    decoder: Decoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    long_s: int,
    share: float,
    is_turned: bool,
) -> None:
    monkeypatch.setattr(shared_rows, "LONG", long_s * RATE)
    left, other = 0.2 * np.random.default_rng(0).standard_normal((2, 3 * RATE)).clip(-3, 3)
    right = share * left + 0.2 * other * (1 + share)
    stereo = np.stack([left, right]).astype(np.float32)
    source = encode(tmp_path / "a", stereo, "flac", "flac", sample_format="s16")
    waveform = decoder.decode(source, LIMITS)
    expected = np.stack([left, -right if is_turned else right])
    np.testing.assert_allclose(waveform.samples, expected, atol=1e-3)
    assert waveform.mono().std() > 0.05


@pytest.mark.parametrize("long_s", [5, 1])
def test_channels_with_opposite_offsets_do_not_cancel_each_other(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long_s: int
) -> None:
    monkeypatch.setattr(shared_rows, "LONG", long_s * RATE)
    music = 0.02 * np.random.default_rng(0).standard_normal(3 * RATE)
    stereo = np.stack([music + 0.1, music - 0.1]).astype(np.float32)
    source = encode(tmp_path / "a", stereo, "flac", "flac", sample_format="s16")
    np.testing.assert_allclose(decoder.decode(source, LIMITS).samples, stereo, atol=1e-3)


def test_a_long_track_gives_its_memory_back_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_rows, "LONG", 1 << 18)
    descriptor = os.memfd_create("samples", os.MFD_ALLOW_SEALING)
    rows, size = shared_rows.SharedRows(descriptor, 1 << 20), 1 << 17
    for start in range(0, 1 << 20, size):
        for row in range(2):
            noise = np.full(size, (start + row) / (1 << 21), np.float32)
            os.pwrite(descriptor, noise.tobytes(), 4 * (row * rows.row_samples + start))
        rows.take(2, size)
        if rows.n > shared_rows.LONG:
            assert os.fstat(descriptor).st_blocks * 512 <= 2 * resource.getpagesize()
    samples, n_wrong = rows.checked()
    assert n_wrong == 0
    assert samples.dtype == np.float16
    starts = np.arange(1 << 20) // size * size
    np.testing.assert_allclose(samples, (starts + np.arange(2)[:, None]) / (1 << 21), rtol=1e-3)
    os.close(descriptor)


def test_a_wav_that_passes_dts_off_as_pcm_is_refused(decoder: Decoder, tmp_path: Path) -> None:
    header = bytes.fromhex("7ffe8001fc3c7ff0a2c001380003ef7f")  # header of a frame of 2,048 bytes
    bodies = np.random.default_rng(0).bytes(100 * (2048 - len(header)))
    frames = [header + bodies[at::100] for at in range(100)]
    for silence in (0, 16_384):
        with wave.open(str(tmp_path / "a.wav"), "wb") as file:
            file.setparams((2, 2, RATE, 0, "NONE", ""))
            file.writeframes(bytes(silence) + b"".join(frames))
        with pytest.raises(UndecodableAudioError, match="codec that is not accepted"):
            decoder.decode(tmp_path / "a.wav", LIMITS)


@pytest.mark.parametrize("channels", [3, 4, 5, 6, 7, 8])
def test_many_channels_become_stereo_within_full_scale(
    decoder: Decoder, tmp_path: Path, channels: int
) -> None:
    waveform = decoder.decode(write_wav(tmp_path / "a", channels, RATE, RATE * 2), LIMITS)
    assert waveform.samples.shape == (2, RATE * 2)
    assert 0.05 < np.abs(waveform.samples).max() <= 1.0
    assert peak_frequency(waveform.samples[0]) == pytest.approx(440, abs=1)


def test_surround_with_a_layout_becomes_stereo(decoder: Decoder, tmp_path: Path) -> None:
    tones = sine(2.0, 48_000, (440.0,) * 6)
    source = encode(tmp_path / "a", tones, "ipod", "aac", rate=48_000)
    waveform = decoder.decode(source, LIMITS)
    assert waveform.samples.shape[0] == 2
    assert peak_frequency(waveform.samples[0]) == pytest.approx(440, abs=1)


def test_nine_channels_are_refused(decoder: Decoder, tmp_path: Path) -> None:
    source = write_wav(tmp_path / "a", 9, RATE, RATE * 2)
    with pytest.raises(UndecodableAudioError, match="9 channels; send at most 8"):
        decoder.decode(source, LIMITS)


def test_cover_art_is_ignored(decoder: Decoder, tmp_path: Path) -> None:
    source = encode(tmp_path / "a", sine(2.0, RATE), "mp3", "libmp3lame", cover=b"yes")
    assert b"PNG" in source.read_bytes()
    assert decoder.decode(source, LIMITS).duration_s == pytest.approx(2.0, abs=0.06)


def test_silence_is_audio(decoder: Decoder, tmp_path: Path) -> None:
    source = encode(tmp_path / "a", np.zeros((2, RATE * 2), np.float32), "mp3", "libmp3lame")
    waveform = decoder.decode(source, LIMITS)
    assert waveform.duration_s == pytest.approx(2.0, abs=0.06)
    assert not waveform.samples.any()


def test_empty_file(decoder: Decoder, tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_bytes(b"")
    with pytest.raises(UndecodableAudioError, match="empty"):
        decoder.decode(tmp_path / "a.mp3", LIMITS)


def test_wav_header_without_audio(decoder: Decoder, tmp_path: Path) -> None:
    with pytest.raises(UndecodableAudioError, match="damaged or incomplete"):
        decoder.decode(write_wav(tmp_path / "a", 2, RATE, 0), LIMITS)


def test_noise_and_text_are_not_audio(decoder: Decoder, tmp_path: Path) -> None:
    source = tmp_path / "song.mp3"
    for content in (
        b"just some words, again and again. " * 300,
        bytes(20_000),
        b"\x89PNG\r\n\x1a\n" * 99,
    ):
        source.write_bytes(content)
        with pytest.raises(UndecodableAudioError, match="use MP3, WAV, FLAC, OGG or M4A"):
            decoder.decode(source, LIMITS)
    source.write_bytes(np.random.default_rng(7).bytes(60_000))
    with pytest.raises(AudioError):
        decoder.decode(source, LIMITS)


@pytest.mark.parametrize(
    "script",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://{0}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{0}'\n",
        "file '{0}'\n",
        "[playlist]\nFile1={0}\n",
        '<?xml version="1.0"?><MPD><BaseURL>{0}</BaseURL></MPD>',
        "<!DOCTYPE html><audio src='{0}'>",
        "\n  <html><body>Log in</body></html>",
    ],
)
def test_scripts_named_mp3_open_nothing(decoder: Decoder, tmp_path: Path, script: str) -> None:
    target = write_wav(tmp_path / "secret.wav", 1, RATE, RATE * 2)
    source = tmp_path / "song.mp3"
    source.write_text(script.format(target))
    with pytest.raises(UndecodableAudioError, match="playlist, script or web page"):
        decoder.decode(source, LIMITS)


def test_a_concat_script_past_the_sniffer_opens_nothing(decoder: Decoder, tmp_path: Path) -> None:
    target = write_wav(tmp_path / "secret.wav", 1, RATE, RATE * 2)
    source = tmp_path / "song.mp3"
    source.write_text(f"\0ffconcat version 1.0\nfile '{target}'\n")
    with pytest.raises(UndecodableAudioError):
        decoder.decode(source, LIMITS)


def test_cut_off_audio_gives_what_is_there(decoder: Decoder, tmp_path: Path) -> None:
    for container, codec, sample_format in (
        ("mp3", "libmp3lame", "fltp"),
        ("flac", "flac", "s16"),
        ("wav", "pcm_s16le", "s16"),
    ):
        whole = encode(
            tmp_path / "whole", sine(4.0, RATE), container, codec, sample_format=sample_format
        ).read_bytes()
        (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
        waveform = decoder.decode(tmp_path / "half", LIMITS)
        assert 1.7 < waveform.duration_s < 2.2
        assert peak_frequency(waveform.samples[0]) == pytest.approx(440, abs=1)


def test_cut_off_m4a_without_its_index_is_named_incomplete(
    decoder: Decoder, tmp_path: Path
) -> None:
    whole = encode(tmp_path / "whole", sine(4.0, RATE), "ipod", "aac").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UndecodableAudioError, match="damaged or incomplete"):
        decoder.decode(tmp_path / "half", LIMITS)


def test_damage_in_the_middle_is_skipped(decoder: Decoder, tmp_path: Path) -> None:
    source = encode(tmp_path / "a", sine(6.0, RATE), "mp3", "libmp3lame")
    data = bytearray(source.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 3000] = b"\x55" * 3000
    source.write_bytes(data)
    assert decoder.decode(source, LIMITS).duration_s > 5.0


def test_too_short(decoder: Decoder, tmp_path: Path) -> None:
    source = write_wav(tmp_path / "a", 1, RATE, RATE // 5)
    with pytest.raises(AudioTooShortError, match=r"lasts 0\.20 s; send at least 1 s"):
        decoder.decode(source, LIMITS)
    assert decoder.decode(source, DecodeLimits(min_seconds=0.1)).duration_s == pytest.approx(0.2)
    nearly = write_wav(tmp_path / "b", 1, RATE, RATE - 1)
    with pytest.raises(AudioTooShortError, match=r"lasts 0\.99 s; send at least 1 s"):
        decoder.decode(nearly, LIMITS)


def test_length_limit_is_exact(decoder: Decoder, tmp_path: Path) -> None:
    source = write_wav(tmp_path / "a", 2, RATE, RATE * 3)
    assert decoder.decode(source, DecodeLimits(max_seconds=3)).duration_s == 3.0
    with pytest.raises(AudioTooLongError, match=r"limit of 0\.0499"):
        decoder.decode(source, DecodeLimits(max_seconds=2.999))


@pytest.fixture(scope="module")
def ten_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "silence"
    with av.open(str(path), "w", format="flac") as output:
        stream: Any = output.add_stream("flac", rate=8_000, layout="mono")
        stream.format = "s16"
        stream.codec_context.options = {"frame_size": "65535"}
        frame = av.AudioFrame(format="s16", layout="mono", samples=65_535)
        frame.sample_rate = 8_000
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        for i in range(10 * 3600 * 8_000 // 65_535 + 1):
            frame.pts = i * 65_535
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def test_ten_hours_of_silence_are_too_long_and_cost_little(
    decoder: Decoder, ten_hours: Path
) -> None:
    assert ten_hours.stat().st_size < 15_000_000
    with pytest.raises(AudioTooLongError, match="15 minutes"):
        decoder.decode(ten_hours, LIMITS)


def test_what_its_container_tells_to_be_too_long_is_refused_before_it_is_decoded(
    decoder: Decoder, ten_hours: Path
) -> None:
    with pytest.raises(AudioTooLongError, match="480 minutes"):
        decoder.decode(ten_hours, DecodeLimits(max_seconds=8 * 3600, cpu_s=1))


def test_a_header_that_lies_refuses_nothing(decoder: Decoder, tmp_path: Path) -> None:
    tone = encode(tmp_path / "tone", sine(20.0, RATE), "flac", "flac", sample_format="s16")
    data = bytearray(tone.read_bytes())
    data[21:26] = bytes([data[21] & 0xF0 | 0xF]) + b"\xff" * 4  # its number of samples
    (tmp_path / "lying").write_bytes(data)
    assert decoder.probe(tmp_path / "lying", LIMITS).duration_s > LIMITS.max_seconds
    heard = decoder.decode(tmp_path / "lying", LIMITS)
    assert np.array_equal(heard.samples, decoder.decode(tone, LIMITS).samples)


def test_pauses_between_packets_are_no_audio(decoder: Decoder, tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a"), "w", format="matroska") as output:
        stream: Any = output.add_stream("pcm_s16le", rate=RATE, layout="mono")
        for pause in range(3):
            frame = av.AudioFrame(format="s16", layout="mono", samples=RATE)
            frame.sample_rate, frame.pts = RATE, pause * 1000 * RATE
            frame.time_base = Fraction(1, RATE)
            frame.planes[0].update(bytes(2 * RATE))
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    assert decoder.probe(tmp_path / "a", LIMITS).duration_s == pytest.approx(2001, abs=1)
    assert decoder.decode(tmp_path / "a", LIMITS).duration_s == 3.0


def test_time_and_memory_limits_end_the_child(
    decoder: Decoder, ten_hours: Path, tmp_path: Path
) -> None:
    slow = DecodeLimits(max_seconds=40_000, wall_s=0.2)
    with pytest.raises(UndecodableAudioError, match="too long to decode"):
        decoder.decode(ten_hours, slow)
    with pytest.raises(UndecodableAudioError, match=r"cannot be decoded|too much memory"):
        decoder.decode(ten_hours, DecodeLimits(40_000, address_space_bytes=20 << 20))
    assert decoder.decode(write_wav(tmp_path / "b", 1, RATE, RATE), LIMITS).duration_s == 1.0


def test_processor_time_limit_ends_the_child(decoder: Decoder, ten_hours: Path) -> None:
    with pytest.raises(UndecodableAudioError, match="too long to decode"):
        decoder.decode(ten_hours, DecodeLimits(max_seconds=40_000, cpu_s=1))


def test_longer_audio_may_take_longer_to_decode() -> None:
    given = [
        (limits.cpu_s, limits.wall_s)
        for limits in map(DecodeLimits, (1.0, 900.0, 3600.0, 4 * 3600.0))
    ]
    assert given == [(30, 60), (30, 60), (60, 120), (240, 480)]
    assert (DecodeLimits(3600.0, cpu_s=5).wall_s, DecodeLimits(wall_s=0.2).cpu_s) == (10, 30)


def test_missing_file_is_not_an_audio_error(decoder: Decoder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        decoder.decode(tmp_path / "absent", LIMITS)


def test_what_is_no_plain_file_is_neither_waited_for_nor_read(
    decoder: Decoder, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        decoder.decode(tmp_path, LIMITS)
    for source in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a plain file"):
            decoder.decode(source, LIMITS)
    for name in ("zero\0", "\ud800"):
        with pytest.raises(OSError, match="no file can have this name"):
            decoder.decode(tmp_path / name, LIMITS)


def test_segments_are_cut_to_the_sample(decoder: Decoder, tmp_path: Path) -> None:
    ramp = np.linspace(-0.9, 0.9, RATE * 20, dtype=np.float32)[None].repeat(2, axis=0)
    source = encode(tmp_path / "a", ramp, "flac", "flac", sample_format="s16")
    whole = decoder.decode(source, LIMITS).samples
    parts = decoder.decode_segments(source, [(3.0, 2.0), (15.5, 1.0), (19.5, 2.0)], LIMITS)
    assert [part.samples.shape[1] for part in parts] == [2 * RATE, RATE, RATE // 2]
    np.testing.assert_array_equal(parts[0].samples, whole[:, 3 * RATE : 5 * RATE])
    np.testing.assert_array_equal(parts[1].samples, whole[:, RATE * 31 // 2 : RATE * 33 // 2])


def test_segments_of_resampled_mp3_agree_with_the_whole(decoder: Decoder, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = np.cumsum(rng.standard_normal((2, 48_000 * 12)), axis=1)
    noise = (noise / np.abs(noise).max() / 2).astype(np.float32)
    source = encode(tmp_path / "a", noise, "mp3", "libmp3lame", rate=48_000)
    whole = decoder.decode(source, LIMITS).samples
    part = decoder.decode_segments(source, [(5.0, 2.0)], LIMITS)[0].samples
    expected = whole[:, 5 * RATE : 7 * RATE]
    assert part.shape == expected.shape
    lags = range(-3, 4)
    errors = [np.abs(np.roll(part, lag, axis=1) - expected)[:, 8:-8].max() for lag in lags]
    assert min(errors) < 0.01


def test_segment_beyond_the_end_is_empty(decoder: Decoder, tmp_path: Path) -> None:
    source = write_wav(tmp_path / "a", 2, RATE, RATE * 2)
    (part,) = decoder.decode_segments(source, [(30.0, 5.0)], LIMITS)
    assert part.samples.shape[1] == 0


def test_probe_reads_headers(decoder: Decoder, tmp_path: Path) -> None:
    source = encode(tmp_path / "a", sine(3.0, 48_000), "ipod", "aac", rate=48_000)
    claims = decoder.probe(source, LIMITS)
    assert (claims.codec, claims.sample_rate, claims.channels) == ("aac", 48_000, 2)
    assert claims.duration_s == pytest.approx(3.0, abs=0.06)


def test_threads_decode_at_once(decoder: Decoder, tmp_path: Path) -> None:
    sources = [write_wav(tmp_path / f"{i}", 1, RATE, RATE * (i + 1)) for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        waveforms = list(pool.map(lambda source: decoder.decode(source, LIMITS), sources))
    assert [waveform.duration_s for waveform in waveforms] == [1, 2, 3, 4, 5, 6]


def test_no_descriptor_or_process_is_left(tmp_path: Path) -> None:
    decoder = Decoder()
    source = write_wav(tmp_path / "a", 2, RATE, RATE * 30)
    decoder.decode(source, LIMITS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(AudioTooLongError):
            decoder.decode(source, DecodeLimits(max_seconds=1))
    # Other threads have some, too.
    assert len(os.listdir("/proc/self/fd")) < before + 10
    process = decoder._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline_s = time.monotonic() + 60
    while len(children.read_text().split()) > 1 and time.monotonic() < deadline_s:
        time.sleep(0.02)  # the last one may still be ending
    assert len(children.read_text().split()) <= 1
    decoder.close()
    assert process.returncode in (0, -signal.SIGKILL)


def test_a_process_out_of_descriptors_says_so_and_leaks_none(
    decoder: Decoder, tmp_path: Path
) -> None:
    source = write_wav(tmp_path / "a", 1, RATE, RATE)
    decoder.decode(source, LIMITS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = set(os.listdir("/proc/self/fd"))
    for left in range(6):
        # The lowest free descriptors are assigned first, so this limits them.
        free = [n for n in range(soft) if str(n) not in before][left]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises((DecoderUnavailableError, OSError)):
                decoder.decode(source, LIMITS)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    assert decoder.decode(source, LIMITS).duration_s == 1.0


def test_a_segment_that_lasts_less_than_nothing_is_empty(decoder: Decoder, tmp_path: Path) -> None:
    source = write_wav(tmp_path / "a", 1, RATE, RATE)
    (empty,) = decoder.decode_segments(source, [(0, -1)], LIMITS)
    assert empty.samples.shape[1] <= 1


def test_a_dead_spawner_is_replaced(tmp_path: Path) -> None:
    decoder = Decoder()
    source = write_wav(tmp_path / "a", 1, RATE, RATE)
    decoder.decode(source, LIMITS)
    assert decoder._process is not None
    decoder._process.send_signal(signal.SIGKILL)
    decoder._process.wait()
    assert decoder.decode(source, LIMITS).duration_s == 1.0
    decoder.close()


def test_the_spawner_ends_with_a_killed_parent(tmp_path: Path) -> None:
    source = write_wav(tmp_path / "a", 1, RATE, RATE)
    script = f"""
import os, pathlib, signal
from pipelines.audio.decode import DecodeLimits, Decoder
decoder = Decoder()
decoder.decode(pathlib.Path({str(source)!r}), DecodeLimits())
print(decoder.process_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    spawner = Path(f"/proc/{int(parent.stdout)}")
    deadline_s = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        # Z: it has ended, and its new parent has not reaped it yet.
        while "Z" not in (spawner / "stat").read_text().rpartition(")")[2].split()[0]:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def test_wrong_av_version_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pipelines.audio.decode.AV_VERSION", "0.0.1")
    with pytest.raises(DecoderUnavailableError, match=r"PyAV 0\.0\.1 is needed"):
        Decoder().decode(write_wav(tmp_path / "a", 1, RATE, RATE), LIMITS)


def test_the_child_has_our_modules_from_the_root_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = write_wav(tmp_path / "a", 1, RATE, RATE)
    folder = tmp_path / "pipelines" / "audio"
    folder.mkdir(parents=True)
    ours = Path(decode.__file__).parent
    imported = ("decode_child.py", "sandbox.py")
    for name in imported:
        shutil.copyfile(ours / name, folder / name)
    monkeypatch.setattr(decode, "__file__", str(folder / "decode.py"))
    moved = Decoder()
    assert moved.decode(source, LIMITS).duration_s == 1.0
    moved.close()
    for name in imported:
        (folder / name).unlink()
        with pytest.raises(DecoderUnavailableError, match="it ended at once"):
            Decoder().decode(source, LIMITS)
        shutil.copyfile(ours / name, folder / name)


def test_walls_are_reported(decoder: Decoder) -> None:
    walls = decoder.active_walls()
    assert set(walls) == {
        "network",
        "user",
        "privileges",
        "lifetime",
        "limits",
        "system calls",
    }
    assert all(state == "on" or state.startswith("off: ") for state in walls.values())


def test_a_system_without_the_walls_is_told_to_use_one_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    audio = tmp_path / "a.wav"
    audio.write_bytes(b"any")
    with pytest.raises(DecoderUnavailableError, match="walls that darwin does not have; run afa"):
        Decoder().decode(audio, DecodeLimits())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n", [0, 1, 3_000, 400_000, 999_999, 1_000_000])
def test_channels_are_packed_whatever_their_length(
    n: int, dtype: type[np.float32 | np.float16]
) -> None:
    capacity = 1_000_000
    memory, rows = shared_rows.ask_rows(2, capacity, dtype)
    wanted = np.arange(2 * n).reshape(2, n) % 2000
    rows[:, :n] = wanted
    packed = shared_rows.pack(memory, rows, n)
    assert packed.dtype == dtype
    assert packed.flags.c_contiguous
    np.testing.assert_array_equal(packed, wanted)


def test_a_packed_track_takes_the_memory_of_its_samples_alone() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    capacity, n = 20 << 20, 8 << 20
    before = resident_bytes()
    memory, rows = shared_rows.ask_rows(2, capacity, np.float32)
    rows[:, :n] = 0.5
    packed = shared_rows.pack(memory, rows, n)
    assert packed.nbytes == 8 * n
    assert resident_bytes() - before < 1.2 * packed.nbytes
