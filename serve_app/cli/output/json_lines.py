"""A line of JSON for each of many files, written whole and as soon as the file is done."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import typer
from rich.progress import Progress

from pipelines.audio.waveform import AudioError
from serve_app.cli.environment import errors

R = TypeVar("R")


class JsonLines(Generic[R]):
    """Writes lines in the order in which files are done; what failed is told on standard error.

    Args:
        output: Where to; None is standard output.
        record_of: Gives the line of a result, less the file's name.
        advance: Called after every line.
    """

    def __init__(
        self,
        output: IO[str] | None,
        record_of: Callable[[R], dict[str, Any]],
        advance: Callable[[], None],
    ) -> None:
        self.n_failed = 0
        self._output = output
        self._record_of = record_of
        self._advance = advance

    def write(self, path: Path, outcome: R | Exception) -> None:
        """Write the line of one file: its record, or what was wrong with it."""
        if isinstance(outcome, Exception):
            self.n_failed += 1
            record = _failure(outcome)
            told = f"{path}: {record['message']}"
            errors.print(told, highlight=False, markup=False, soft_wrap=True)
        else:
            record = self._record_of(outcome)
        typer.echo(json.dumps({"file": str(path)} | record), self._output)
        self._advance()


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, AudioError):
        return {"error": error.code, "message": str(error)}
    return {"error": "internal_error", "message": repr(error)}


@contextmanager
def json_lines(
    n_files: int, record_of: Callable[[R], dict[str, Any]], output: IO[str] | None = None
) -> Iterator[JsonLines[R]]:
    """Write lines under a bar of progress, and exit with status 1 in the end if a file failed.

    The bar is on standard error, and only where that is a terminal which the lines do not go to.
    """
    is_shown = errors.is_terminal and (output is not None or not sys.stdout.isatty())
    with Progress(
        console=errors, disable=not is_shown, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task = bar.add_task("analysing", total=n_files)
        lines = JsonLines(output, record_of, lambda: bar.advance(task))
        yield lines
    if lines.n_failed:
        errors.print(f"{lines.n_failed} of {n_files} files failed", highlight=False)
        raise typer.Exit(1)
