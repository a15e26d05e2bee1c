"""How far long work is: a bar on a terminal, elsewhere a line every minute."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from serve_app.cli.environment import errors

LINE_S = 60.0
"""Between two lines where there is no terminal."""


@contextmanager
def shown(
    title: str, total: int, *, is_quiet: bool = False
) -> Iterator[Callable[[int, int, str], None]]:
    """Give what shows progress, with the rate of the files that were analysed and the time left.

    It takes how many files are done, how many of them were analysed, and what else to tell.

    Args:
        title: What is done.
        total: Files.
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

        def show(n_done: int, n_analysed: int, more: str) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            a_minute = 60 * n_analysed / max(now_s - begun_s, 1e-3)
            rate = f"{a_minute:.1f} analysed a minute{more}" if n_analysed else ""
            bar.update(task, completed=n_done, rate=rate)
            if rate and not is_quiet and not errors.is_terminal and now_s - shown_s >= LINE_S:
                shown_s = now_s
                left_min = (total - n_done) / a_minute
                errors.print(
                    f"{title} {n_done} of {total}, {rate}, {left_min:.0f} min left", highlight=False
                )

        yield show
