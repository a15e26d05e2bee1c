"""Progress where there is no terminal."""

import re

import pytest

from serve_app.cli.output import progress


def test_elsewhere_a_line_tells_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with progress.shown("scanning", 10) as show:
        show(2, 0, "")  # nothing was analysed, so nothing is known of the time left
        show(4, 2, ", 1 error")
    line = r"scanning 4 of 10, [\d.]+ analysed a minute, 1 error, 0 min left"
    assert re.fullmatch(line, " ".join(capsys.readouterr().err.split()))


def test_a_line_comes_every_minute_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("scanning", 3) as show:
        for n in (1, 2, 3):
            show(n, n, "")
    assert capsys.readouterr().err == ""


def test_what_watches_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with progress.shown("scanning", 1, is_quiet=True) as show:
        show(1, 1, "")
    assert capsys.readouterr().err == ""


def test_steps_are_told_in_lines_of_their_own_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    seconds = iter([0.0, 10.0, 20.0, 50.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    with progress.shown_steps() as show:
        show("fetching", 1000, None)
        show("converting", 4000, 100_000)  # an earlier run did these
        show("converting", 10_000, 100_000)
    assert capsys.readouterr().err.splitlines() == [
        "fetching 1,000",
        "converting 4,000 of 100,000",
        "converting 10,000 of 100,000, 8 min left",
    ]
