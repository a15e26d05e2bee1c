"""Keys on the Camelot wheel and octaves of tempo."""

import pytest

from pipelines.analysis.tonality.notes import CAMELOT
from serve_app.services.similar.harmony import (
    compatible_keys,
    key_distance,
    key_relation,
    tempo_distance,
)

C, G, A, MINOR, MAJOR = 0, 7, 9, 0, 1


def test_relations_are_those_of_the_notes() -> None:
    for tonic in range(12):
        major = CAMELOT[tonic][MAJOR]
        assert key_relation(major, major) == "same"
        assert key_relation(CAMELOT[(tonic + A) % 12][MINOR], major) == "relative"
        assert key_relation(CAMELOT[(tonic + G) % 12][MAJOR], major) == "fifth up"
        assert key_relation(CAMELOT[(tonic - G) % 12][MAJOR], major) == "fifth down"
        assert key_relation(CAMELOT[tonic][MINOR], major) == "parallel"
        assert key_relation(major, CAMELOT[tonic][MINOR]) == "parallel"
        assert key_relation(CAMELOT[(tonic + 6) % 12][MAJOR], major) == "distant"
    assert key_relation("9B", "8A") == "diagonal"


def test_what_mixes_shares_all_notes_but_one() -> None:
    assert compatible_keys("8A") == ["8A", "8B", "9A", "7A"]
    assert compatible_keys("12B") == ["12B", "12A", "1B", "11B"]
    assert compatible_keys("1A") == ["1A", "1B", "2A", "12A"]


@pytest.mark.parametrize(
    ("one", "other", "steps"), [("8A", "8A", 0), ("12A", "1A", 1), ("8A", "8B", 1), ("1A", "7B", 7)]
)
def test_the_way_between_keys_is_the_shorter_one(one: str, other: str, steps: int) -> None:
    assert key_distance(one, other) == key_distance(other, one) == pytest.approx(steps / 7)


def test_half_and_double_are_one_tempo() -> None:
    assert tempo_distance(85, 170) == 0
    assert tempo_distance(240, 60) == 0
    assert tempo_distance(100, 106) == pytest.approx(0.0841, abs=1e-4)
    assert tempo_distance(106, 200) == pytest.approx(0.0841, abs=1e-4)
