"""Rhythm from activations: tempo, bars, refinement, weak evidence."""

from dataclasses import replace

import numpy as np
import pytest

from models.rhythm.decoder import BeatSpace, grid_likelihood
from models.rhythm.network import FRAME_RATE, TEMPI
from models.rhythm.tempo import TempoRange
from models.tonality.chordnet import NO_CHORD
from pipelines.analysis.rhythm.beats import BeatEvidence
from pipelines.analysis.rhythm.estimate import (
    CHROMA_RATE,
    NO_RHYTHM,
    estimate_rhythm,
    refine,
    weigh_alternatives,
)
from pipelines.analysis.tonality.chords import ChordEvidence


def activations(
    beats: np.ndarray, seconds: float, metre: int = 4, height: float = 0.9
) -> BeatEvidence:
    """Beat and downbeat probabilities: raised-cosine peaks at fractional frames."""
    frames = np.arange(int(seconds * FRAME_RATE)) / FRAME_RATE
    found = np.full((len(frames), 2), 0.01)
    for i, beat in enumerate(beats):
        near = np.clip(1 - np.abs(frames - beat) / 0.05, 0, 1)
        found[:, int(i % metre == 0)] += height * near
    return BeatEvidence(np.clip(found, 0, 0.95).astype(np.float32))


@pytest.mark.parametrize("tempo", [63.0, 97.5, 126.3, 172.0])
def test_tempo_beats_and_bars(tempo: float) -> None:
    beats = np.arange(0.41, 40, 60 / tempo)
    rhythm = estimate_rhythm(activations(beats, 40))
    assert rhythm.tempo == pytest.approx(tempo, rel=1e-3)
    assert np.abs(rhythm.beats[:, None] - beats).min(axis=0).max() < 0.01
    np.testing.assert_allclose(rhythm.downbeats, beats[::4], atol=0.01)
    assert rhythm.time_signature == 4
    assert rhythm.tempo_confidence > 0.7


def test_waltz() -> None:
    rhythm = estimate_rhythm(activations(np.arange(0.3, 40, 0.45), 40, metre=3))
    assert rhythm.time_signature == 3
    np.testing.assert_allclose(np.diff(rhythm.downbeats), 1.35, atol=0.02)


@pytest.mark.parametrize(("tempo", "fill_s", "height"), [(120.0, 3.0, 0.9), (170.0, 2.0, 0.3)])
def test_a_fill_between_the_beats_does_not_move_a_steady_track(
    tempo: float, fill_s: float, height: float
) -> None:
    beats = np.arange(0.4, 60, 60 / tempo)
    in_fill = (beats > 20) & (beats < 20 + fill_s)
    plain = activations(beats[~in_fill], 60, metre=1000)
    fill = activations(beats[in_fill] + 15 / tempo, 60, metre=1000, height=height)
    rhythm = estimate_rhythm(BeatEvidence(np.maximum(plain.activations, fill.activations)))
    assert len(rhythm.beats) == len(beats)
    assert np.abs(rhythm.beats - beats).max() < 0.06


@pytest.mark.parametrize("tempo", [101.7, 126.3, 140.0])
def test_a_beat_on_the_very_first_frame_stays(tempo: float) -> None:
    beats = np.arange(-0.004, 40, 60 / tempo)
    rhythm = estimate_rhythm(activations(beats, 40))
    assert rhythm.beats[0] == pytest.approx(0.0, abs=0.02)
    assert len(rhythm.beats) == len(beats)


def test_a_tempo_that_moves_is_followed() -> None:
    beats = [0.4]
    while beats[-1] < 59:
        beats.append(beats[-1] + 60 / (90 + 40 * beats[-1] / 60))
    rhythm = estimate_rhythm(activations(np.array(beats), 60))
    assert np.abs(rhythm.beats[:, None] - beats).min(axis=0).max() < 0.04


def test_beats_end_where_the_music_does() -> None:
    rhythm = estimate_rhythm(activations(np.arange(5.0, 25, 0.5), 40))
    assert rhythm.beats[0] == pytest.approx(5.0, abs=0.02)
    assert rhythm.beats[-1] == pytest.approx(24.5, abs=0.02)


