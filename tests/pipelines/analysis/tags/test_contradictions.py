"""Tags that contradict each other, the tempo, or whether there is singing."""

import pytest

from pipelines.analysis.records import MoodTag
from pipelines.analysis.tags.contradictions import consistent_tags


def kept(*names: str, without_vocals: float = 0.9, tempo: float = 100.0) -> list[str]:
    """Return the names of the tags that are kept, from names given by falling score."""
    tags = [MoodTag(name, 0.9 - i / 100) for i, name in enumerate(names)]
    return [tag.tag for tag in consistent_tags(tags, without_vocals, tempo)]


@pytest.mark.parametrize(
    ("without_vocals", "expected"),
    [
        (0.9, ["rock", "instrumental", "choir"]),
        (0.1, ["rock", "male vocals", "vocals", "choir"]),
        (0.5, ["rock", "choir"]),
        (0.6, ["rock", "choir"]),
    ],
)
def test_voices_against_instrumentalness(without_vocals: float, expected: list[str]) -> None:
    names = ("rock", "male vocals", "instrumental", "vocals", "choir")
    assert kept(*names, without_vocals=without_vocals) == expected


@pytest.mark.parametrize(
    ("tempo", "expected"), [(124.0, ["fast"]), (72.0, ["slow"]), (0.0, ["fast"]), (100.0, ["fast"])]
)
def test_slow_and_fast_against_the_tempo(tempo: float, expected: list[str]) -> None:
    assert kept("fast", "slow", tempo=tempo) == expected


def test_slow_alone_is_left_out_of_a_quick_track() -> None:
    assert kept("slow", "folk", tempo=124.0) == ["folk"]
    assert kept("slow", "folk", tempo=0.0) == ["slow", "folk"]


@pytest.mark.parametrize(
    "pair", [("slow", "fast"), ("quiet", "loud"), ("loud", "soft"), ("sad", "happy")]
)
def test_of_opposites_the_stronger_stays(pair: tuple[str, str]) -> None:
    assert kept(*pair) == [pair[0]]
    assert kept(*pair[::-1]) == [pair[1]]


def test_soft_and_quiet_are_no_opposites() -> None:
    assert kept("soft", "quiet") == ["soft", "quiet"]
