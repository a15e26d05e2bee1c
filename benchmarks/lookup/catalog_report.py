"""Catalog look-ups by id and by name over a million synthetic tracks: time and memory.

Ten million tracks, the recorded size, take most of an hour and 5 GB of disk:
``python -m benchmarks.lookup.catalog --tracks 10000000``.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from benchmarks.lookup.catalog import run as run_catalog
from benchmarks.lookup.catalog import variant_of
from benchmarks.report import Options, Result

NAME = "catalog"

N_TRACKS, QUICK_TRACKS = 1_000_000, 20_000
OF_THE_REPORT = ("benchmark", "at", "machine")
"""Fields that every result has anyway."""


def run(options: Options) -> Result:
    """Build a synthetic catalog and look tracks up in it; about four minutes, seconds if quick."""
    with tempfile.TemporaryDirectory(prefix="afa-bench-") as folder:
        n_tracks = QUICK_TRACKS if options.is_quick else N_TRACKS
        found = run_catalog(n_tracks, Path(folder))
    lookups = cast("Mapping[str, Mapping[str, float]]", found["lookups"])
    return Result(
        NAME,
        values={name: value for name, value in found.items() if name not in OF_THE_REPORT},
        columns=("look-up", "p50_us", "p99_us", "found"),
        rows=[(name, of["p50_us"], of["p99_us"], of["found"]) for name, of in lookups.items()],
        variant=variant_of(n_tracks),
    )