@pytest.mark.parametrize(("n_sounds", "tempo"), [(1, 0), (4, 120)])
def test_silence_alone_carries_no_beat_on(n_sounds: int, tempo: float) -> None:
    evidence = activations(10.0 + np.arange(n_sounds) / 2, 30)
    times = np.arange(len(evidence.activations)) / FRAME_RATE
    evidence.activations[(times < 9) | (times > 16)] = 0.0
    evidence.activations[(times > 12) & (times < 16), 0] = 0.2
    assert estimate_rhythm(evidence).tempo == pytest.approx(tempo, rel=0.02)


def test_a_long_pause_has_no_beats_and_changes_no_tempo() -> None:
    beats = np.concatenate([np.arange(0.5, 20, 0.5), np.arange(80.3, 110, 0.5)])
    found = activations(beats, 110).activations
    found[round(20 * FRAME_RATE) : round(80 * FRAME_RATE)] = 0.0
    rhythm = estimate_rhythm(BeatEvidence(found))
    assert rhythm.tempo == pytest.approx(120, rel=0.002)
    assert not ((rhythm.beats > 22.5) & (rhythm.beats < 77.5)).any()
    assert np.abs(rhythm.beats[:, None] - beats).min(axis=0).max() < 0.04


@pytest.mark.parametrize("n", [1, 20, 2000])
def test_no_evidence_is_no_rhythm(n: int) -> None:
    assert estimate_rhythm(BeatEvidence(np.zeros((n, 2), dtype=np.float32))) == NO_RHYTHM


def test_weak_evidence_gives_little_confidence() -> None:
    rng = np.random.default_rng(0)
    noise = BeatEvidence((rng.random((2000, 2)) * 0.1).astype(np.float32))
    strong = estimate_rhythm(activations(np.arange(0.4, 40, 0.5), 40))
    assert estimate_rhythm(noise).tempo_confidence < 0.3 * strong.tempo_confidence


@pytest.mark.parametrize(
    ("interval", "weak", "expected"),
    [(0.36, 0.5, 60 / 0.72), (0.36, 0.85, 60 / 0.36), (0.6, 0.5, 100.0), (0.46, 0.75, 60 / 0.46)],
)
def test_weak_beats_between_strong_ones_are_subdivisions(
    interval: float, weak: float, expected: float
) -> None:
    beats = np.arange(0.4, 40, interval)
    strong = activations(beats[::2], 40, metre=1000).activations
    softer = activations(beats, 40, 1000, 0.9 * weak).activations
    rhythm = estimate_rhythm(BeatEvidence(np.maximum(strong, softer)))
    assert rhythm.tempo == pytest.approx(expected, rel=0.01)


def test_refinement_goes_to_the_top() -> None:
    frames = np.arange(200)
    pulse = np.zeros(200)
    for top in (50.6, 101.2, 150.0):
        pulse = np.maximum(pulse, 1 - ((frames - top) / 8) ** 2)
    refined = refine(np.array([49, 103, 150]), np.clip(pulse, 0, 1).astype(np.float32))
    np.testing.assert_allclose(refined, [50.6, 101.2, 150.0], atol=0.05)


