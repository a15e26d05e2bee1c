"""The spectral step with the real default checkpoints on rendered pieces."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard, choose_cards
from models.loudness import integrated_loudness
from models.rhythm.beatnet import HOP_LENGTH, SAMPLE_RATE
from models.rhythm.tracker import BeatTracker
from pipelines.analysis import spectral
from pipelines.analysis.records import SpectralResult
from pipelines.analysis.rhythm.beats import BeatEvidence
from pipelines.analysis.rhythm.estimate import estimate_rhythm
from pipelines.analysis.spectral import SpectralStep
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.resample import resample
from pipelines.audio.waveform import Waveform
from pipelines.batching.batcher import DeviceFaultError
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import run_local
from tests.data.audio_files import encode, silent_flac
from tests.data.synthetic_music import RATE, band, steady


@pytest.fixture(scope="module")
def step(cards: dict[str, ModelCard], model_dir: Path) -> SpectralStep:
    pull(cards["afa-beats-3"], model_dir)
    return spectral.build(choose_cards(cards), model_dir, torch.device("cpu"))


@pytest.fixture(scope="module")
def piece_result(step: SpectralStep) -> SpectralResult:
    return run_local(step, Waveform(PIECE.samples))


PIECE = steady(112, 36, key=9, mode="minor")


def hits(found: list[float], truth: np.ndarray, tolerance: float) -> float:
    """F-measure of times, without the first five seconds."""
    a, b = np.asarray(found), truth
    a, b = a[a >= 5], b[b >= 5]
    if not len(a):
        return 0.0
    near = np.abs(a[:, None] - b) <= tolerance
    return float((near.any(1).sum() + near.any(0).sum()) / (len(a) + len(b)))


def test_tempo_beats_and_key(piece_result: SpectralResult) -> None:
    assert piece_result.tempo == pytest.approx(112, rel=0.002)
    assert hits(piece_result.beats, PIECE.beats, 0.03) > 0.95
    assert set(piece_result.downbeats) <= set(piece_result.beats)
    assert (piece_result.key, piece_result.mode) == (9, 0)
    assert 0.5 < piece_result.tempo_confidence <= 1
    assert piece_result.models["beats"] == "afa-beats-3"


def test_rhythm_hears_the_chords_and_key_the_networks(
    step: SpectralStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_key = Mock(wraps=spectral.estimate_key)
    of_rhythm = Mock(wraps=spectral.estimate_rhythm)
    monkeypatch.setattr(spectral, "estimate_key", of_key)
    monkeypatch.setattr(spectral, "estimate_rhythm", of_rhythm)
    result = run_local(step, Waveform(PIECE.samples))
    _, networks = of_key.call_args.args
    assert networks.shape[1:] == (2, 24)
    shares = of_rhythm.call_args.args[0].chords.probabilities.mean(axis=0)
    told = sum(chord.duration_s for chord in result.chords if (chord.root, chord.mode) == (9, 0))
    assert shares[12 + 9] == pytest.approx(told / (PIECE.samples.shape[1] / RATE), abs=0.1)


def test_cards_tell_the_windows(step: SpectralStep, cards: dict[str, ModelCard]) -> None:
    described = [model for model in step.models if model.model_id in cards]
    assert {"afa-beats-3", "hpcp", "afa-chords-2"} <= {model.model_id for model in described}
    for model in described:
        card = cards[model.model_id]
        assert model.spec.sample_rate == card.sample_rate
        assert (model.spec.length, model.spec.hop) == (card.window_length, card.window_hop)
        windows = torch.zeros(1, model.spec.length)
        with torch.inference_mode():
            outputs = model.forward(windows)
        assert {name: rows.shape[-1] for name, rows in outputs.items()} == dict(card.outputs)


def test_everything_is_plain_data(piece_result: SpectralResult) -> None:
    assert json.loads(json.dumps(dataclasses.asdict(piece_result)))["tempo"] > 0


def test_structure_tiles_the_track(piece_result: SpectralResult) -> None:
    duration = PIECE.samples.shape[1] / RATE
    for parts in (piece_result.segments, piece_result.sections, piece_result.chords):
        ends = [part.start_s + part.duration_s for part in parts]
        np.testing.assert_allclose([part.start_s for part in parts[1:]], ends[:-1], atol=1e-6)
        assert parts[0].start_s == 0
        assert ends[-1] == pytest.approx(duration)
    for segment in piece_result.segments:
        assert len(segment.pitches) == len(segment.timbre) == 12
        assert 0 <= min(segment.pitches) <= max(segment.pitches) <= 1
    assert 0 <= piece_result.mix_in_s < piece_result.mix_out_s <= duration


def test_mix_points_leave_a_soft_intro_and_outro_out(step: SpectralStep) -> None:
    samples = steady(120, 60).samples.copy()
    # Bars begin at 0.3 s and last 2 s.
    samples[:, : int(12.28 * RATE)] *= 0.05
    samples[:, int(48.28 * RATE) :] *= 0.05
    result = run_local(step, Waveform(samples))
    assert result.mix_in_s == pytest.approx(12.3, abs=0.03)
    assert 36 < result.mix_out_s < 48.4
    assert min(abs(result.mix_out_s - d) for d in result.downbeats) < 1e-6
    assert min(abs(result.mix_in_s - d) for d in result.downbeats) < 1e-6


@pytest.mark.parametrize("gain_db", [-20.0, 5.0])
def test_gain_changes_only_the_level(
    step: SpectralStep, piece_result: SpectralResult, gain_db: float
) -> None:
    samples = PIECE.samples * np.float32(10 ** (gain_db / 20))
    result = run_local(step, Waveform(samples))
    assert result.tempo == pytest.approx(piece_result.tempo, rel=1e-3)
    assert hits(result.beats, np.asarray(piece_result.beats), 0.02) > 0.95
    assert (result.key, result.mode) == (piece_result.key, piece_result.mode)
    assert result.loudness_lufs - piece_result.loudness_lufs == pytest.approx(gain_db, abs=0.01)
    assert result.true_peak_dbtp - piece_result.true_peak_dbtp == pytest.approx(gain_db, abs=0.01)


def test_half_precision_says_the_same(step: SpectralStep, piece_result: SpectralResult) -> None:
    result = run_local(step, Waveform(PIECE.samples.astype(np.float16)))
    assert result.tempo == pytest.approx(piece_result.tempo, rel=1e-4)
    np.testing.assert_allclose(result.beats, piece_result.beats, atol=1e-4)
    assert (result.key, result.mode) == (piece_result.key, piece_result.mode)
    assert result.loudness_lufs == pytest.approx(piece_result.loudness_lufs, abs=0.001)
    assert result.true_peak_dbtp == pytest.approx(piece_result.true_peak_dbtp, abs=0.01)


def test_a_later_start_shifts_the_beats(step: SpectralStep, piece_result: SpectralResult) -> None:
    cut = round(2.013 * RATE)
    result = run_local(step, Waveform(PIECE.samples[:, cut:]))
    assert result.tempo == pytest.approx(piece_result.tempo, rel=1e-3)
    assert (result.key, result.mode) == (piece_result.key, piece_result.mode)
    shifted = np.asarray(piece_result.beats) - cut / RATE
    assert hits(result.beats, shifted, 0.02) > 0.95


@pytest.mark.parametrize("n_samples", [578_922, 1_334_796])
def test_no_beat_lies_beyond_the_end(step: SpectralStep, n_samples: int) -> None:
    """The last frame reaches beyond the end, where the decoder puts a first beat of a bar."""
    result = run_local(step, Waveform(np.ascontiguousarray(PIECE.samples[:, :n_samples])))
    assert max(result.beats) < n_samples / RATE
    assert set(result.downbeats) <= set(result.beats)


@pytest.mark.parametrize("rate", [22_050, 32_000, 48_000])
def test_resampled_audio(step: SpectralStep, piece_result: SpectralResult, rate: int) -> None:
    there_and_back = resample(resample(PIECE.samples, RATE, rate), rate, RATE)
    result = run_local(step, Waveform(there_and_back))
    assert hits(result.beats, np.asarray(piece_result.beats), 0.02) > 0.95
    assert (result.key, result.mode) == (piece_result.key, piece_result.mode)
    assert result.loudness_lufs == pytest.approx(piece_result.loudness_lufs, abs=2.0)


def test_mp3_at_96_kbit(step: SpectralStep, piece_result: SpectralResult, tmp_path: Path) -> None:
    path = encode(tmp_path / "piece.mp3", PIECE.samples, "mp3", "libmp3lame")
    waveform = decode(path, DecodeLimits(max_seconds=100))
    result = run_local(step, waveform)
    assert result.tempo == pytest.approx(piece_result.tempo, rel=1e-3)
    assert hits(result.beats, np.asarray(piece_result.beats), 0.03) > 0.95
    assert (result.key, result.mode) == (piece_result.key, piece_result.mode)


@pytest.mark.parametrize("cents", [-40, 40])
def test_key_of_a_recording_out_of_tune(step: SpectralStep, cents: int) -> None:
    piece = steady(112, 36, key=9, mode="minor", cents=cents)
    result = run_local(step, Waveform(piece.samples))
    assert (result.key, result.mode) == (9, 0)
    assert result.key_confidence > 0.5


def test_the_grid_follows_a_change_of_tempo(step: SpectralStep) -> None:
    beats = np.concatenate([np.arange(0.3, 30, 60 / 100), np.arange(30.0, 50, 60 / 132)])
    result = run_local(step, Waveform(band(beats).samples))
    assert result.tempo == pytest.approx(100, rel=0.01)
    late = np.asarray(result.beats)
    late = late[(late > 38) & (late < 48)]
    assert 60 / np.median(np.diff(late)) == pytest.approx(132, rel=0.03)


def test_batches_do_not_change_the_result(step: SpectralStep, piece_result: SpectralResult) -> None:
    result = run_local(step, Waveform(PIECE.samples), batch_windows=1)
    np.testing.assert_allclose(result.beats, piece_result.beats, atol=1e-3)
    assert result.tempo == pytest.approx(piece_result.tempo, rel=1e-5)
    assert result.loudness_lufs == pytest.approx(piece_result.loudness_lufs, abs=1e-4)


def test_window_borders_are_not_heard(
    step: SpectralStep, checkpoint: Callable[[str], dict[str, Tensor]]
) -> None:
    piece = steady(97, 80)
    result = run_local(step, Waveform(piece.samples))
    mono = torch.from_numpy(resample(piece.samples.mean(axis=0), RATE, SAMPLE_RATE))
    tracker = BeatTracker.from_tensors(checkpoint("afa-beats-3"))
    with torch.inference_mode():
        padded = torch.nn.functional.pad(mono, (0, -len(mono) % SAMPLE_RATE))
        whole = tracker(padded[None] / tracker.level(mono))
    activations = whole["activations"][0, : -(-len(mono) // HOP_LENGTH)]
    expected = estimate_rhythm(BeatEvidence(activations.numpy(), whole["tempo"][0].numpy()))
    assert hits(result.beats, expected.beats, 0.015) > 0.98
    assert result.tempo == pytest.approx(expected.tempo, rel=1e-3)
    loudness = integrated_loudness(torch.from_numpy(piece.samples)[None], RATE)
    assert result.loudness_lufs == pytest.approx(float(loudness), abs=1e-3)


@pytest.mark.parametrize("channels", [1, 2])
def test_silence(step: SpectralStep, channels: int) -> None:
    result = run_local(step, Waveform(np.zeros((channels, 3 * RATE), dtype=np.float32)))
    assert (result.tempo, result.key, result.mode, result.loudness_lufs) == (0.0, -1, -1, -70.0)
    assert result.beats == result.segments == result.chords == []
    assert result.mix_out_s == 3.0


def test_a_track_over_thirteen_minutes(step: SpectralStep, tmp_path: Path) -> None:
    """The number of samples is odd and above 2^24, which float32 cannot count."""
    path = silent_flac(tmp_path / "long.flac", 265 * 65_535 / SAMPLE_RATE - 0.1, SAMPLE_RATE)
    result = run_local(step, decode(path, DecodeLimits()))
    assert result.mix_out_s == pytest.approx(787.6, abs=0.1)


PREPARE_LONG = """
import sys
import numpy as np, torch
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis import spectral
from pipelines.audio.track import Track
from pipelines.audio.waveform import SAMPLE_RATE, Waveform

