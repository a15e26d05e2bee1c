"""Training of the evidence network: tracks, damage, draws, and that it learns what is hidden."""

import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from configs.tables import load_table
from models.fingerprint.constellation import (
    LandmarkModel,
    measure_distance,
    measure_level,
    measure_prominence,
)
from models.fingerprint.evidence import EvidenceNetwork, to_steps
from models.fingerprint.landmarks import (
    HOP_LENGTH,
    LOWEST_BIN,
    N_BINS,
    N_FFT,
    SAMPLE_RATE,
    Fingerprint,
)
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter, encode_wav
from pipelines.training.cycle import CyclePlan, write
from pipelines.training.embedding.alter import at_speed
from pipelines.training.landmarks import damage as damages
from pipelines.training.landmarks.draw import Passage, Passages, draw_batch, places
from pipelines.training.landmarks.fit import (
    LandmarkTrainer,
    measure_loss,
    score_tracks,
    support_of,
)
from pipelines.training.landmarks.plan import parse_landmarks_run
from pipelines.training.landmarks.tracks import (
    LandmarkTrack,
    read_track,
    split_tracks,
)
from pipelines.training.plan import PlanError
from pipelines.training.recordings import keep_recording


def melody(seed: int, duration_s: float = 20.0) -> np.ndarray:
    """Four voices of plucked notes with overtones: float32 ``[T]``."""
    rng = np.random.default_rng(seed)
    samples = np.zeros(round(duration_s * SAMPLE_RATE))
    for _ in range(round(duration_s * 8)):
        start = int(rng.integers(len(samples)))
        t = np.arange(min(SAMPLE_RATE, len(samples) - start)) / SAMPLE_RATE
        hz = 220 * 2 ** (rng.integers(0, 36) / 12)
        tones = sum(np.sin(2 * np.pi * hz * k * t) / k for k in (1, 2, 3) if hz * k < 5000)
        samples[start : start + len(t)] += rng.uniform(0.3, 1) * np.exp(-4 * t) * tones
    return (0.5 * samples / np.abs(samples).max()).astype(np.float32)


def track_of(samples: np.ndarray, fingerprinter: Fingerprinter) -> LandmarkTrack:
    (found,) = fingerprinter.make_fingerprints([Waveform(samples[None], SAMPLE_RATE)])
    return LandmarkTrack(np.rint(samples * 32767).astype(np.int16), found)


@pytest.fixture(scope="module")
def fingerprinter() -> Fingerprinter:
    return Fingerprinter()


@pytest.fixture(scope="module")
def tracks(fingerprinter: Fingerprinter) -> list[LandmarkTrack]:
    return [track_of(melody(seed), fingerprinter) for seed in range(4)]


@pytest.fixture
def plan() -> CyclePlan:
    return parse_landmarks_run(load_table("train_landmarks")).fit


def test_the_shipped_description_is_one_and_others_are_refused() -> None:
    content = load_table("train_landmarks")
    run = parse_landmarks_run(content)
    assert (run.fit.steps, run.fit.segment_frames, run.fit.peak_rate) == (3000, 200, 0.004)
    for wrong in (
        {"fit": content["fit"]},
        content | {"validation_every": 1},
        content | {"validation_every": None},
        content | {"fit": content["fit"] | {"speed": 3}},
        content | {"fit": content["fit"] | {"warm_up_steps": 0}},
        None,
    ):
        with pytest.raises(PlanError):
            parse_landmarks_run(wrong)


