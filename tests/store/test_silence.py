"""Roles on one server share what they know about it."""

import pytest

from serve_app.store.away import LOOK_AGAIN_S, SILENT_TIMEOUT_S, Silence
from serve_app.store.client import is_same_server


def test_after_an_unanswered_call_the_next_ones_wait_little() -> None:
    now = 100.0
    silence = Silence(lambda: now)
    assert silence.limit_s(0.8) == 0.8
    silence.was_met(0.8)
    assert silence.limit_s(0.8) == SILENT_TIMEOUT_S
    now += LOOK_AGAIN_S / 2
    silence.was_met(SILENT_TIMEOUT_S)  # says nothing new
    now += LOOK_AGAIN_S / 2
    assert silence.limit_s(0.8) == 0.8
    silence.was_met(0.8)
    silence.was_broken()
    assert silence.limit_s(0.8) == 0.8


@pytest.mark.parametrize(
    ("url", "other", "is_same"),
    [
        ("redis://h:1/0", "redis://u:p@h:1/5", True),
        ("redis://h", "rediss://h:6379", True),
        ("redis://h:1", "redis://h:2", False),
        ("redis://g:1", "redis://h:1", False),
        ("unix:///a/s", "unix:///a/s?db=1", True),
        ("unix:///a/s", "unix:///b/s", False),
        ("unix:///a/s", "redis://h", False),
    ],
)
def test_addresses_of_one_server_are_told(url: str, other: str, is_same: bool) -> None:
    assert is_same_server(url, other) is is_same
