"""Segments, sections and mix points of sounds whose structure is known."""

import numpy as np
import pytest
import torch

from models.loudness import STEP_S
from models.segments import FRAME_RATE, SAMPLE_RATE, SoundFrames
from pipelines.analysis.levels import Levels
from pipelines.analysis.rhythm.estimate import CHROMA_RATE, NO_RHYTHM, Rhythm
from pipelines.analysis.structure import (
    MeasuredTrack,
    SoundModel,
    find_mix_points,
    find_sections,
    find_segments,
)
from pipelines.analysis.tonality.key import ChromaModel
from pipelines.batching.steps import forward_windows

CPU = torch.device("cpu")
SOUND, CHROMA = SoundModel(CPU), ChromaModel("hpcp", CPU)
PITCHES = (0, 4, 7, 9)


def notes(seconds: float) -> np.ndarray:
    """A tone every half second: C, E, G, A, alternately loud and soft."""
    t = np.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
    parts = []
    for i in range(round(2 * seconds)):
        f = 261.63 * 2 ** (PITCHES[i % 4] / 12)
        tone = sum(np.sin(2 * np.pi * f * h * t) / h for h in range(1, 5))
        parts.append((0.2, 0.02)[i % 2] * tone * np.exp(-4 * t) * np.minimum(1, t * 200))
    return np.concatenate(parts).astype(np.float32)


def measured(samples: np.ndarray, rhythm: Rhythm = NO_RHYTHM) -> MeasuredTrack:
    n = len(samples)
    sound = forward_windows(SOUND, SOUND.grid.windows(torch.from_numpy(samples)), 2)["sound"]
    chroma = CHROMA.chroma(
        forward_windows(CHROMA, CHROMA.grid.windows(torch.from_numpy(samples)), 2), n, 0.0
    )
    steps = np.full(int(n / SAMPLE_RATE / STEP_S), -20.0)
    return MeasuredTrack(
        duration_s=n / SAMPLE_RATE,
        sound=SOUND.grid.join(sound, n).numpy(),
        chroma=chroma,
        levels=Levels(-20.0, 0.0, -3.0, steps),
        rhythm=rhythm,
    )


def test_window_borders_are_invisible() -> None:
    samples = notes(75.0)
    track = measured(samples)
    with torch.inference_mode():
        whole = SoundFrames()(torch.from_numpy(samples)[None])[0].numpy()
        padded = np.pad(samples, (0, 4096))
        pitches = CHROMA._hpcp(torch.from_numpy(padded)[None])  # in one piece
    np.testing.assert_allclose(track.sound, whole, atol=2e-3)
    n = len(track.chroma)
    expected = CHROMA.chroma({"pitches": pitches[:, :n]}, n * 2048 + 2048, 0.0)
    # Two peaks of equal strength may swap places; no frame may differ much.
    assert np.abs(track.chroma - expected[:n]).mean(axis=1).max() < 0.02


def test_segments_are_the_notes() -> None:
    segments = find_segments(measured(notes(12.0)))
    starts = np.array([segment.start_s for segment in segments])
    for i, onset in enumerate(np.arange(0.5, 12.0, 0.5), start=1):
        nearest = int(np.abs(starts - onset).argmin())
        assert starts[nearest] == pytest.approx(onset, abs=0.03)
        segment = segments[nearest]
        assert int(np.argmax(segment.pitches)) == PITCHES[i % 4]
        assert max(segment.pitches) == 1.0
        assert 0 <= segment.loudness_max_time_s < 0.1
        assert segment.loudness_max_db > segment.loudness_start_db - 0.001
        assert segment.confidence > 0.3
    loud, soft = (
        np.mean([s.loudness_max_db for s in segments if round(2 * s.start_s) % 2 == parity])
        for parity in (0, 1)
    )
    assert loud - soft == pytest.approx(20.0, abs=2.0)  # a frame also contains the tail before it


def test_timbre_rises_with_level_and_tells_sounds_apart() -> None:
    rng = np.random.default_rng(0)
    hiss = (0.05 * rng.standard_normal(3 * SAMPLE_RATE)).astype(np.float32)
    track = np.concatenate([notes(3.0), hiss])
    segments = find_segments(measured(track))
    tonal = np.mean([s.timbre for s in segments if s.start_s < 2.5], axis=0)
    noisy = np.mean([s.timbre for s in segments if s.start_s > 2.9], axis=0)
    assert noisy[0] > tonal[0] + 50
    assert tonal[1] > noisy[1] + 50  # the second value separates dark from bright


def test_sections_are_cut_at_downbeats_and_tell_how_sure_they_are() -> None:
    rng = np.random.default_rng(1)
    quiet, loud = notes(40.0) * 0.2, notes(40.0)
    loud += (0.1 * rng.standard_normal(len(loud))).astype(np.float32)
    beats = np.arange(0.25, 80, 0.5)
    rhythm = Rhythm(120.0, 1.0, beats, beats[::4], 4, 1.0)
    sections = find_sections(measured(np.concatenate([quiet, loud]), rhythm))
    border = min(sections[1:], key=lambda section: abs(section.start_s - 40.0))
    assert abs(border.start_s - 40.0) <= 2.0
    assert min(abs(border.start_s - beats[::4])) < 1e-9
    assert 0.3 < border.confidence < 1
    assert sections[0].confidence == 1
    assert sum(section.duration_s for section in sections) == pytest.approx(80.0)


