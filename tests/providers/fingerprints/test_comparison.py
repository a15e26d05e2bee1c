from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.fingerprint import subfingerprints
from models.fingerprint.landmarks import Fingerprint
from models.fingerprint.subfingerprints import N_BANDS
from serve_app.providers.fingerprints import comparison, nearest
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.comparison import Compared, compare
from serve_app.providers.fingerprints.manifest import read_manifest
from serve_app.providers.fingerprints.segment import Segment

NOTHING = np.zeros(0, np.float32)
LENGTH = 241
"""Sub-fingerprints of a half-minute track; not a multiple of three."""


def changes_of(seed: int, n: int = LENGTH) -> NDArray[np.float32]:
    """Random changes that each last a little, as in music."""
    drawn = np.random.default_rng(seed).standard_normal((n + 3, N_BANDS)).astype(np.float32)
    return (drawn[3:] + 2 * drawn[2:-1] + 2 * drawn[1:-2] + drawn[:-3]) / np.float32(6)


def fingerprint(changes: NDArray[np.float32]) -> Fingerprint:
    rows = np.packbits(changes > 0, axis=1).view(np.uint64)[:, 0]
    return Fingerprint(NOTHING, NOTHING, NOTHING, 1000, rows)


def in_noise(clip: NDArray[np.float32], times: float = 2) -> NDArray[np.float32]:
    """Add ``times`` as much noise."""
    return clip + np.float32(times) * changes_of(99, len(clip))


def open_all(folder: Path) -> list[tuple[Segment, frozenset[int]]]:
    entries = read_manifest(folder).segments
    return [(Segment(folder / e.name), frozenset(e.dropped)) for e in entries]


def keys(found: list[Compared]) -> list[str]:
    return [one.segment.keys[one.track] for one in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three segments of four tracks each."""
    for part in range(3):
        with FingerprintIndexBuilder(tmp_path) as builder:
            builder.build(
                (f"track-{i}", fingerprint(changes_of(i))) for i in range(4 * part, 4 * part + 4)
            )
    return tmp_path


@pytest.mark.parametrize("number", range(12))
def test_a_clip_in_noise_is_most_like_its_place(folder: Path, number: int) -> None:
    segments = open_all(folder)
    assert len(segments) == 3
    best, *rest = compare(segments, in_noise(changes_of(number)[100:140]))
    assert keys([best]) == [f"track-{number}"]
    assert best.place == 100
    assert best.likeness > 7
    assert rest[0].likeness < 5


def two_places(shift: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A track and a clip: large changes fit at 100, and the many small ones ``shift`` later."""
    clip = changes_of(70, 40)
    is_large = np.arange(N_BANDS) % 8 == 0
    track = changes_of(71)
    track[100:140, is_large] = clip[:, is_large]
    track[100 + shift : 140 + shift, ~is_large] = clip[:, ~is_large]
    return track, clip * np.where(is_large, 5, 0.1).astype(np.float32)


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_beside_the_place_with_the_fewest_bits_the_large_changes_decide(
    folder: Path, shift: int
) -> None:
    track, clip = two_places(shift)
    with FingerprintIndexBuilder(folder) as builder:
        builder.build([("other", fingerprint(track))])
    best = compare(open_all(folder), clip)[0]
    assert (keys([best]), best.place) == (["other"], 100)


@pytest.mark.parametrize(
    ("begin", "length", "shift", "place"), [(101, LENGTH, 1, 0), (0, 139, -1, 99)]
)
def test_no_place_lies_before_a_track_or_after_it(
    folder: Path, begin: int, length: int, shift: int, place: int
) -> None:
    track, clip = two_places(shift)
    cut = np.roll(track, -begin, axis=0)[:length]
    with FingerprintIndexBuilder(folder) as builder:
        builder.build([("other", fingerprint(cut))])
    (found,) = [one for one in compare(open_all(folder), clip) if keys([one]) == ["other"]]
    assert found.place == place


def test_each_track_is_told_once_the_most_alike_first(folder: Path) -> None:
    found = compare(open_all(folder), in_noise(changes_of(3)[10:50]))
    assert len(set(keys(found))) == len(found) == comparison.N_TOLD
    likeness = [one.likeness for one in found]
    assert likeness == sorted(likeness, reverse=True)


def test_a_stranger_is_like_nothing(folder: Path) -> None:
    best = max(compare(open_all(folder), changes_of(i, 80))[0].likeness for i in range(50, 80))
    assert best < 5.5


def test_a_removed_track_is_not_found(folder: Path) -> None:
    with FingerprintIndexBuilder(folder) as builder:
        builder.remove("track-5")
        builder.commit()
    found = compare(open_all(folder), changes_of(5)[:80])
    assert "track-5" not in keys(found)
    assert found[0].likeness < 5.5


@pytest.mark.parametrize("number", [0, 2, 3, 11])
def test_a_removed_track_leaves_the_others_as_they_are(folder: Path, number: int) -> None:
    clip = changes_of(number)[30:70]
    before = compare(open_all(folder), clip)
    with FingerprintIndexBuilder(folder) as builder:
        builder.remove(f"track-{number}")
        builder.commit()
    after = compare(open_all(folder), clip)
    places = {key: one.place for key, one in zip(keys(after), after, strict=True)}
    assert all(
        places[key] == one.place for key, one in zip(keys(before)[1:], before[1:], strict=True)
    )


def test_what_is_removed_brings_the_track_before_it_no_nearer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "N_NEAREST", 1)
    with FingerprintIndexBuilder(folder) as builder:
        builder.remove("track-3")
        builder.commit()
    clip = changes_of(1)[100:140] + 3 * changes_of(3)[50:90]
    assert keys(compare(open_all(folder)[:1], clip)) == ["track-1"]


