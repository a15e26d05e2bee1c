"""ULIDs sort by time, keep it, and are lower-case base32."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.domain.ulid import new_ulid, ulid_time_ms

TIMES = st.integers(0, 2**48 - 1)


@given(TIMES)
def test_the_time_comes_back(at_ms: int) -> None:
    ulid = new_ulid(at_ms)
    assert re.fullmatch("[0-9a-hjkmnp-tv-z]{26}", ulid)
    assert ulid_time_ms(ulid) == at_ms


@given(TIMES, TIMES)
def test_they_sort_by_time(first: int, second: int) -> None:
    if first < second:
        assert new_ulid(first) < new_ulid(second)


def test_two_of_one_moment_differ() -> None:
    assert new_ulid(1) != new_ulid(1)


@pytest.mark.parametrize("text", ["", "0" * 25, "I" * 26, "0" * 25 + "u"])
def test_what_is_no_ulid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ULID"):
        ulid_time_ms(text)
