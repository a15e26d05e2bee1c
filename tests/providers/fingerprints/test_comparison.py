from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.fingerprint.landmarks import Fingerprint
from models.fingerprint.subfingerprints import N_BANDS
from serve_app.providers.fingerprints import comparison
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.comparison import Compared, compare
from serve_app.providers.fingerprints.manifest import read_manifest
from serve_app.providers.fingerprints.segment import Segment

NOTHING = np.zeros(0, np.float32)
LENGTH = 240
"""Sub-fingerprints of a track: half a minute."""


def changes_of(seed: int, n: int = LENGTH) -> NDArray[np.float32]:
    """Random changes that last a little, as music's do."""
    drawn = np.random.default_rng(seed).standard_normal((n + 3, N_BANDS)).astype(np.float32)
    return (drawn[3:] + 2 * drawn[2:-1] + 2 * drawn[1:-2] + drawn[:-3]) / np.float32(6)


def fingerprint(changes: NDArray[np.float32]) -> Fingerprint:
    rows = np.packbits(changes > 0, axis=1).view(np.uint64)[:, 0]
    return Fingerprint(NOTHING, NOTHING, NOTHING, 1000, rows)


def in_noise(clip: NDArray[np.float32], times: float = 2) -> NDArray[np.float32]:
    """So many times as much noise."""
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


def test_each_track_is_told_once_the_most_alike_first(folder: Path) -> None:
    found = compare(open_all(folder), in_noise(changes_of(3)[10:50]))
    assert sorted(keys(found)) == sorted(f"track-{i}" for i in range(12))
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
    assert keys(after) == keys(before)[1:]
    assert [one.place for one in after] == [one.place for one in before[1:]]


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
        builder.add("short", fingerprint(changes_of(1, 30)))
        builder.add("silent", fingerprint(changes_of(1, 0)))
        builder.add("long", fingerprint(changes_of(2, 600)))
        builder.commit()
    assert keys(compare(open_all(tmp_path), changes_of(2, 600)[300:340])) == ["long"]


@pytest.mark.parametrize(
    "clip",
    [np.zeros((80, N_BANDS), np.float32), changes_of(0, 11), np.zeros((0, N_BANDS), np.float32)],
    ids=["silence", "a second", "nothing"],
)
def test_too_little_is_not_compared(folder: Path, clip: NDArray[np.float32]) -> None:
    assert compare(open_all(folder), clip) == []


def test_an_index_of_seconds_tells_nothing(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.add("jingle", fingerprint(changes_of(0, 100)))
        builder.commit()
    assert compare(open_all(tmp_path), changes_of(0, 100)[10:50]) == []
    assert compare([], changes_of(0)) == []


@pytest.mark.parametrize("number", [0, 3, 7, 11])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_in_a_large_index_fewer_are_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, number: int
) -> None:
    clip = in_noise(changes_of(number)[101:181], 1)
    monkeypatch.setattr(comparison, "MOST_COMPARED", 12 * LENGTH * len(clip) // step**2 + 1)
    steps: list[int] = []
    count = comparison.distances

    def counted(*given: Any) -> Any:
        steps.append(given[2])
        return count(*given)

    monkeypatch.setattr(comparison, "distances", counted)
    found = compare(open_all(folder), clip)
    assert set(steps) == {step}
    assert (keys(found)[0], found[0].place) == (f"track-{number}", 101)
    assert found[0].likeness > 7


def test_a_very_large_index_is_not_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MOST_COMPARED", 12 * LENGTH * 80 // 9 - 1)
    monkeypatch.setattr(comparison, "distances", None)
    assert compare(open_all(folder), changes_of(7)[100:180]) == []