def believing(evidence: BeatEvidence, tempo: float, strength: float = 8.0) -> BeatEvidence:
    """Add a network's estimate of the tempo."""
    distance = np.abs(np.log(TEMPI / tempo)) / np.log(TEMPI[1] / TEMPI[0])
    row = strength * np.clip(1.5 - distance, 0, 1)
    seconds = -(-len(evidence.activations) // 50)
    return BeatEvidence(evidence.activations, np.tile(row, (seconds, 1)).astype(np.float32))


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_networks_belief_decides_between_levels(factor: float) -> None:
    beats = np.arange(0.4, 40, 0.5)
    half = np.arange(0.65, 40, 0.5)
    both = np.maximum(
        activations(beats, 40, 1000, 0.8).activations,
        activations(half, 40, 1000, 0.8 * (0.4 if factor == 2.0 else 0.05)).activations,
    )
    if factor == 0.5:
        both = np.maximum(0.8 * both, activations(beats[::2], 40, 1000, 0.8).activations)
    plain = estimate_rhythm(BeatEvidence(both))
    assert plain.tempo == pytest.approx(120, rel=0.01)
    rhythm = estimate_rhythm(believing(BeatEvidence(both), 120 * factor, 14.0))
    assert rhythm.tempo == pytest.approx(120 * factor, rel=0.01)


def test_where_the_network_is_torn_the_usual_tempo_wins() -> None:
    quick = np.arange(0.3, 40, 0.25)
    strong = activations(quick[::2], 40).activations
    hats = activations(quick, 40, 1000, 0.9).activations
    evidence = BeatEvidence(np.maximum(strong, hats))
    sure, half_sure = believing(evidence, 240.0, 8.0), believing(evidence, 120.0, 5.0)
    assert sure.tempo is not None
    assert half_sure.tempo is not None
    torn = BeatEvidence(evidence.activations, np.maximum(sure.tempo, half_sure.tempo))
    assert estimate_rhythm(torn).tempo == pytest.approx(120, rel=0.01)


def test_belief_alone_moves_no_clear_grid() -> None:
    evidence = activations(np.arange(0.4, 40, 0.5), 40)
    rhythm = estimate_rhythm(believing(evidence, 97.0))
    assert rhythm.tempo == pytest.approx(120, rel=0.01)


def test_belief_in_the_grids_tempo_changes_nothing() -> None:
    evidence = activations(np.arange(0.4, 40, 0.5), 40)
    np.testing.assert_array_equal(
        estimate_rhythm(believing(evidence, 120.0)).beats, estimate_rhythm(evidence).beats
    )


@pytest.mark.parametrize(
    ("within", "expected"), [("40-80", 60.0), ("80-160", 120.0), ("170-250", 240.0)]
)
@pytest.mark.parametrize("has_belief", [True, False])
def test_the_tempo_lies_in_the_range_that_is_asked_for(
    within: str, expected: float, has_belief: bool
) -> None:
    evidence = activations(np.arange(0.4, 40, 0.5), 40)
    if has_belief:
        evidence = believing(evidence, 120.0)
    rhythm = estimate_rhythm(evidence, tempo_range=TempoRange.parse(within))
    assert rhythm.tempo == pytest.approx(expected, rel=0.005)
    assert np.median(np.diff(rhythm.beats)) == pytest.approx(60 / expected, abs=0.01)


def test_a_range_with_no_level_of_the_music_is_obeyed_all_the_same() -> None:
    evidence = believing(activations(np.arange(0.4, 40, 0.5), 40), 120.0)
    rhythm = estimate_rhythm(evidence, tempo_range=TempoRange(97.0, 110.0))
    assert 97.0 <= rhythm.tempo <= 110.0


@pytest.mark.parametrize("within", ["97-97", "199-200", "201-215", "61-61", "200-210"])
@pytest.mark.parametrize("period_s", [0.5, 0.55])
def test_the_tempo_is_never_outside_the_range(within: str, period_s: float) -> None:
    asked = TempoRange.parse(within)
    evidence = activations(np.arange(0.4, 40, period_s), 40)
    assert estimate_rhythm(evidence, tempo_range=asked).tempo in asked


def with_chords(evidence: BeatEvidence, starts: np.ndarray, seconds: float) -> BeatEvidence:
    """Add chords: one of two, alternately, begins at each time; the other evidence is unchanged."""
    times = (np.arange(int(seconds / 0.186)) + 0.5) * 0.186
    chords = np.full((len(times), 25), 1e-4)
    chords[np.arange(len(times)), np.searchsorted(starts, times) % 2 * 7] = 1.0
    heard = ChordEvidence(np.log(chords).astype(np.float32), np.zeros((len(times), 13)), times)
    return replace(evidence, chords=heard)


def test_chords_decide_between_levels() -> None:
    quick = np.arange(0.3, 60, 0.3)
    strong = activations(quick[::2], 60, 1000).activations
    hats = activations(quick, 60, 1000, 0.8).activations
    evidence = BeatEvidence(np.maximum(strong, hats))
    slow, fast = (believing(evidence, tempo, 4.0).tempo for tempo in (100.0, 200.0))
    assert slow is not None
    assert fast is not None
    torn = replace(evidence, tempo=np.maximum(slow, fast))
    by_slow_bars, by_fast_bars = (
        with_chords(torn, np.arange(0.33, 60, bar_s), 60) for bar_s in (2.4, 1.2)
    )
    assert estimate_rhythm(by_slow_bars).tempo == pytest.approx(100, rel=0.01)
    assert estimate_rhythm(by_fast_bars).tempo == pytest.approx(200, rel=0.01)
    told = [dict(weigh_alternatives(heard, 200.0))[100.0] for heard in (by_slow_bars, by_fast_bars)]
    assert told[0] > 0.5 > told[1]


@pytest.mark.parametrize("offset", [0, 1])
def test_where_a_grid_is_halved_chords_begin_on_its_beats(offset: int) -> None:
    quick = np.arange(0.3, 60, 0.3)
    evidence = believing(activations(quick, 60, 1000), 100.0, 12.0)
    rhythm = estimate_rhythm(with_chords(evidence, quick[offset::8] + 0.03, 60))
    assert rhythm.tempo == pytest.approx(100, rel=0.01)
    distance = np.abs(rhythm.beats[:, None] - quick[offset::2]).min(axis=1)
    assert np.mean(distance < 0.07) > 0.9


@pytest.mark.parametrize(("before_s", "behind_s"), [(60, 0), (0, 60), (35, 25)])
def test_silence_around_music_moves_no_tempo(before_s: int, behind_s: int) -> None:
    quick = np.arange(0.3, 40, 0.3)
    strong, hats = (activations(beats, 40, 1000) for beats in (quick[::2], quick))
    found = np.maximum(strong.activations, 0.9 * hats.activations)
    music = with_chords(believing(BeatEvidence(found), 200.0, 4.0), quick[::8] + 0.03, 40)
    assert music.tempo is not None
    seconds = before_s + 40 + behind_s
    silent = np.zeros((seconds * round(FRAME_RATE), 2), dtype=np.float32)
    silent[before_s * round(FRAME_RATE) :][: len(found)] = found
    usual = believing(BeatEvidence(silent), 75.0, 4.0)
    assert usual.tempo is not None
    usual.tempo[before_s : before_s + 40] = music.tempo
    silent_music = with_chords(usual, before_s + quick[::8] + 0.03, seconds)
    plain, padded = (dict(weigh_alternatives(heard, 100.0)) for heard in (music, silent_music))
    assert padded == pytest.approx(plain, abs=0.05)
    assert estimate_rhythm(silent_music).tempo == pytest.approx(
        estimate_rhythm(music).tempo, rel=1e-3
    )


@pytest.mark.parametrize("tempo_range", [None, TempoRange(60, 220)])
@pytest.mark.parametrize(("before_s", "behind_s"), [(600, 0), (0, 600)])
def test_ten_minutes_of_silence_around_a_metronome_move_no_tempo(
    before_s: int, behind_s: int, tempo_range: TempoRange | None
) -> None:
    clicks = activations(np.arange(0.25, 30, 0.5), 30, metre=4).activations
    clicks[clicks < 0.02] = 0.0
    around = round(before_s * FRAME_RATE), round(behind_s * FRAME_RATE)
    found = np.pad(clicks, (around, (0, 0)))
    evidence = believing(BeatEvidence(found), 120.0, 2.0)
    rhythm = estimate_rhythm(evidence, tempo_range=tempo_range)
    assert rhythm.tempo == pytest.approx(120.0, rel=1e-3)
    assert len(rhythm.beats) == pytest.approx(60, abs=8)


def test_a_hidden_track_has_less_say_than_what_comes_before_the_pause() -> None:
    song, hidden = np.arange(0.3, 40, 60 / 90), np.arange(160.2, 195, 60 / 140)
    found = activations(np.concatenate([song, hidden]), 196).activations
    found[round(41 * FRAME_RATE) : round(160 * FRAME_RATE)] = 0.0
    rhythm = estimate_rhythm(believing(BeatEvidence(found), 90.0, 1.0))
    assert rhythm.tempo == pytest.approx(90.0, rel=2e-3)


def test_silence_around_music_is_not_taken_for_drums() -> None:
    beats = np.arange(40.4, 60, 0.5)
    evidence = with_chords(activations(beats, 60, 2), beats[::2] + 0.03, 60)
    assert evidence.chords is not None
    of_music = evidence.chords.chords
    no_chord = np.log(np.eye(25)[NO_CHORD] + 1e-4).astype(np.float32)
    is_silent = evidence.chords.times_s[:, None] < 40
    silent = replace(evidence.chords, chords=np.where(is_silent, no_chord, of_music))
    assert estimate_rhythm(replace(evidence, chords=silent)).time_signature == 2
    drums = replace(evidence.chords, chords=np.broadcast_to(no_chord, of_music.shape))
    assert estimate_rhythm(replace(evidence, chords=drums)).time_signature == 4


@pytest.mark.parametrize("phase", range(4))
def test_bars_begin_with_chords(phase: int) -> None:
    beats = np.arange(0.4, 60, 0.5)
    evidence = with_chords(activations(beats, 60, 1000), beats[phase::4] + 0.03, 60)
    rhythm = estimate_rhythm(evidence)
    np.testing.assert_allclose(np.diff(rhythm.downbeats), 2.0, atol=0.02)
    assert (rhythm.downbeats[0] - beats[phase]) % 2.0 == pytest.approx(0, abs=0.03)


def test_where_notes_and_chords_disagree_the_chords_tell_the_bars() -> None:
    beats = np.arange(0.4, 60, 0.5)
    evidence = with_chords(activations(beats, 60, 1000), beats[3::4] + 0.03, 60)
    times = np.arange(int(60 * CHROMA_RATE)) / CHROMA_RATE
    chroma = np.zeros((len(times), 12), np.float32)
    chroma[np.arange(len(times)), np.searchsorted(beats[1::4] + 0.03, times) % 2 * 7] = 1.0
    rhythm = estimate_rhythm(evidence, chroma)
    assert (rhythm.downbeats[0] - beats[3]) % 2.0 == pytest.approx(0, abs=0.03)


def test_half_and_double_are_always_told_and_weighed() -> None:
    beats = activations(np.arange(0.4, 40, 0.5), 40)
    told = dict(weigh_alternatives(believing(beats, 120.0), 120.0))
    assert set(told) == {60.0, 240.0}
    assert sum(told.values()) < 0.5
    believed = weigh_alternatives(believing(beats, 60.0), 120.0)
    assert believed[0][0] == 60.0
    assert believed[0][1] > told[60.0]
    assert set(dict(weigh_alternatives(beats, 120.0))) == {60.0, 240.0}
    assert weigh_alternatives(beats, 0.0) == []


@pytest.mark.parametrize("text", ["", "80", "80-", "39-80", "80-251", "80-160 ", "\uff180-160"])
def test_a_range_of_another_form_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="written as 80-160"):
        TempoRange.parse(text)


