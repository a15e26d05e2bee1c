"""All benchmarks by name, and how one is run."""

import ast
import importlib
import importlib.util
from pathlib import Path
from typing import Protocol, cast

from rich.console import Console

from benchmarks.report import Options, Result, show, write

RESULTS = Path("benchmarks/results")

MODULES = {
    "accuracy": "benchmarks.accuracy.rhythm_and_key",
    "attributes": "benchmarks.attributes.attributes",
    "batch": "benchmarks.serving.batch",
    "bpm": "benchmarks.bpm.speed",
    "catalog": "benchmarks.lookup.catalog_report",
    "chords": "benchmarks.accuracy.chords",
    "cost": "benchmarks.cost.stages",
    "cpu-embed": "benchmarks.gpu.cpu_embed",
    "credits": "benchmarks.lookup.credits",
    "decode": "benchmarks.bpm.decode",
    "embedding": "benchmarks.embedding.embedding",
    "gpu-analysis": "benchmarks.gpu.analysis",
    "gpu-e2e": "benchmarks.gpu.end_to_end",
    "gpu-embed": "benchmarks.gpu.embed",
    "gpu-frontends": "benchmarks.gpu.frontends",
    "gpu-serve": "benchmarks.gpu.service",
    "handoff": "benchmarks.serving.handoff",
    "hop": "benchmarks.hop.hop",
    "identify": "benchmarks.identify.clips",
    "identify_latency": "benchmarks.identify.latency",
    "identify_peers": "benchmarks.identify.peers",
    "identify_scale": "benchmarks.identify.scale",
    "invariance": "benchmarks.gpu.invariance",
    "library": "benchmarks.lookup.library",
    "lookup": "benchmarks.lookup.hit",
    "metronomes": "benchmarks.accuracy.metronomes",
    "overload": "benchmarks.overload.overload",
    "partial": "benchmarks.accuracy.partial",
    "restore": "benchmarks.lookup.restore",
    "scaling": "benchmarks.serving.scaling",
    "scan": "benchmarks.lookup.scan",
    "similar": "benchmarks.lookup.similar",
    "upload": "benchmarks.serving.upload",
}
"""Benchmark name → its module; modules are imported only when they run."""


class Benchmark(Protocol):
    """What a module of this package offers."""

    NAME: str

    def run(self, options: Options) -> Result:
        """Measure."""
        ...


def summary_of(name: str) -> str:
    """Return the first paragraph of a benchmark module's docstring, without importing it.

    Raises:
        KeyError: There is no such benchmark.
    """
    spec = importlib.util.find_spec(MODULES[name])
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def run_benchmark(
    name: str,
    json_path: Path | None = None,
    options: Options | None = None,
    console: Console | None = None,
) -> Result:
    """Run a benchmark, print its table and write its result and plot.

    Args:
        name: A key of `MODULES`.
        json_path: Result file; ``benchmarks/results/NAME.json`` if None, but a quick, dry or
            skipped run writes nothing there and keeps the existing figures. The plot is next to it.
        options: How thoroughly to measure.
        console: Where the table goes.

    Raises:
        KeyError: There is no such benchmark.
    """
    options = options or Options()
    module = cast("Benchmark", importlib.import_module(MODULES[name]))
    result = module.run(options)
    show(result, console or Console())
    is_kept = not (result.skipped or options.is_quick or options.is_dry)
    if json_path is None and is_kept:
        json_path = RESULTS / f"{name}{result.variant and '-'}{result.variant}.json"
    if json_path is not None:
        write(result, json_path)
    return result
