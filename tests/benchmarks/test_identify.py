"""The arithmetic of the identification benchmark, on made-up answers."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.distortions import RATE, REVERBERATION_S, in_room, with_music
from benchmarks.identify.clips import Case, fit, interval, result
from benchmarks.identify.music import Track
from serve_app.providers.fingerprints.index import IndexMatch


def track(key: str, *, is_known: bool = True, is_reported: bool = True) -> Track:
    return Track(key, Path(key), is_known, is_reported, is_synthetic=False)


def match(key: str, votes: int, confidence: int) -> IndexMatch:
    return IndexMatch(key, votes, min(votes, 10), 0.0, 0.0, 1.0, confidence)


def case(
    of: Track,
    first: list[IndexMatch],
    again: list[IndexMatch],
    compared: list[IndexMatch] | None = None,
) -> Case:
    return Case(of, "clean", 5, first, again, compared or [])


def test_the_second_look_answers_where_the_first_is_unsure() -> None:
    a = track("a")
    sure = case(a, [match("a", 30, 97)], [match("b", 30, 97)])
    unsure = case(a, [match("a", 4, 30)], [match("b", 4, 60), match("a", 3, 10)])
    assert sure.final == sure.first
    assert unsure.final == unsure.again
    assert case(a, [], [match("a", 4, 60)]).is_unsure


def test_the_third_look_adds_to_the_second_where_that_is_unsure() -> None:
    a = track("a")
    compared = [match("a", 0, 75), match("b", 0, 3)]
    unsure = case(a, [], [match("b", 4, 60), match("a", 3, 10)], compared)
    assert [(m.track_key, m.confidence) for m in unsure.final] == [("a", 75), ("b", 60)]
    sure = case(a, [], [match("b", 4, 92)], compared)
    assert sure.final == sure.again
    assert [m.track_key for m in unsure.without_own_track().final] == ["b"]
    assert [m.confidence for m in case(a, [], [], compared).without_own_track().final] == [3]


def test_a_track_left_out_is_asked_again_as_an_unknown_one() -> None:
    left_out = case(
        track("a"), [match("a", 30, 97), match("c", 3, 2)], [match("a", 50, 99), match("b", 9, 70)]
    ).without_own_track()
    assert [m.track_key for m in left_out.final] == ["b"]
    assert left_out.is_left_out


def test_figures_are_of_the_reported_tracks_and_the_looks_apart() -> None:
    cases = [
        case(track("a"), [match("a", 30, 97)], []),
        case(track("b"), [match("b", 5, 30)], [match("b", 15, 92)]),
        case(track("c"), [match("x", 5, 55)], [match("x", 5, 60)]),
        case(track("u", is_known=False), [match("a", 5, 55)], [match("a", 5, 20)]),
        case(track("v", is_known=False), [match("a", 5, 5)], [match("a", 9, 80)]),
        case(track("d"), [], [match("x", 5, 20)], [match("d", 0, 80)]),
        case(track("w", is_known=False), [], [match("a", 5, 20)], [match("a", 0, 70)]),
        case(track("z", is_reported=False), [], []),
    ]
    told = result(cases, 4, {})
    assert told.rows[-1] == ("all", "nan", "nan", "nan", "25.0", "50.0", "75.0")
    reported = told.values["by_part"]["reported"]
    assert reported["5 s"]["named"] == 75.0
    assert reported["5 s"]["two_looks"] == 50.0
    assert reported["5 s"]["first_look"] == 25.0
    assert reported["5 s"]["third_look"] == 0.5
    assert reported["unknown"] == {
        "named_by_first_look": 1,
        "named_by_two_looks": 1,
        "named": 2,
        "n": 3,
    }
    assert told.values["by_part"]["chosen_on"]["5 s"]["named"] == 0.0
    assert {t.name: t.value for t in told.targets}["false accepts"] == pytest.approx(2 / 3)


def test_the_interval_is_over_tracks() -> None:
    named = [case(track(f"t{i}"), [match(f"t{i}", 30, 97)], []) for i in range(8)]
    missed = [case(track(f"m{i}"), [], []) for i in range(2)]
    low, high = interval([*named, *missed])
    assert 40 <= low < 80 < high <= 100
    assert interval(named) == [100.0, 100.0]


def test_the_fit_finds_the_calibration_and_hears_nothing_of_what_is_reported() -> None:
    rng = np.random.default_rng(0)
    cases = []
    for i in range(6000):
        support = float(rng.uniform(0, 10))
        own = track(f"t{i}", is_reported=i % 2 == 1)
        length_s = int(rng.choice([3, 30]))
        p = 1 / (1 + np.exp(5 + 2.0 * np.log(length_s) - 1.5 * support))
        is_right = rng.random() < p if not own.is_reported else False
        found = IndexMatch(own.key if is_right else "x", 4, 0, support, 0.0, 1.0, 0)
        q = 1 / (1 + np.exp(9 - 1.2 * support))
        like = IndexMatch(
            own.key if rng.random() < q and not own.is_reported else "x",
            0,
            0,
            0.0,
            0.0,
            1.0,
            0,
            likeness=support,
        )
        cases.append(Case(own, "clean", length_s, [], [found], [like]))
        sure = IndexMatch("x", 90, 0, 9.0, 0.0, 1.0, 99)
        cases.append(Case(own, "clean", length_s, [sure], [sure], [sure]))
    fitted = fit(cases, 50)
    assert fitted["evidence"]["length"] == pytest.approx(-2.0, abs=0.3)
    assert fitted["evidence"]["support"] == pytest.approx(1.5, abs=0.15)
    assert fitted["likeness"]["likeness"] == pytest.approx(1.2, abs=0.15)
    reported = fit([one for one in cases if one.track.is_reported], 50)
    assert reported == {"evidence": {}, "likeness": {}}


def test_a_room_rings_on_and_other_music_keeps_its_distance() -> None:
    click = np.zeros((2, 4 * RATE), np.float32)
    click[:, 0] = 0.5
    level = np.square(in_room(click, np.random.default_rng(0))).mean(axis=0)
    early = level[RATE // 10 : RATE // 5].mean()
    late = level[RATE // 10 + RATE * 3 // 4 : RATE // 5 + RATE * 3 // 4].mean()
    fall_db = 10 * np.log10(early / late)
    assert fall_db == pytest.approx(60 * 0.75 / REVERBERATION_S, abs=1.5)
    rng = np.random.default_rng(1)
    one, other = (rng.normal(0, s, (2, RATE)).astype(np.float32) for s in (0.1, 0.3))
    added = with_music(one, other, 5) - one
    assert 10 * np.log10(np.mean(one**2) / np.mean(added**2)) == pytest.approx(5, abs=0.05)
