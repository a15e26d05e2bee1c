"""Names of keys."""

import pytest

from pipelines.analysis.tonality.notes import CAMELOT, camelot, mode_name, pitch_class


@pytest.mark.parametrize(
    ("key", "mode", "name"),
    [
        *[(0, 1, "8B"), (7, 1, "9B"), (11, 1, "1B"), (6, 1, "2B"), (1, 1, "3B"), (5, 1, "7B")],
        *[(9, 0, "8A"), (4, 0, "9A"), (8, 0, "1A"), (3, 0, "2A"), (2, 0, "7A"), (0, 0, "5A")],
        *[(-1, -1, ""), (-1, 1, ""), (3, -1, ""), (12, 1, "")],
    ],
)
def test_camelot(key: int, mode: int, name: str) -> None:
    assert camelot(key, mode) == name


def test_camelot_neighbours_are_fifths_and_relatives() -> None:
    for key in range(12):
        number = int(camelot(key, 1)[:-1])
        assert int(camelot((key + 7) % 12, 1)[:-1]) == number % 12 + 1
        assert camelot((key + 9) % 12, 0) == f"{number}A"
    assert len({name for pair in CAMELOT for name in pair}) == 24


def test_keys_have_names_where_they_are_known() -> None:
    assert [pitch_class(key) for key in (-1, 0, 10, 11, 12)] == [None, "C", "A#", "B", None]
    assert [mode_name(mode) for mode in (-1, 0, 1)] == [None, "minor", "major"]
