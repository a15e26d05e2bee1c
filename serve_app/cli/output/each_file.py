"""One rule for commands on many files.

Each result is shown. A bad file gets a line on standard error with its name, the others go on,
and the exit status is then 1.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import typer
from rich.progress import Progress

from serve_app.cli.environment import errors, tell_of
from serve_app.services.failure import Failure
from serve_app.services.scan.places import Trouble

R = TypeVar("R")


Show = Callable[[str, R | Failure], None]
"""What is done with a file's name and its result, or what was wrong with it."""


class EachFile(Generic[R]):
    """Shows one file after another; failures are reported on standard error."""

    def __init__(self, show: Show[R], advance: Callable[[], None]) -> None:
        self.n_failed = 0
        self._show = show
        self._advance = advance

    def done(self, file: object, outcome: R | Exception) -> None:
        """Show the result of a file, or what was wrong with it."""
        if isinstance(outcome, Exception):
            self._fail(str(file), Failure.of(outcome))
        else:
            self._show(str(file), outcome)
        self._advance()

    def absent(self, trouble: Trouble) -> None:
        """Report what could not be found or listed."""
        self._fail(trouble.location, Failure("unreadable", trouble.message))
        self._advance()

    def _fail(self, file: str, failure: Failure) -> None:
        self.n_failed += 1
        tell_of(file, failure.message)
        self._show(file, failure)


@contextmanager
def each_file(n_files: int, show: Show[R], *, is_shown_here: bool = True) -> Iterator[EachFile[R]]:
    """Go through files with a progress bar, and exit with status 1 at the end if one failed.

    The bar is on standard error, and only if that is a terminal that the results do not go to.

    Args:
        n_files: Number of files.
        show: What is done with each.
        is_shown_here: Whether that writes to standard output.
    """
    is_bare = errors.is_terminal and not (is_shown_here and sys.stdout.isatty())
    with Progress(
        console=errors,
        disable=n_files < 2 or not is_bare,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task("analysing", total=n_files)
        files: EachFile[R] = EachFile(show, lambda: bar.advance(task))
        yield files
    if files.n_failed:
        if n_files > 1:
            errors.print(f"{files.n_failed} of {n_files} files failed", highlight=False)
        raise typer.Exit(1)
