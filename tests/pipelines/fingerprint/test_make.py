import ctypes.util
import io
import wave

import numpy as np
import pytest
from numpy.typing import NDArray

from models.fingerprint.evidence import EvidenceNetwork
from models.fingerprint.landmarks import FRAME_S, LOWEST_BIN, N_BINS, N_FFT, SAMPLE_RATE
from models.fingerprint.subfingerprints import HOP_LENGTH, N_BANDS, correlate, weigh
from pipelines.audio.waveform import AudioTooShortError, UndecodableAudioError, Waveform
from pipelines.fingerprint.clip import EXCERPT_RATE, EXCERPT_S
from pipelines.fingerprint.make import (
    Fingerprinter,
    encode_wav,
    find_loudest_start,
    make_chromaprint,
)

RATE = 44_100


def music(seed: int, seconds: float, rate: int = RATE) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    n = int(seconds * rate)
    audio = np.zeros(n)
    for _ in range(1 + int(seconds * 8)):
        start, hz = rng.integers(0, n - 100), rng.uniform(220, 3500)
        length = min(n - start, rate)
        t = np.arange(length) / rate
        audio[start : start + length] += (
            rng.uniform(0.2, 1) * np.exp(-t * 6) * np.sin(2 * np.pi * hz * t)
        )
    return (audio / np.abs(audio).max()).astype(np.float32)


@pytest.fixture(scope="module")
def fingerprinter() -> Fingerprinter:
    return Fingerprinter()


@pytest.mark.usefixtures("fingerprinter")
def test_another_reads_no_network_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EvidenceNetwork, "shipped", lambda: pytest.fail("it was read"))
    Fingerprinter()


def test_windows_join_without_a_seam(fingerprinter: Fingerprinter) -> None:
    """A long track's landmarks equal those of each part analysed alone, except near its ends."""
    audio = music(0, 50)
    whole = fingerprinter.make_fingerprints([Waveform(audio[None])])[0]
    assert whole.duration_s == pytest.approx(50, abs=0.2)
    assert np.all(np.diff(whole.frames) >= 0)
    for start_s in (8, 21, 34):
        # 4 · 256 samples at 11,025 Hz are whole frames at 44.1 kHz.
        start = round(start_s / FRAME_S) * 1024
        part = fingerprinter.make_fingerprints([Waveform(audio[None, start : start + 14 * RATE])])[
            0
        ]
        inner = part.frames[(part.frames > 60) & (part.frames < part.n_frames - 60)]
        expected = inner + start / 1024
        near = np.abs(whole.frames[None] - expected[:, None]).min(axis=1)
        assert np.mean(near < 0.02) > 0.98


def test_a_batch_equals_each_recording_alone(fingerprinter: Fingerprinter) -> None:
    tracks = [Waveform(music(seed, s)[None]) for seed, s in ((1, 40), (2, 5), (3, 0.05), (4, 33))]
    together = fingerprinter.make_fingerprints(tracks)
    assert len(together[2]) == 0
    for track, found in zip(tracks, together, strict=True):
        alone = fingerprinter.make_fingerprints([track])[0]
        assert found.n_frames == alone.n_frames
        np.testing.assert_allclose(found.frames, alone.frames, atol=1e-3)
        np.testing.assert_allclose(found.pitches, alone.pitches, atol=1e-4)
        np.testing.assert_array_equal(found.subfingerprints, alone.subfingerprints)
    assert [len(found.subfingerprints) for found in together] == [315, 35, 0, 259]