cards = choose_cards(parse_cards(load_table("models")))
step = spectral.build(cards, Settings().resolved_model_dir(), torch.device("cpu"))
phase = 2 * np.pi * 440 * 2 ** (40 / 1200) * np.arange(SAMPLE_RATE) / SAMPLE_RATE
second = (0.1 * np.sin(phase)).astype(np.float16)[None].repeat(int(sys.argv[1]), 0)
track = Track.of(Waveform(np.tile(second, 20 * 60)))

def memory(field):
    lines = open("/proc/self/status").readlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))

before = memory("VmRSS")
with torch.inference_mode():
    prepared = step.prepare(track)
    for windows in prepared.windows.values():
        windows[:1]
assert 35 < prepared.context.tuning_cents < 45
print((memory("VmHWM") - before) / (track.samples.nbytes / len(track.samples) / 2))
"""
"""Prints the memory that a long track out of tune takes, in copies of the mono track."""


@pytest.mark.parametrize("channels", [1, 2])
def test_a_long_track_is_copied_once(channels: int, model_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARE_LONG, str(channels)],
        env={**os.environ, "AFA_MODEL_DIR": str(model_dir), "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 2.5


def test_noise_is_not_music(step: SpectralStep) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (2, 20 * RATE)).astype(np.float32)
    result = run_local(step, Waveform(noise))
    assert (result.key, result.mode) == (-1, -1)
    assert result.tempo_confidence < 0.4


@pytest.mark.parametrize("seconds", [1.0, 2.5, 8.0])
def test_short_clips(step: SpectralStep, seconds: float) -> None:
    samples = steady(120, 12).samples[:, : int(seconds * RATE)]
    result = run_local(step, Waveform(samples))
    if seconds > 5:
        assert result.tempo == pytest.approx(120, rel=0.02)
    assert result.loudness_lufs > -40
    assert result.mix_out_s <= seconds


def test_beatnet_can_be_chosen(
    cards: dict[str, ModelCard], model_dir: Path, piece_result: SpectralResult
) -> None:
    pull(cards["beatnet"], model_dir)
    chosen = choose_cards(cards, "any", {"beats": "beatnet"})
    step = spectral.build(chosen, model_dir, torch.device("cpu"))
    result = run_local(step, Waveform(PIECE.samples))
    assert result.models["beats"] == "beatnet"
    assert result.tempo == pytest.approx(112, rel=0.002)
    assert hits(result.beats, np.asarray(piece_result.beats), 0.04) > 0.9
    beatnet = next(model for model in step.models if model.model_id == "beatnet")
    spec = cards["beatnet"]
    assert (beatnet.spec.length, beatnet.spec.hop) == (spec.window_length, spec.window_hop)


@pytest.mark.parametrize("is_heard", [True, False])
async def test_another_process_finishes_a_track_alike(step: SpectralStep, is_heard: bool) -> None:
    waveform = Waveform(PIECE.samples[:, : 8 * 44_100] * np.float32(is_heard))
    apart = BatchedStep(step, torch.device("cpu"), 8, finishers=1)
    try:
        assert await apart.run(waveform) == run_local(step, waveform)
    finally:
        apart.close()


async def test_a_replica_whose_finisher_has_died_is_ill(step: SpectralStep) -> None:
    apart = BatchedStep(step.within(None), torch.device("cpu"), 8, finishers=1)
    try:
        assert apart._finishers is not None
        with pytest.raises(BrokenProcessPool):
            apart._finishers.submit(os._exit, 1).result()
        with pytest.raises(DeviceFaultError, match="has ended"):
            await apart.run(Waveform(PIECE.samples[:, :44_100]))
        with pytest.raises(DeviceFaultError):
            apart.check_health()
    finally:
        apart.close()