def test_a_range_that_begins_with_the_greater_bpm_is_refused() -> None:
    assert TempoRange.parse("80-160") == TempoRange(80.0, 160.0)
    assert TempoRange.parse("90-90") == TempoRange(90.0, 90.0)
    with pytest.raises(ValueError, match="50-90, not 90-50"):
        TempoRange.parse("90-50")  # perhaps meant as 90-150


def test_a_tempo_is_tried_once_for_a_track(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[int, ...]] = []

    def counted(pulse: np.ndarray, space: BeatSpace) -> float:
        tried.append(tuple(space.periods))
        return grid_likelihood(pulse, space)

    monkeypatch.setattr("pipelines.analysis.rhythm.beats.grid_likelihood", counted)
    beats = believing(activations(np.arange(0.3, 40, 0.5), 40), 60.0, 3.0)
    assert weigh_alternatives(beats, estimate_rhythm(beats).tempo)
    assert len(tried) >= 2
    assert len(set(tried)) == len(tried)


def tempo_of(beats: np.ndarray, start: float, stop: float) -> float:
    inside = beats[(beats >= start) & (beats < stop)]
    return float(60 / np.median(np.diff(inside)))


@pytest.mark.parametrize("within", [None, TempoRange(40, 250)])
@pytest.mark.parametrize("believes", [True, False])
def test_busy_first_minute_is_counted_like_the_rest(
    believes: bool, within: TempoRange | None
) -> None:
    beats = np.concatenate([np.arange(0.4, 40, 0.3), np.arange(40.3, 100, 0.6)])
    evidence = activations(beats, 100, metre=1000)
    if believes:
        evidence = believing(evidence, 100, 12.0)
    rhythm = estimate_rhythm(evidence, tempo_range=within)
    assert tempo_of(rhythm.beats, 2, 36) == pytest.approx(100, rel=0.02)
    assert tempo_of(rhythm.beats, 44, 98) == pytest.approx(100, rel=0.02)


def test_a_change_of_tempo_that_is_no_octave_stays() -> None:
    beats = np.concatenate([np.arange(0.4, 40, 0.375), np.arange(40.3, 100, 0.6)])
    rhythm = estimate_rhythm(believing(activations(beats, 100, metre=1000), 100, 12.0))
    assert tempo_of(rhythm.beats, 2, 36) == pytest.approx(160, rel=0.02)
    assert tempo_of(rhythm.beats, 44, 98) == pytest.approx(100, rel=0.02)
