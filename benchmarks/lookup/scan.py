"""Scan: how fast `afa scan` brings files into a library, against a bare loop over the same files.

The bare loop decodes and analyses, and keeps nothing. Both use the same worker processes, which
have already loaded the networks, and take turns on parts of the folder; every part gets its own
library, so that none of it is known. The folder is ``$AFA_SCAN_MUSIC``.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.report import Options, Result, Target
from pipelines.audio.decode import decode
from serve_app.cli.analysis.loaded import loaded
from serve_app.cli.library.workers import WorkersEngine
from serve_app.library.library import Library
from serve_app.providers.catalog.search import Catalog
from serve_app.services.scan.facts import LIMITS
from serve_app.services.scan.landmarks import LandmarkIndex
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import AUDIO_ENDINGS, SingleFile
from serve_app.services.scan.scan import Scan

NAME = "scan"
N_FILES, N_QUICK = 200, 4
TOGETHER = 10
"""Files per turn."""

N_WORKERS = 2
LEAST_SHARE = 0.85
KINDS = ("s", "processor_s")


def files_of(folder: Path, n: int) -> list[Path]:
    """Return up to ``n`` audio files of a folder."""
    found = (one for one in sorted(folder.rglob("*")) if one.suffix.lower() in AUDIO_ENDINGS)
    return list(found)[:n]


def analysed(path: Path) -> None:
    """Decode and analyse in a worker, and keep nothing."""
    loaded().hear(decode(path, LIMITS))


async def bare(engine: WorkersEngine, files: Sequence[Path]) -> None:
    """Analyse the files."""
    todo = iter(files)

    async def take() -> None:
        for path in todo:
            await engine.run(analysed, path)

    async with asyncio.TaskGroup() as takers:
        for _ in range(engine.n_at_once):
            takers.create_task(take())


async def scanned(engine: WorkersEngine, files: Sequence[Path]) -> None:
    """Bring the files into their own library."""
    with TemporaryDirectory(prefix="afa-scan-") as name:
        folder = Path(name)
        library = Library((folder / "shared").as_uri(), folder / "view")
        naming = Naming(Catalog.open(folder / "catalog"), None)
        landmarks = LandmarkIndex(folder / "fingerprints")
        scan = Scan(library, engine, naming, landmarks, lambda *_: None)
        await scan.run([(place, list(place.find())) for place in map(SingleFile, files)])
        library.close()
        if scan.report.has_failed:
            raise RuntimeError(f"{scan.report.troubles[0]}")


def processor_s(pid: int) -> float:
    """Processor seconds of a process and all its descendants."""
    with suppress(FileNotFoundError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        below = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(one) for task in below for one in task.read_text().split()]
        own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        return own + sum(map(processor_s, children))
    return 0.0


async def measure(engine: WorkersEngine, files: Sequence[Path]) -> dict[str, list[float]]:
    """Let both take turns on every part, and alternate which begins."""
    ways: list[tuple[str, Callable[[WorkersEngine, Sequence[Path]], Awaitable[None]]]]
    ways = [("bare", bare), ("scan", scanned)]
    await bare(engine, files[: engine.n_at_once])  # every worker has its networks loaded
    found: dict[str, list[float]] = {f"{name}_{what}": [] for name, _ in ways for what in KINDS}
    for start in range(0, len(files), TOGETHER):
        part = files[start : start + TOGETHER]
        for name, way in ways:
            began_s, had_s = time.perf_counter(), processor_s(os.getpid())
            await way(engine, part)
            found[f"{name}_s"].append(time.perf_counter() - began_s)
            found[f"{name}_processor_s"].append(processor_s(os.getpid()) - had_s)
        ways.reverse()
    return found


def run(options: Options) -> Result:
    """Measure."""
    folder = os.environ.get("AFA_SCAN_MUSIC")
    if folder is None:
        return Result(NAME, skipped="AFA_SCAN_MUSIC names no folder with music")
    files = files_of(Path(folder), N_QUICK if options.is_quick else N_FILES)
    engine = WorkersEngine(N_WORKERS, None, is_partial=False)
    try:
        found = asyncio.run(measure(engine, files))
    finally:
        engine.close()
    shares = {
        kind: [a / b for a, b in zip(found[f"bare_{kind}"], found[f"scan_{kind}"], strict=True)]
        for kind in KINDS
    }
    rows = [
        (
            name,
            len(files),
            round(60 * len(files) / sum(found[f"{name}_s"]), 1),
            round(sum(found[f"{name}_processor_s"]), 1),
        )
        for name in ("bare", "scan")
    ]
    return Result(
        NAME,
        values={
            "files": len(files),
            **{name: [round(one, 2) for one in values] for name, values in found.items()},
            "share_of_rate": round(median(shares["s"]), 3),
            "share_of_rate_by_processor_time": round(median(shares["processor_s"]), 3),
        },
        columns=("way", "files", "files a minute", "processor s"),
        rows=rows,
        targets=[
            Target("rate, of the bare loop's", median(shares["s"]), LEAST_SHARE),
            Target("by processor time", median(shares["processor_s"]), LEAST_SHARE),
        ],
    )
