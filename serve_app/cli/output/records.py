"""Results as records: a line of JSON for each file, or a row of a table."""

import csv
import json
from collections.abc import Callable
from typing import IO, Any, TypeVar

import typer

from serve_app.cli.output.each_file import Show
from serve_app.services.export.tables import harmless
from serve_app.services.failure import Failure

R = TypeVar("R")

STRONG = 0.6
"""Score from which a tag is shown in a table."""


def json_lines(record_of: Callable[[R], dict[str, Any]], output: IO[str] | None = None) -> Show[R]:
    """Write a whole line for each file at once; a failed one has its error.

    Args:
        record_of: Returns the record of a result, without the file's name.
        output: Where to write; None means standard output.
    """

    def show(file: str, result: R | Failure) -> None:
        if isinstance(result, Failure):
            record: dict[str, Any] = {"error": result.code, "message": result.message}
        else:
            record = record_of(result)
        typer.echo(json.dumps({"file": file} | record), output)
        if output is not None:
            output.flush()

    return show


def csv_rows(record_of: Callable[[R], dict[str, Any]], output: IO[str]) -> Show[R]:
    """Write a header, and a row for each file that did not fail, with what fits into cells."""
    writer: csv.DictWriter[str] | None = None

    def show(file: str, result: R | Failure) -> None:
        nonlocal writer
        if isinstance(result, Failure):
            return
        row = {"file": file} | _cells(record_of(result))
        if writer is None:
            writer = csv.DictWriter(output, list(row))
            writer.writeheader()
        writer.writerow({name: harmless(value) for name, value in row.items()})
        output.flush()

    return show


def _cells(record: dict[str, Any]) -> dict[str, Any]:
    tags = [tag["tag"] for tag in record["mood_tags"] if tag["score"] >= STRONG]
    plain = {name: value for name, value in record.items() if not isinstance(value, list | dict)}
    return plain | {"tags": "; ".join(tags)}
