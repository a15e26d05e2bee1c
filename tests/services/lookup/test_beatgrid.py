"""Beat grids: verified ones, computed ones, and computed beats moved onto a verified tempo."""

from dataclasses import replace

import pytest

from serve_app.domain.identity import TrackIdentity
from serve_app.services.lookup.beatgrid import (
    circular_mean,
    fitted_grid,
    steady_grid,
    verified_grid,
)
from serve_app.services.simulation.features import simulated_features

FEATURES = replace(
    simulated_features("x"),
    duration_s=10.0,
    tempo=119.0,
    time_signature=4,
    beats=[0.21, 0.69, 1.2, 1.71, 2.19, 2.7, 3.21, 3.69],
    downbeats=[0.69, 2.7],
)


def test_a_whole_verified_grid_is_taken_as_it_is() -> None:
    identity = TrackIdentity(tempo=100.0, beats=(0.1, 0.7), downbeats=(0.7,), is_verified=True)
    grid = verified_grid(identity)
    assert grid is not None
    assert (grid.tempo, grid.downbeat, grid.tempo_source) == (100.0, 0.7, "verified")
    assert (grid.beats, grid.downbeats) == ([0.1, 0.7], [0.7])
    assert verified_grid(replace(identity, is_verified=False)) is None
    assert verified_grid(replace(identity, beats=())) is None


def test_computed_beats_are_kept_without_a_verified_tempo() -> None:
    grid = fitted_grid(TrackIdentity(tempo=120.0), FEATURES)
    assert (grid.tempo, grid.tempo_source, grid.downbeat) == (119.0, "computed", 0.69)
    assert grid.beats == FEATURES.beats


def test_a_verified_tempo_moves_the_beats_onto_a_steady_grid() -> None:
    grid = fitted_grid(TrackIdentity(tempo=120.0, is_verified=True), FEATURES)
    assert (grid.tempo, grid.tempo_source) == (120.0, "verified")
    steps = {
        round(after - before, 3) for before, after in zip(grid.beats, grid.beats[1:], strict=False)
    }
    assert steps == {0.5}
    assert grid.beats[0] == pytest.approx(0.2, abs=0.01)
    assert grid.beats[-1] < 10.0 <= grid.beats[-1] + 0.5
    assert grid.downbeat == grid.downbeats[0] == pytest.approx(0.7, abs=0.01)
    assert set(grid.downbeats) <= set(grid.beats)
    assert grid.downbeats[1] - grid.downbeats[0] == pytest.approx(2.0, abs=0.001)


def test_without_a_downbeat_to_go_by_the_first_beat_is_one() -> None:
    identity = TrackIdentity(tempo=120.0, is_verified=True)
    grid = fitted_grid(identity, replace(FEATURES, downbeats=[]))
    assert grid.downbeats == grid.beats[::4]
    upbeat = fitted_grid(identity, replace(FEATURES, duration_s=0.6, beats=[0.2], downbeats=[0.7]))
    assert (upbeat.beats, upbeat.downbeats, upbeat.downbeat) == ([0.2], [], 0.2)


def test_a_track_without_beats_has_an_empty_grid() -> None:
    silent = replace(FEATURES, beats=[], downbeats=[], tempo=0.0)
    assert fitted_grid(TrackIdentity(), silent).beats == []
    grid = steady_grid(90.0, silent)
    assert (grid.tempo, grid.downbeat, grid.beats) == (90.0, 0.0, [])


@pytest.mark.parametrize(
    ("times", "phase"), [([0.1, 0.6, 1.1], 0.1), ([0.49, 1.01], 0.0), ([0.0], 0.0)]
)
def test_phases_are_averaged_around_the_circle(times: list[float], phase: float) -> None:
    assert circular_mean(times, 0.5) == pytest.approx(phase, abs=1e-9)