def beating(seed: int, n: int = LENGTH) -> NDArray[np.float32]:
    """All bands rise and fall together, twice a second, as with a drum."""
    beat = np.tile(np.array([2, -1, -1, 0], np.float32), n // 4 + 1)[:n]
    return 0.3 * beat[:, None] + changes_of(seed, n)


def test_a_stranger_of_the_same_tempo_is_like_what_repeats_no_more_than_elsewhere(
    folder: Path,
) -> None:
    with FingerprintIndexBuilder(folder) as builder:
        builder.add("beat", fingerprint(beating(200)))
        builder.commit()
    for seed in range(300, 310):
        best = compare(open_all(folder), beating(seed, 80))[0]
        assert keys([best]) == ["beat"]
        assert best.likeness < 3.5
    own = compare(open_all(folder), beating(200)[101:181])[0]
    assert (keys([own]), own.place) == (["beat"], 101)
    assert own.likeness > 6


def test_merging_changes_no_answer(folder: Path) -> None:
    clip = in_noise(changes_of(9)[60:100])
    before = compare(open_all(folder), clip)
    with FingerprintIndexBuilder(folder, most_segments=1) as builder:
        builder.remove("track-0")
        builder.commit()
    (segment,) = open_all(folder)
    assert len(segment[0].subfingerprints.rows) == 11 * LENGTH
    after = compare([segment], clip)
    assert (keys(after)[0], after[0].place) == (keys(before)[0], before[0].place)
    assert after[0].likeness == pytest.approx(before[0].likeness, rel=0.1)


def test_no_place_lies_across_two_tracks(folder: Path) -> None:
    ((first, dropped), *_) = open_all(folder)
    across = np.concatenate([changes_of(0)[-20:], changes_of(1)[:20]])
    for one in compare([(first, dropped)], across):
        assert one.place + len(across) <= LENGTH
        assert one.likeness < 5.5


def test_a_track_that_is_shorter_than_the_clip_is_passed_over(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.add("short", fingerprint(changes_of(1, 39)))
        builder.add("silent", fingerprint(changes_of(1, 0)))
        builder.add("as long", fingerprint(changes_of(3, 40)))
        builder.add("long", fingerprint(changes_of(2, 600)))
        builder.commit()
    assert keys(compare(open_all(tmp_path), changes_of(2, 600)[-40:])) == ["long", "as long"]
    assert keys(compare(open_all(tmp_path), changes_of(3, 40))) == ["as long", "long"]


def test_a_segment_without_a_track_that_is_long_enough_hinders_no_other(folder: Path) -> None:
    clip = in_noise(changes_of(6)[100:140])
    before = compare(open_all(folder), clip)
    with FingerprintIndexBuilder(folder) as builder:
        builder.build((f"short-{i}", fingerprint(changes_of(i, 30))) for i in range(20, 22))
        builder.build((f"silent-{i}", fingerprint(changes_of(i, 0))) for i in range(2))
        left = ("left", fingerprint(changes_of(22, 30)))
        builder.build([("gone", fingerprint(changes_of(6))), left])
        builder.remove("gone")
        builder.commit()
    segments = open_all(folder)
    assert len(segments) == 6
    assert keys(compare(segments, clip)) == keys(before)
    assert compare(segments[3:5], clip) == []


@pytest.mark.parametrize(
    "clip",
    [np.zeros((80, N_BANDS), np.float32), changes_of(0, 11), np.zeros((0, N_BANDS), np.float32)],
    ids=["silence", "a second", "nothing"],
)
def test_too_little_is_not_compared(folder: Path, clip: NDArray[np.float32]) -> None:
    assert compare(open_all(folder), clip) == []


def test_an_index_that_is_everywhere_the_same_tells_nothing(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.add("steady", fingerprint(np.tile(changes_of(5, 1), (600, 1))))
        builder.commit()
    assert [compare(open_all(tmp_path), changes_of(i, 40 + i)) for i in range(6)] == [[]] * 6


def test_silence_in_an_index_is_not_what_is_usual(folder: Path) -> None:
    clip = in_noise(changes_of(4)[100:140])
    before = compare(open_all(folder), clip)[0]
    silence = np.zeros((6 * LENGTH, N_BANDS), np.float32)
    with FingerprintIndexBuilder(folder) as builder:
        builder.build((f"silent-{i}", fingerprint(silence)) for i in range(4))
    after = compare(open_all(folder), clip)[0]
    assert (keys([after]), after.place) == (["track-4"], 100)
    assert after.likeness == pytest.approx(before.likeness, rel=0.15)


@pytest.mark.parametrize("number", [0, 5, 11])
def test_of_all_segments_the_nearest_tracks_are_looked_at(
    folder: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "N_NEAREST", 1)
    found = compare(open_all(folder), in_noise(changes_of(number)[100:140]))
    assert keys(found) == [f"track-{number}"]


def test_an_index_of_seconds_tells_nothing(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.add("jingle", fingerprint(changes_of(0, 100)))
        builder.commit()
    assert compare(open_all(tmp_path), changes_of(0, 100)[10:50]) == []
    assert compare([], changes_of(0)) == []


N_COARSE = 12 * 79
"""Coarse sub-fingerprints of the twelve tracks."""


def bounded_to(moments: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit how many moments of a clip are compared, as a large index does."""
    monkeypatch.setattr(nearest, "MOST_COMPARED", N_COARSE * moments)
    monkeypatch.setattr(nearest, "N_PLACES", 20)
    monkeypatch.setattr(nearest, "distances", None)


@pytest.mark.parametrize("number", [0, 3, 7, 11])
@pytest.mark.parametrize("place", [0, 99, 100, 101, 161])
@pytest.mark.parametrize("moments", [4, 12, 26])
def test_in_a_large_index_few_moments_tell_where_to_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch, moments: int, place: int, number: int
) -> None:
    bounded_to(moments, monkeypatch)
    n_compared: list[int] = []
    compare_at = subfingerprints.distances_at

    def compared(*given: Any) -> Any:
        n_compared.append(len(given[2]))
        return compare_at(*given)

    monkeypatch.setattr(nearest, "distances_at", compared)
    clip = in_noise(changes_of(number)[place : place + 80], 1)
    found = compare(open_all(folder), clip)
    assert (keys(found)[0], found[0].place) == (f"track-{number}", place)
    assert found[0].likeness > 7
    assert sum(n_compared) <= 3 * 20


def test_what_a_coarse_look_finds_is_what_all_places_tell(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = in_noise(changes_of(5)[100:180])
    expected = compare(open_all(folder), clip)[0]
    bounded_to(26, monkeypatch)
    found = compare(open_all(folder), clip)[0]
    assert (keys([found]), found.place) == (keys([expected]), expected.place)
    assert found.likeness == pytest.approx(expected.likeness)


def test_a_coarse_look_passes_over_what_is_removed_short_or_across_tracks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FingerprintIndexBuilder(folder) as builder:
        builder.remove("track-5")
        builder.build((f"short-{i}", fingerprint(changes_of(i, 30))) for i in range(20, 30))
        builder.build((f"silent-{i}", fingerprint(changes_of(i, 0))) for i in range(2))
        builder.build([("as long", fingerprint(changes_of(6)[100:180]))])
    bounded_to(26, monkeypatch)
    monkeypatch.setattr(nearest, "N_PLACES", 20 * LENGTH)
    segments = open_all(folder)
    removed = compare(segments, changes_of(5)[100:180])
    assert "track-5" not in keys(removed)
    across = np.concatenate([changes_of(0)[-40:], changes_of(1)[:40]])
    for one in compare(segments, across):
        assert not keys([one])[0].startswith("short")
        assert 0 <= one.place <= LENGTH - len(across)
        assert one.likeness < 5.5
    twice = compare(segments, in_noise(changes_of(6)[100:180], 1))
    assert set(keys(twice[:2])) == {"as long", "track-6"}
    assert {one.place for one in twice[:2]} == {0, 100}


def test_a_coarse_look_keeps_each_tracks_nearest_place_and_the_nearest_tracks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded_to(26, monkeypatch)
    monkeypatch.setattr(nearest, "N_PLACES", 12 * LENGTH)
    found = compare(open_all(folder), in_noise(changes_of(9)[61:141], 1))
    assert len(set(keys(found))) == len(found) == comparison.N_TOLD
    assert (keys(found)[0], found[0].place) == ("track-9", 61)
    monkeypatch.setattr(nearest, "N_NEAREST", 1)
    assert keys(compare(open_all(folder), in_noise(changes_of(9)[61:141], 1))) == ["track-9"]


def test_a_very_large_index_is_not_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded_to(3, monkeypatch)
    monkeypatch.setattr(nearest, "places_below", None)
    assert compare(open_all(folder), changes_of(7)[100:180]) == []
