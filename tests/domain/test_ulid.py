"""ULIDs sort by time, keep it, and are lower-case base32."""

import re

from hypothesis import given
from hypothesis import strategies as st

from serve_app.domain.ulid import ALPHABET, RANDOM_BITS, new_ulid

TIMES = st.integers(0, 2**48 - 1)


@given(TIMES)
def test_the_time_comes_back(at_ms: int) -> None:
    ulid = new_ulid(at_ms)
    assert re.fullmatch("[0-9a-hjkmnp-tv-z]{26}", ulid)
    number = 0
    for character in ulid:
        number = number << 5 | ALPHABET.index(character)
    assert number >> RANDOM_BITS == at_ms


@given(TIMES, TIMES)
def test_they_sort_by_time(first: int, second: int) -> None:
    if first < second:
        assert new_ulid(first) < new_ulid(second)


def test_two_of_one_moment_differ() -> None:
    assert new_ulid(1) != new_ulid(1)