def test_what_a_clip_is_weighed_by_is_what_the_network_learns_from() -> None:
    samples = torch.from_numpy(melody(9, 3.0))[None]
    model = LandmarkModel()
    with torch.inference_mode():
        level = measure_level(samples, torch.hann_window(N_FFT))
        log_odds = model.evidence(measure_prominence(level), measure_distance(level))
    assert level.shape == (1, N_BINS, 1 + (samples.shape[1] - N_FFT) // HOP_LENGTH)
    assert torch.equal(model(samples, is_dense=True)["evidence"], to_steps(log_odds))
    assert float(measure_distance(level).max()) == 0


def test_a_track_is_kept_once_and_what_is_no_music_is_left_out(
    tmp_path: Path, fingerprinter: Fingerprinter
) -> None:
    def read(source: Path) -> LandmarkTrack | None:
        return read_track(source, fingerprinter)

    def kept(name: str, content: bytes) -> Path | None:
        (tmp_path / name).write_bytes(content)
        return keep_recording(tmp_path / name, folder, read)

    folder = tmp_path / "kept"
    folder.mkdir()
    music = melody(1, 16.0)
    path = kept("music.wav", encode_wav(music, SAMPLE_RATE))
    assert path is not None
    begun = path.stat().st_mtime_ns
    assert kept("copy.wav", encode_wav(music, SAMPLE_RATE)) == path
    assert path.stat().st_mtime_ns == begun
    assert kept("short.wav", encode_wav(music[: 5 * SAMPLE_RATE], SAMPLE_RATE)) is None
    assert kept("silent.wav", encode_wav(np.zeros_like(music), SAMPLE_RATE)) is None
    assert kept("text.wav", b"no music") is None
    assert list(folder.iterdir()) == [path]

    track = LandmarkTrack.load(path)
    lost = track.stretch(SAMPLE_RATE, SAMPLE_RATE) - music[SAMPLE_RATE : 2 * SAMPLE_RATE]
    assert np.sqrt(np.mean(lost**2)) < 1e-3
    again = track_of(music, fingerprinter).landmarks
    assert len(track.landmarks) == pytest.approx(len(again), rel=0.05)
    assert track.landmarks.n_frames == again.n_frames


def test_only_the_first_two_minutes_are_read_and_their_landmarks_alone(
    tmp_path: Path, fingerprinter: Fingerprinter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Fingerprinter, "_measure_changes")
    source = tmp_path / "long.wav"
    with wave.open(str(source), "wb") as out:
        out.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        out.writeframes((np.tile(melody(2, 5.0), 26) * 32767).astype("<i2").tobytes())
    path = keep_recording(source, tmp_path, lambda file: read_track(file, fingerprinter))
    assert path is not None
    assert len(LandmarkTrack.load(path).samples) == pytest.approx(120 * SAMPLE_RATE, abs=2)


def test_a_stretch_begins_where_a_track_is_loud(tracks: list[LandmarkTrack]) -> None:
    loud = tracks[0].samples
    later = LandmarkTrack(np.concatenate([np.zeros_like(loud), loud]), tracks[0].landmarks)
    length = 2 * SAMPLE_RATE
    starts = later.loud_starts(length)
    assert starts[0] > len(loud) - length
    assert starts[-1] > 2 * len(loud) - length - HOP_LENGTH
    assert len(later.loud_starts(2 * len(loud) + 1)) == 0


def test_every_so_many_th_track_is_kept_back_and_each_is_there_once() -> None:
    paths = [Path(f"{n:02}.npz") for n in (*range(5), 3)]
    training, validation = split_tracks(reversed(paths), 3)
    assert [path.stem for path in validation] == ["00", "03"]
    assert [path.stem for path in training] == ["01", "02", "04"]


@pytest.mark.parametrize("seed", range(12))
def test_damage_keeps_the_length_and_is_sound(seed: int) -> None:
    music, other = melody(1, 2.0), melody(2, 2.0)
    damaged = damages.damage(music, other, np.random.default_rng(seed))
    assert damaged.shape == music.shape
    assert damaged.dtype == np.float32
    assert np.isfinite(damaged).all()
    assert 0.01 < np.abs(damaged).max() <= 1
    silence = np.zeros_like(music)
    still = damages.damage(silence, silence, np.random.default_rng(seed))
    assert not still.any()


def test_each_damage_is_as_large_as_is_said() -> None:
    rng = np.random.default_rng(0)
    music = melody(1, 4.0)
    noise = damages.coloured_noise(len(music), 1.0, rng)
    added = damages.with_sound(music, noise, 6.0) - music
    assert 10 * np.log10(np.mean(music**2) / np.mean(added**2)) == pytest.approx(6, abs=0.1)

    def octave_db(lowest_hz: float) -> float:
        hz = np.fft.rfftfreq(len(noise), 1 / SAMPLE_RATE)
        inside = (hz >= lowest_hz) & (hz < 2 * lowest_hz)
        return float(10 * np.log10((np.abs(np.fft.rfft(noise)[inside]) ** 2).mean()))

    # Pink: each octave has half the density of the one below.
    assert octave_db(500) - octave_db(1000) == pytest.approx(3, abs=1)

    click = np.zeros(4 * SAMPLE_RATE, np.float32)
    click[0] = 1
    room = damages.in_room(click, 1.0, -3.0, rng)
    assert room[0] == pytest.approx(1, abs=1e-4)
    assert 10 * np.log10(np.square(room[1:]).sum()) == pytest.approx(-3, abs=0.1)
    early, late = (np.square(room[i : i + 2000]).sum() for i in (100, 100 + SAMPLE_RATE // 2))
    assert 10 * np.log10(early / late) == pytest.approx(30, abs=2)

    gain = np.abs(np.fft.rfft(damages.in_band(click, 300, 3000)))
    at = np.array([300, 1000, 3000]) * len(click) // SAMPLE_RATE
    assert 20 * np.log10(gain[at]) == pytest.approx([-3, 0, -3], abs=0.1)

    driven = damages.overdriven(music, 4.0)
    peak = np.abs(music).max()
    np.testing.assert_allclose(driven, np.clip(4 * music / peak, -1, 1), atol=1e-6)
    assert (np.abs(driven) == 1).any()


@pytest.mark.parametrize("speed", [-0.04, 0.0, 0.03])
def test_places_follow_the_offset_and_the_speed(
    speed: float, tracks: list[LandmarkTrack], fingerprinter: Fingerprinter
) -> None:
    start, n_frames = 50 * HOP_LENGTH, 300
    samples = tracks[0].stretch(start, N_FFT + HOP_LENGTH * 330)
    clip = at_speed(samples, 1 + speed) if speed else samples
    (found,) = fingerprinter.make_fingerprints([Waveform(clip[None], SAMPLE_RATE)])
    heard_bins = np.exp2(found.pitches) * N_FFT / SAMPLE_RATE - LOWEST_BIN

    def share_heard(offset: float, speed: float) -> float:
        """Return the share of places with a landmark of the clip within one bin and one frame."""
        bins, frames = places(tracks[0].landmarks, offset, speed, n_frames)
        assert len(bins) > 40
        near = (np.abs(heard_bins - bins[:, None]) <= 1) & (
            np.abs(found.frames - frames[:, None]) <= 1
        )
        return float(near.any(axis=1).mean())

    assert share_heard(start / HOP_LENGTH, speed) > 0.85
    assert share_heard(start / HOP_LENGTH + 20, speed) < 0.5
    assert share_heard(start / HOP_LENGTH, speed + 0.04) < 0.5


def test_places_outside_a_clip_are_left_out() -> None:
    hz = np.array([100, 440, 440, 440, 5000])
    frames = np.array([5, 0, 5, 12, 5], np.float32)
    order = np.argsort(frames, kind="stable")
    landmarks = Fingerprint(
        frames[order], np.log2(hz[order]).astype(np.float32), np.ones(5, np.float32), 20
    )
    bins, found = places(landmarks, 3.0, 0.0, 9)
    assert found.tolist() == [2]
    assert bins.tolist() == [round(440 * N_FFT / SAMPLE_RATE) - LOWEST_BIN]


def test_a_draw_depends_on_the_seed_and_the_step_alone(
    tracks: list[LandmarkTrack], plan: CyclePlan
) -> None:
    drawn = draw_batch(Passages(tracks, plan.segment_frames), plan, 7)
    again = draw_batch(Passages(tracks, plan.segment_frames), plan, 7)
    for one, other in zip(drawn, again, strict=True):
        assert torch.equal(one, other)
    for changed in (
        draw_batch(Passages(tracks, plan.segment_frames), plan, 8),
        draw_batch(Passages(tracks, plan.segment_frames), replace(plan, seed=1), 7),
    ):
        assert not torch.equal(drawn.samples, changed.samples)


def test_a_batch_says_true_places_of_each_passage_and_weighs_them_against_others(
    tracks: list[LandmarkTrack], plan: CyclePlan
) -> None:
    batch = draw_batch(Passages(tracks, plan.segment_frames), plan, 0)
    assert batch.samples.shape == (plan.batch, N_FFT + HOP_LENGTH * (plan.segment_frames - 1))
    rows, bins, frames = batch.where
    assert set(rows.tolist()) == set(range(plan.batch))
    assert bins.min() >= 0
    assert bins.max() < N_BINS
    assert frames.min() >= 0
    assert frames.max() < plan.segment_frames
    assert float(batch.weights.sum()) == pytest.approx(1, abs=1e-5)
    assert float(batch.weights[batch.targets == 1].sum()) == pytest.approx(0.5, abs=0.1)


def test_tracks_without_a_loud_passage_are_refused(tracks: list[LandmarkTrack]) -> None:
    with pytest.raises(PlanError, match="loud enough"):
        Passages(tracks, 1000)
    silent = replace(tracks[0], samples=np.zeros_like(tracks[0].samples))
    assert len(Passages([silent, tracks[0]], 200)) == 1


def test_support_is_high_where_the_evidence_is_and_there_is_none_without_places(
    tracks: list[LandmarkTrack],
) -> None:
    landmarks = tracks[0].landmarks
    passage = Passage(np.zeros(0, np.float32), landmarks, 300.0, 0.02, landmarks)
    evidence = np.random.default_rng(0).normal(size=(N_BINS, 200)).astype(np.float32)
    by_chance = support_of(evidence, passage)
    assert by_chance is not None
    assert abs(by_chance) < 4
    evidence[places(landmarks, 300.0, 0.02, 200)] += 3
    hidden = support_of(evidence, passage)
    assert hidden is not None
    assert hidden > by_chance + 5
    assert support_of(5 * evidence, passage) == pytest.approx(hidden, rel=1e-5)
    assert support_of(evidence, passage._replace(offset=5000.0)) is None


def test_a_few_steps_teach_where_landmarks_are_hidden(
    tracks: list[LandmarkTrack],
    fingerprinter: Fingerprinter,
    plan: CyclePlan,
    tmp_path: Path,
) -> None:
    plan = replace(plan, steps=30, batch=2, segment_frames=100, warm_up_steps=5, ema_decay=0.9)
    passages = Passages(tracks, plan.segment_frames)
    never_heard = Passages(
        [track_of(melody(seed), fingerprinter) for seed in (20, 21)], plan.segment_frames
    )
    torch.manual_seed(plan.seed)
    untrained = EvidenceNetwork().eval()
    losses: list[float] = []
    trained = LandmarkTrainer(plan, passages).run(lambda _, loss: losses.append(loss))
    assert len(losses) == plan.steps
    new = draw_batch(never_heard, replace(plan, batch=6), plan.steps)
    with torch.no_grad():
        before, after = (float(measure_loss(network, new)) for network in (untrained, trained))
    assert before == pytest.approx(np.log(2), abs=0.1)
    assert after < before - 0.1
    first, last = (score_tracks(network, never_heard, 0) for network in (untrained, trained))
    assert first.n_passages == last.n_passages == 8
    assert last.median > max(5.0, first.median + 2)
    assert last.known > first.known
    assert score_tracks(trained, never_heard, 0) == last
    write(trained, tmp_path / "landmarks.safetensors")
    read = EvidenceNetwork()
    read.load_state_dict(load_file(tmp_path / "landmarks.safetensors"))
    assert torch.equal(read.out.weight, trained.out.weight)
