"""The beat decoder compared with a frame-by-frame Viterbi search over every state."""

import numpy as np
import pytest

from models.rhythm.decoder import FRAME_RATE, BeatSpace, decode_beats, upsample

SMALL = BeatSpace(min_bpm=100, max_bpm=215)


def pulses(beats_s: np.ndarray, seconds: float, noise: float = 0.05) -> np.ndarray:
    """Activation ``[N]`` with a peak at every beat, above noise."""
    rng = np.random.default_rng(4)
    activation = rng.random(int(seconds * FRAME_RATE)) * noise
    at = np.round(beats_s * FRAME_RATE).astype(int)
    for offset, height in ((-1, 0.4), (1, 0.4), (0, 0.9)):
        inside = at + offset
        inside = inside[(inside >= 0) & (inside < len(activation))]
        activation[inside] = height
    return activation.astype(np.float32)


def exhaustive(activation: np.ndarray, space: BeatSpace) -> np.ndarray:
    """Viterbi over (period, position) states, frame by frame."""
    periods = space.periods
    first = np.cumsum(periods) - periods
    last = first + periods - 1
    position = np.concatenate([np.arange(p) for p in periods])
    on = position < np.ceil(np.repeat(periods, periods) / space.beat_share)
    p = np.clip(activation.astype(float), 1e-4, 1 - 1e-4)
    off_beat = np.log((1 - p) / (space.beat_share - 1))
    evidence = np.where(on, np.log(p)[:, None], off_beat[:, None])
    ratio = np.abs(np.log(periods[:, None] / periods))
    likely = np.exp(-space.tempo_inertia * ratio)
    dense = np.log(likely / likely.sum(axis=0))
    score, came = evidence[0].copy(), []
    for frame in evidence[1:]:
        source = np.arange(len(position)) - 1
        entering = score[last] + dense
        source[first] = last[entering.argmax(axis=1)]
        moved = score[source]
        moved[first] = entering.max(axis=1)
        came.append(source)
        score = moved + frame
    path = [int(score.argmax())]
    for source in reversed(came):
        path.append(int(source[path[-1]]))
    path.reverse()
    is_beat = position[path] == 0
    is_beat[0] |= on[path[0]]
    return np.flatnonzero(is_beat)


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_exhaustive_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    activation = pulses(np.arange(0.2, 4, 0.41 + 0.02 * seed), 4.0, noise=0.3)
    activation[rng.integers(0, 400, 5)] = 0.7
    np.testing.assert_array_equal(
        decode_beats(activation[None], SMALL)[0], exhaustive(activation, SMALL)
    )


def test_a_beat_that_begins_just_before_the_track_is_its_first() -> None:
    activation = np.full(402, 0.01, np.float32)
    activation[(np.arange(0, 400, 50)[:, None] + np.arange(4)).ravel()] = 0.8
    np.testing.assert_array_equal(
        decode_beats(activation[None, 2:])[0], [0, *np.arange(48, 390, 50)]
    )
    assert decode_beats(activation[None, 6:])[0][0] == 44


def test_finer_frames_hold_a_tempo_between_two_periods() -> None:
    beats = np.arange(0.35, 40, 60 / 171.4)
    activation = upsample(pulses(beats, 40), 4)
    space = BeatSpace(160, 180, tempo_inertia=1600.0, frame_rate=4 * FRAME_RATE)
    found = decode_beats(activation[None], space)[0] / (4 * FRAME_RATE)
    assert np.abs(found[:, None] - beats).min(axis=0).max() < 0.015


@pytest.mark.parametrize("tempo", [60, 90, 128, 174, 210])
def test_finds_a_steady_pulse(tempo: float) -> None:
    beats = np.arange(0.35, 20, 60 / tempo)
    found = decode_beats(pulses(beats, 20)[None])[0] / FRAME_RATE
    # The peak may be anywhere in the first sixteenth of the beat, or one frame before it.
    distances = np.abs(found[:, None] - beats)
    assert distances.min(axis=0).max() < 60 / tempo / 16 + 0.015
    assert len(found) == pytest.approx(len(beats), abs=1)


def test_follows_a_change_of_tempo() -> None:
    beats = np.concatenate([np.arange(0.5, 15, 0.6), np.arange(15.0, 30, 0.43)])
    found = decode_beats(pulses(beats, 30)[None])[0] / FRAME_RATE
    late = found[found > 18]
    assert np.abs(late[:, None] - beats).min(axis=1).max() <= 0.011
    assert np.median(np.diff(late)) == pytest.approx(0.43, abs=0.005)


def test_a_row_equals_itself_alone() -> None:
    rows = np.stack([pulses(np.arange(0.1, 12, p), 12) for p in (0.5, 0.37, 0.8)])
    for row, beats in zip(rows, decode_beats(rows), strict=True):
        np.testing.assert_array_equal(beats, decode_beats(row[None])[0])


def test_a_narrow_space_is_kept_to() -> None:
    activation = pulses(np.arange(0.2, 20, 0.4), 20)
    beats = decode_beats(activation[None], BeatSpace(70, 80))[0] / FRAME_RATE
    assert np.median(np.diff(beats)) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("n", [0, 1, 5, 30])
def test_short_input(n: int) -> None:
    beats = decode_beats(np.full((1, n), 0.3, dtype=np.float32))[0]
    assert ((beats >= 0) & (beats < n)).all()


def test_upsampling_keeps_old_frames_and_interpolates() -> None:
    fine = upsample(np.array([[0.0, 1.0, 0.5]], dtype=np.float32))
    np.testing.assert_allclose(fine, [[0.0, 0.5, 1.0, 0.75, 0.5, 0.5]])
