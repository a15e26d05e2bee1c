"""Paths from one track to another: smooth, without repeats, no longer than the library allows."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from serve_app.services.similar.neighbours import Neighbour
from serve_app.services.similar.path import step, walk, waypoints
from tests.library.library_setting import track

MODEL = "afa-embed-1"
RANDOM = np.random.default_rng(11)


def unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values)).astype(np.float32)


def on_arc(part: float, title: str, tempo: float, key: int = 9) -> Neighbour:
    """A track close to a quarter circle."""
    angle = part * np.pi / 2
    vector = np.zeros(768)
    vector[:2] = np.cos(angle), np.sin(angle)
    vector[2:] = 0.005 * RANDOM.standard_normal(766)
    return Neighbour(track(title, tempo=tempo, key=key, mode=0), 0.0, unit(vector))


def shelf_of(tracks: list[Neighbour], n: int = 24):  # type: ignore[no-untyped-def]
    def near(vector: np.ndarray) -> list[Neighbour]:
        return sorted(tracks, key=lambda one: 1 - float(one.vector @ vector))[:n]

    return near


def test_waypoints_part_the_arc_evenly() -> None:
    start, end = on_arc(0, "a", 100).vector, on_arc(1, "b", 100).vector
    points = [start, *waypoints(start, end, 6), end]
    steps = [float(a @ b) for a, b in pairwise(points)]
    assert steps == pytest.approx([steps[0]] * 5, abs=1e-5)


def test_a_way_goes_along_smoothly() -> None:
    smooth = [on_arc(n / 9, f"smooth {n}", 100 + 2 * n) for n in range(10)]
    rough = [on_arc(n / 9, f"rough {n}", 140.0 - 30 * (n % 2), key=3) for n in range(10)]
    way = walk(MODEL, smooth[0], smooth[-1], 10, shelf_of([*smooth, *rough], 6))
    assert [one.track.identity.title for one in way] == [f"smooth {n}" for n in range(10)]


def test_no_recording_comes_twice() -> None:
    start, end = on_arc(0, "start", 100), on_arc(1, "end", 100)
    middle = on_arc(0.5, "middle", 100)
    copies = [replace(middle, track=track("Middle", tempo=100.0)) for _ in range(5)]
    way = walk(MODEL, start, end, 6, shelf_of([start, middle, *copies, end]))
    assert [one.track.identity.title.casefold() for one in way] == ["start", "middle", "end"]


def test_two_ends_are_a_way() -> None:
    start, end = on_arc(0, "start", 100), on_arc(1, "end", 100)
    assert walk(MODEL, start, end, 2, shelf_of([])) == [start, end]
    assert walk(MODEL, start, end, 5, shelf_of([])) == [start, end]


def test_steps_cost_sound_tempo_and_key() -> None:
    one = on_arc(0.5, "one", 100)
    same = replace(one, track=track("same", tempo=200.0, key=9, mode=0))
    faster = replace(one, track=track("faster", tempo=106.0, key=9, mode=0))
    fifth = replace(one, track=track("fifth", tempo=100.0, key=4, mode=0))
    unknown = replace(one, track=track("unknown"))
    costs = [step(one, other) for other in (same, fifth, faster, unknown)]
    assert costs == pytest.approx([0.0, 0.3 / 7, 0.0841, 0.4], abs=1e-3)


def test_opposite_ends_have_a_way() -> None:
    start = on_arc(0, "start", 100)
    end = replace(on_arc(0, "end", 100), vector=-start.vector)
    between = on_arc(0.5, "between", 100)
    assert len(walk(MODEL, start, end, 3, shelf_of([between]))) == 3
