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