def verse_and_chorus() -> np.ndarray:
    rng = np.random.default_rng(1)
    quiet, loud = notes(30.0) * 0.2, notes(30.0)
    loud += (0.1 * rng.standard_normal(len(loud))).astype(np.float32)
    return np.concatenate([quiet, loud])


@pytest.mark.parametrize(("before_s", "behind_s"), [(1.0, 0.0), (0.73, 2.3), (3.0, 0.5)])
def test_silence_around_the_music_moves_no_section(before_s: float, behind_s: float) -> None:
    music = verse_and_chorus()
    ends = tuple(round(seconds * SAMPLE_RATE) for seconds in (before_s, behind_s))
    alone, within = find_sections(measured(music)), find_sections(measured(np.pad(music, ends)))
    assert within[0].start_s == 0
    assert [section.start_s for section in within[1:]] == pytest.approx(
        [section.start_s + before_s for section in alone[1:]], abs=0.02
    )
    assert len(alone) > 1


def test_long_silence_around_the_music_is_a_section() -> None:
    track = measured(np.pad(verse_and_chorus(), (12 * SAMPLE_RATE, 9 * SAMPLE_RATE)))
    sections = find_sections(track)
    assert sections[1].start_s == pytest.approx(12.0, abs=0.03)
    assert sections[-1].start_s == pytest.approx(72.0, abs=0.1)
    assert [section.key == -1 for section in (sections[0], sections[1], sections[-1])] == [
        *(True, False, True)
    ]


def test_the_soft_beginning_of_a_soft_track_is_no_silence() -> None:
    music = np.concatenate([0.1 * verse_and_chorus(), notes(30.0)])
    loud, soft = (find_sections(measured(music * np.float32(gain))) for gain in (1, 0.001))
    assert len(loud) == 3
    assert [section.start_s for section in soft] == pytest.approx(
        [section.start_s for section in loud], abs=1.0
    )


def test_a_click_after_silence_is_no_section_of_its_own() -> None:
    samples = np.zeros(30 * SAMPLE_RATE, np.float32)
    samples[-1] = 0.5
    assert [section.duration_s for section in find_sections(measured(samples))] == [22.0, 8.0]


def test_a_constant_tone_is_one_section() -> None:
    t = np.arange(60 * SAMPLE_RATE) / SAMPLE_RATE
    tone = (0.3 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    assert len(find_sections(measured(tone))) == 1


@pytest.mark.parametrize("gain_db", [0, -66])
def test_a_silence_has_neither_tempo_nor_key_whatever_reaches_into_it(gain_db: int) -> None:
    music = notes(20.0) * np.float32(10 ** (gain_db / 20))
    beats = np.arange(0.25, 60, 0.5)  # a beat grid continues through it
    rhythm = Rhythm(120.0, 0.9, beats, beats[::4], 3, 0.8)
    track = measured(np.concatenate([music, np.zeros(20 * SAMPLE_RATE, np.float32), music]), rhythm)
    before, silence, behind = find_sections(track)
    assert silence.start_s == pytest.approx(20.0, abs=1.0)
    assert (silence.tempo, silence.tempo_confidence, silence.time_signature_confidence) == (0, 0, 0)
    assert (silence.key, silence.mode, silence.key_confidence) == (-1, -1, 0)
    for music_again in (before, behind):
        assert music_again.tempo == pytest.approx(120)
        assert music_again.time_signature == 3
        assert (music_again.key, music_again.mode) != (-1, -1)


def mixed(levels_by_bar: list[float], bar_s: float = 2.0, first_s: float = 0.5) -> MeasuredTrack:
    """Return a track without sound whose bars have these levels in LUFS."""
    downbeats = first_s + bar_s * np.arange(len(levels_by_bar) + 1)
    duration = downbeats[-1] + 0.3
    at = (np.arange(int(duration / STEP_S)) * STEP_S - first_s) // bar_s
    steps = np.asarray(levels_by_bar)[np.clip(at, 0, len(levels_by_bar) - 1).astype(int)]
    rhythm = Rhythm(120.0, 1.0, downbeats, downbeats, 4, 1.0)
    empty = np.zeros((int(duration * FRAME_RATE), 14), np.float32)
    chroma = np.zeros((int(duration * CHROMA_RATE), 12), np.float32)
    return MeasuredTrack(duration, empty, chroma, Levels(-10.0, 0.0, -1.0, steps), rhythm)


@pytest.mark.parametrize(("intro", "outro"), [(4, 4), (5, 3), (0, 0), (8, 1)])
def test_mix_points_are_downbeats_whole_phrases_apart(intro: int, outro: int) -> None:
    track = mixed([-30.0] * intro + [-10.0] * 16 + [-30.0] * outro)
    mix_in, mix_out = find_mix_points(track)
    assert mix_in == pytest.approx(0.5 + 2.0 * intro)
    assert mix_out == pytest.approx(mix_in + 16 * 2.0)


def test_a_soft_bridge_does_not_end_the_track() -> None:
    track = mixed([-10.0] * 8 + [-30.0] * 4 + [-10.0] * 8)
    assert find_mix_points(track) == (0.5, pytest.approx(0.5 + 40.0))
