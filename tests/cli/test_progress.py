"""Progress, mostly without a terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from serve_app.cli.output import progress


def test_elsewhere_a_line_tells_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that a resumed scan skips say nothing about the time that the rest will take."""
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    seconds = iter([0.0, 1.0, 60.0, 120.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with progress.shown("scanning", 5000) as show:
        show(1700, 0, 0, "")
        show(2000, 300, 0, "")
        show(2300, 600, 4, ", 1 error")
    assert capsys.readouterr().err.splitlines() == [
        "scanning 2000 of 5000, 10 min left",
        "scanning 2300 of 5000, 2.0 analysed a minute, 1 error, 9 min left",
    ]


def test_a_line_comes_every_minute_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("scanning", 3) as show:
        for n in (1, 2, 3):
            show(n, n, n, "")
    assert capsys.readouterr().err == ""


def test_what_watches_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with progress.shown("scanning", 1, is_quiet=True) as show:
        show(1, 1, 1, "")
    assert capsys.readouterr().err == ""


def test_steps_are_told_in_lines_of_their_own_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    seconds = iter([0.0, 10.0, 20.0, 50.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with progress.shown_steps() as show:
        show("fetching", 1000, None)
        show("converting", 4000, 100_000)  # an earlier run did these
        show("converting", 10_000, 100_000)
    assert capsys.readouterr().err.splitlines() == [
        "fetching 1,000",
        "converting 4,000 of 100,000",
        "converting 10,000 of 100,000, 8 min left",
    ]


def test_a_step_of_unknown_length_does_not_take_over_the_length_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bars: list[Progress] = []

    class Kept(Progress):
        def start(self) -> None:
            bars.append(self)
            super().start()

    monkeypatch.setattr(progress, "Progress", Kept)
    monkeypatch.setattr(progress, "errors", Console(file=io.StringIO(), force_terminal=True))
    with progress.shown_steps() as show:
        show("fetching", 7, 10)
        show("converting", 3, None)
        ((task,),) = (bar.tasks for bar in bars)
        assert (task.description, task.completed, task.total) == ("converting", 3, None)
