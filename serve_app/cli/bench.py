"""`afa bench`: measure this machine beside the baselines."""

from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.environment import console, fail


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Benchmarks; all when none.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Result file, when one benchmark is named.")
    ] = None,
) -> None:
    """Run benchmarks; each prints a table and writes JSON and a plot."""
    from benchmarks.registry import MODULES, run_benchmark

    wanted = names or list(MODULES)
    unknown = [name for name in wanted if name not in MODULES]
    if unknown:
        fail(f"no benchmark is called {unknown[0]}; there are {', '.join(MODULES)}")
    if json_path is not None and len(wanted) > 1:
        fail("--json takes one benchmark")
    for name in wanted:
        run_benchmark(name, json_path, console=console)
