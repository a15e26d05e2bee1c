"""Progress of long work: a bar on a terminal, otherwise a line every minute."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from serve_app.cli.environment import errors

LINE_S = 60.0
"""Seconds between two lines without a terminal."""


@contextmanager
def shown(
    title: str, total: int, *, is_quiet: bool = False
) -> Iterator[Callable[[int, int, int, str], None]]:
    """Yield what shows progress, with the rate of analysed files and the time left.

    It takes how many files are done, how many of them were not skipped (which gives the time
    left), how many of those were analysed, and what else to show.

    Args:
        title: What is being done.
        total: Number of files.
        is_quiet: Show nothing.
    """
    begun_s = shown_s = time.monotonic()
    with Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=is_quiet or not errors.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=total, rate="")

        def show(n_done: int, n_worked: int, n_analysed: int, more: str) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            took_min = max(now_s - begun_s, 1e-3) / 60
            rate = f"{n_analysed / took_min:.1f} analysed a minute{more}" if n_analysed else ""
            bar.update(task, completed=n_done, rate=rate)
            if n_worked and not is_quiet and not errors.is_terminal and now_s - shown_s >= LINE_S:
                shown_s = now_s
                left_min = (total - n_done) * took_min / n_worked
                told = f"{title} {n_done} of {total}", rate, f"{left_min:.0f} min left"
                errors.print(", ".join(filter(None, told)), highlight=False)

        yield show


@contextmanager
def shown_steps(*, is_quiet: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield what shows one step after another, with its rate and the time left.

    It takes the step, how much of it is done, and how much there is, if that is known.

    Args:
        is_quiet: Show nothing, because the output may go to the same terminal.
    """
    title, begun_s, begun_at = "", 0.0, 0
    shown_s = time.monotonic()
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=is_quiet or not errors.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)

        def show(step: str, done: int, total: int | None) -> None:
            nonlocal title, task, begun_s, begun_at, shown_s
            now_s = time.monotonic()
            if step != title:
                title, begun_s, begun_at = step, now_s, done
                bar.remove_task(task)  # a task with a total keeps it
                task = bar.add_task(step, total=total)
            bar.update(task, completed=done, total=total)
            if is_quiet or errors.is_terminal or now_s - shown_s < LINE_S:
                return
            shown_s = now_s
            a_second = (done - begun_at) / max(now_s - begun_s, 1e-3)
            line = f"{step} {done:,}"
            if total is not None:
                line += f" of {total:,}"
                if a_second:
                    line += f", {(total - done) / a_second / 60:.0f} min left"
            errors.print(line, highlight=False)

        yield show
