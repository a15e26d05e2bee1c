"""All benchmarks by name, and how one is run."""

import importlib
from pathlib import Path
from typing import Protocol, cast

from rich.console import Console

from benchmarks.report import Options, Result, show, write

RESULTS = Path("benchmarks/results")

MODULES = {
    "accuracy": "benchmarks.accuracy",
    "batch": "benchmarks.batch",
    "catalog": "benchmarks.catalog_report",
    "credits": "benchmarks.credits",
    "decode": "benchmarks.decode",
    "gpu-embed": "benchmarks.gpu_embed",
    "handoff": "benchmarks.handoff",
    "identify": "benchmarks.identify",
    "identify_latency": "benchmarks.identify_latency",
    "identify_peers": "benchmarks.identify_peers",
    "identify_scale": "benchmarks.identify_scale",
    "invariance": "benchmarks.invariance",
    "lookup": "benchmarks.lookup",
}
"""Benchmark name to its module; modules are imported only when they run."""


class Benchmark(Protocol):
    """What a module of this package offers."""

    NAME: str

    def run(self, options: Options) -> Result:
        """Measure."""
        ...


def run_benchmark(
    name: str,
    json_path: Path | None = None,
    options: Options | None = None,
    console: Console | None = None,
) -> Result:
    """Run a benchmark, print its table and write its result and plot.

    Args:
        name: A key of `MODULES`.
        json_path: Result file; ``benchmarks/results/NAME.json`` when None. The plot lies beside it.
        options: How thoroughly.
        console: Where the table goes.

    Raises:
        KeyError: There is no such benchmark.
    """
    module = cast("Benchmark", importlib.import_module(MODULES[name]))
    result = module.run(options or Options())
    show(result, console or Console())
    if json_path is not None or not result.skipped:  # keeps the figures of a machine that could
        write(result, json_path or RESULTS / f"{name}.json")
    return result
