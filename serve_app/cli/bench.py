"""`afa bench`: measure this machine against the baselines."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from serve_app.cli.environment import console, fail, writable


class ListingCommand(TyperCommand):
    """Ends its help with a line for each benchmark; they are read only if help is requested."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        self.epilog = "\n\n".join(["Benchmarks:", *listing()])
        super().format_help(ctx, formatter)


def listing() -> list[str]:
    """Return a line for every benchmark."""
    from benchmarks.registry import MODULES, summary_of

    return [f"{name}: {summary_of(name)}" for name in MODULES]


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Benchmarks to run; all if none is named."),
    ] = None,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", callback=writable, help="Result file, if one benchmark is named."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved repetitions.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Quick check: two rounds; no result file except --json.")
    ] = False,
    dry: Annotated[
        bool,
        typer.Option("--dry", help="Only check that the GPU benchmarks run: small, on the CPU."),
    ] = False,
) -> None:
    """Run benchmarks; each prints a table and writes JSON and a plot to benchmarks/results."""
    from benchmarks.registry import MODULES, run_benchmark
    from benchmarks.report import Options

    wanted = names or list(MODULES)
    unknown = [name for name in wanted if name not in MODULES]
    if unknown:
        fail(f"no benchmark is called {unknown[0]}; there are {', '.join(MODULES)}")
    if json_path is not None and len(wanted) > 1:
        fail("--json takes one benchmark")
    options = Options(min(rounds, 2) if quick else rounds, is_quick=quick, is_dry=dry)
    outcomes: dict[str, str] = {}
    for name in wanted:
        try:
            outcomes[name] = verdict(run_benchmark(name, json_path, options, console))
        except Exception as error:
            if len(wanted) == 1:
                raise
            outcomes[name] = f"FAILED: {error!r}"  # go on with the others
            console.print(f"{name}: {outcomes[name]}")
    if len(wanted) > 1:
        for name, outcome in outcomes.items():
            console.print(f"{name:18} {outcome}")
    if any(outcome.startswith("FAILED") for outcome in outcomes.values()):
        raise typer.Exit(1)


def verdict(result: Any) -> str:
    """Return in one line how a benchmark ended."""
    if result.skipped:
        return f"skipped, {result.skipped}"
    missed = [target.name for target in result.targets if not target.is_met]
    return f"missed: {', '.join(missed)}" if missed else "all targets met"