def test_a_clip_in_noise_is_most_like_its_place_in_the_track(fingerprinter: Fingerprinter) -> None:
    audio = music(5, 60)
    (whole,) = fingerprinter.make_fingerprints([Waveform(audio[None])])
    start = 200
    begin = start * HOP_LENGTH * (RATE // SAMPLE_RATE)
    clip = audio[begin : begin + 8 * RATE]
    noise = np.random.default_rng(0).standard_normal(len(clip)).astype(np.float32)
    noisy = clip + noise * np.sqrt(np.mean(np.square(clip)))
    changes = fingerprinter.make_query(Waveform(noisy[None]))[1].changes
    places = np.arange(len(whole.subfingerprints) - len(changes) + 1)
    correlation = correlate(whole.subfingerprints, places, weigh(changes))
    assert correlation.argmax() == start
    assert correlation[start] > 5 * correlation.std()


def test_a_query_holds_the_usual_landmarks_and_the_dense_ones(fingerprinter: Fingerprinter) -> None:
    waveform = Waveform(music(8, 10)[None])
    usual, closer = fingerprinter.make_query(waveform)
    dense = closer.landmarks
    alone = fingerprinter.make_fingerprints([waveform])[0]
    np.testing.assert_array_equal(usual.frames, alone.frames)
    np.testing.assert_array_equal(usual.prominences, alone.prominences)
    assert usual.n_frames == dense.n_frames == alone.n_frames
    assert set(usual.frames.tolist()) < set(dense.frames.tolist())
    nothing, also_nothing = fingerprinter.make_query(Waveform(music(8, 0.05)[None]))
    assert (len(nothing), len(also_nothing.landmarks)) == (0, 0)
    assert also_nothing.evidence.shape == (N_BINS, 0)
    assert also_nothing.changes.shape == (0, N_BANDS)


def test_landmarks_alone_are_those_of_a_fingerprint(fingerprinter: Fingerprinter) -> None:
    waveforms = [Waveform(music(8, seconds)[None]) for seconds in (30, 0.05, 5)]
    whole = fingerprinter.make_fingerprints(waveforms)
    for one, alone in zip(whole, fingerprinter.make_landmarks(waveforms), strict=True):
        np.testing.assert_array_equal(one.frames, alone.frames)
        np.testing.assert_array_equal(one.pitches, alone.pitches)
        assert len(alone.subfingerprints) == 0


@pytest.mark.parametrize("rate", [RATE, SAMPLE_RATE])
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_no_number_is_an_error_of_the_audio(
    fingerprinter: Fingerprinter, odd: float, rate: int
) -> None:
    audio = music(8, 5, rate)
    audio[1000] = odd
    waveform = Waveform(audio[None], rate)
    for make in (fingerprinter.make_query, fingerprinter.make_clip):
        with pytest.raises(UndecodableAudioError, match="not a number"):
            make(waveform)
    for make_all in (fingerprinter.make_fingerprints, fingerprinter.make_landmarks):
        with pytest.raises(UndecodableAudioError, match="not a number"):
            make_all([waveform])


def test_evidence_shows_landmarks_that_noise_hides(fingerprinter: Fingerprinter) -> None:
    """Noise hides many of a clip's landmarks as local maxima, but evidence still marks them."""
    clean = music(9, 10)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(len(clean)).astype(np.float32)
    noisy = clean + noise * np.sqrt(np.mean(np.square(clean)) * 10**0.3)
    true = fingerprinter.make_fingerprints([Waveform(clean[None])])[0]
    usual, closer = fingerprinter.make_query(Waveform(noisy[None]))
    assert closer.evidence.shape == (N_BINS, usual.n_frames)
    assert closer.evidence.dtype == np.int8
    frames = np.rint(true.frames).astype(int)
    bins = np.rint(np.exp2(true.pitches) * N_FFT / SAMPLE_RATE).astype(int) - LOWEST_BIN
    found = np.abs(usual.frames - true.frames[:, None]) < 1
    found &= np.abs(usual.pitches - true.pitches[:, None]) < 0.02
    hidden = ~found.any(axis=1)
    assert hidden.mean() > 0.3
    here = closer.evidence[bins[hidden], frames[hidden]].mean()
    elsewhere = closer.evidence[bins[hidden], (frames[hidden] + 100) % usual.n_frames].mean()
    assert here > elsewhere + 5


def test_stereo_is_mixed_down(fingerprinter: Fingerprinter) -> None:
    audio = music(5, 6)
    mono = fingerprinter.make_fingerprints([Waveform(audio[None])])[0]
    both = fingerprinter.make_fingerprints([Waveform(np.stack([audio, audio]))])[0]
    np.testing.assert_allclose(mono.frames, both.frames, atol=1e-3)


def test_a_clip_holds_an_excerpt_of_the_loudest_third(fingerprinter: Fingerprinter) -> None:
    audio = music(6, 45)
    audio[: 30 * RATE] *= 0.1
    clip = fingerprinter.make_clip(Waveform(np.stack([audio, audio])))
    assert clip.duration_s == 45
    assert clip.fingerprint.duration_s == pytest.approx(EXCERPT_S, abs=0.2)
    assert clip.chromaprint is None
    with wave.open(io.BytesIO(clip.excerpt_wav)) as wav:
        assert (wav.getnchannels(), wav.getframerate()) == (1, EXCERPT_RATE)
        assert wav.getnframes() == EXCERPT_S * EXCERPT_RATE
        heard = np.frombuffer(wav.readframes(wav.getnframes()), "<i2") / 32767
    assert np.abs(heard).max() > 0.3


def test_loudest_start_keeps_the_excerpt_inside() -> None:
    quiet, loud = np.full(100, 0.1, np.float32), np.ones(100, np.float32)
    assert find_loudest_start(np.concatenate([quiet, loud, quiet]), 50) == 125
    assert find_loudest_start(np.concatenate([quiet, quiet, loud]), 150) == 150
    assert find_loudest_start(np.concatenate([loud, quiet, quiet]), 150) == 0
    assert find_loudest_start(loud, 100) == 0


@pytest.mark.parametrize("seconds", [0.0, 0.01, 2.99])
def test_under_three_seconds_is_an_error(fingerprinter: Fingerprinter, seconds: float) -> None:
    audio = np.zeros((1, int(seconds * RATE)), np.float32)
    with pytest.raises(AudioTooShortError, match="3 s"):
        fingerprinter.make_clip(Waveform(audio))


def test_three_seconds_of_silence_are_a_clip_without_landmarks(
    fingerprinter: Fingerprinter,
) -> None:
    clip = fingerprinter.make_clip(Waveform(np.zeros((2, 3 * RATE), np.float32)))
    assert len(clip.fingerprint) == 0
    assert clip.fingerprint.duration_s == pytest.approx(3, abs=0.2)


def test_wav_clips_what_is_too_loud() -> None:
    with wave.open(io.BytesIO(encode_wav(np.array([2, -2, 0.5], np.float32), 8000))) as wav:
        values = np.frombuffer(wav.readframes(3), "<i2")
    assert values.tolist() == [32767, -32767, 16383]


@pytest.mark.skipif(ctypes.util.find_library("chromaprint") is None, reason="no libchromaprint")
def test_chromaprint_is_made_of_whole_files_only(fingerprinter: Fingerprinter) -> None:
    audio = np.stack([music(7, 61)] * 2)
    made = fingerprinter.make_clip(Waveform(audio)).chromaprint
    assert made is not None
    assert made.startswith("AQ")  # algorithm 1, base64url
    assert made == make_chromaprint(Waveform(audio))
    assert fingerprinter.make_clip(Waveform(audio[:, : 59 * RATE])).chromaprint is None


@pytest.mark.skipif(ctypes.util.find_library("chromaprint") is None, reason="no libchromaprint")
def test_nothing_has_no_chromaprint() -> None:
    assert make_chromaprint(Waveform(np.zeros((1, 100), np.float32))) is None
