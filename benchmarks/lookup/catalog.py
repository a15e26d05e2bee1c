"""Time and memory of catalog look-ups over synthetic tracks.

Run as ``python -m benchmarks.lookup.catalog``.
"""

import argparse
import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.synthetic_tracks import write_synthetic
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.catalog.build import build_catalog
from serve_app.providers.catalog.search import Catalog

RESULTS = Path("benchmarks/results")
RECORDED_TRACKS = 10_000_000
"""The size whose result is ``catalog.json``; the file names of others include their size."""


def percentiles(call: Callable[[int], bool], n: int) -> dict[str, float]:
    """Latency in µs of ``call(0) … call(n - 1)``, and the share that found what they should."""
    times, n_found = [], 0
    for i in range(n):
        began = time.perf_counter()
        found = call(i)
        times.append((time.perf_counter() - began) * 1e6)
        n_found += found
    p50, p99 = np.percentile(times, [50, 99]).tolist()
    return {"p50_us": round(p50, 1), "p99_us": round(p99, 1), "found": round(n_found / n, 4)}


def misspell(text: str, rng: np.random.Generator) -> str:
    """Replace one letter of the longest word."""
    word = max(text.split(), key=len)
    place = int(rng.integers(0, len(word)))
    other = "x" if word[place] != "x" else "z"
    return text.replace(word, word[:place] + other + word[place + 1 :], 1)


def memory_mib(field: str) -> float:
    """Return a field of this process's memory statistics, in MiB."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def measure(catalog: Catalog, samples: list[dict[str, object]]) -> dict[str, object]:
    """Time each kind of look-up on tracks in the catalog."""
    rng = np.random.default_rng(1)

    def by(platform: Platform, column: str) -> Callable[[int], bool]:
        ids = [TrackId(platform, str(row[column])) for row in samples]

        def call(i: int) -> bool:
            found = catalog.by_id(ids[i])
            return found is not None and found.mbid == samples[i]["mbid"]

        return call

    def named(spell: Callable[[str], str]) -> Callable[[int], bool]:
        asked = [(str(row["artist"]), spell(str(row["title"]))) for row in samples]

        def call(i: int) -> bool:
            matches = catalog.find(*asked[i], limit=10)
            return any(match.identity.title == samples[i]["title"] for match in matches)

        return call

    def batch(i: int) -> bool:
        picked = [samples[(i * 100 + n) % len(samples)] for n in range(100)]
        ids = [TrackId(Platform.SPOTIFY, str(row["spotify_id"])) for row in picked]
        return all(catalog.by_id(track_id) is not None for track_id in ids)

    n = len(samples)
    return {
        "by_mbid_first_touch": percentiles(by(Platform.MBID, "mbid"), n),
        "by_mbid": percentiles(by(Platform.MBID, "mbid"), n),
        "by_isrc": percentiles(by(Platform.ISRC, "isrc"), n),
        "by_spotify_id": percentiles(by(Platform.SPOTIFY, "spotify_id"), n),
        "batch_of_100_spotify_ids": percentiles(batch, 50),
        "unknown_id": percentiles(
            lambda i: catalog.by_id(TrackId(Platform.DEEZER, str(7 + i))) is None, n
        ),
        "by_name": percentiles(named(str.upper), n),
        "by_misspelt_name": percentiles(named(lambda title: misspell(title, rng)), min(n, 500)),
        "unknown_name": percentiles(lambda i: not catalog.find("zzyzx qwrtp", f"xqj {i}"), 500),
    }


def run(n_tracks: int, folder: Path, n_samples: int = 2000) -> dict[str, object]:
    """Build a synthetic catalog in ``folder`` and measure it."""
    console = Console(stderr=True)
    folder.mkdir(parents=True, exist_ok=True)
    parquet, index = folder / "synthetic.parquet", folder / "catalog"
    if not parquet.exists() or pq.ParquetFile(parquet).metadata.num_rows != n_tracks:
        console.print(f"writing {n_tracks:,} synthetic tracks")
        write_synthetic(parquet, n_tracks)
    with Progress(console=console) as bar:
        task = bar.add_task("importing", total=n_tracks)
        report = build_catalog(
            [parquet],
            index,
            lambda step, done, _: bar.update(task, description=step, completed=done),
        )
    private_before = memory_mib("Pss_Anon")
    catalog = Catalog.open(index)
    file = pq.ParquetFile(parquet)
    rows = file.read_row_group(file.num_row_groups // 2).to_pylist()
    picked = np.random.default_rng(2).choice(len(rows), min(n_samples, len(rows)), replace=False)
    lookups = measure(catalog, [rows[i] for i in picked])
    version = (index / "current").resolve()
    index_bytes = sum(path.stat().st_size for path in version.iterdir())
    return {
        "benchmark": "catalog",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "n_tracks": catalog.n_tracks,
        "import_s": round(report.duration_s, 1),
        "import_rows_per_s": round(report.n_rows / report.duration_s),
        "parquet_mib": round(parquet.stat().st_size / 2**20, 1),
        "index_mib": round(index_bytes / 2**20, 1),
        "private_memory_before_mib": private_before,
        "private_memory_after_mib": memory_mib("Pss_Anon"),
        "mapped_and_touched_mib": memory_mib("Pss_File"),
        "lookups": lookups,
    }


def variant_of(n_tracks: int) -> str:
    """Return a size's part of the file name; "" for the recorded one."""
    return "" if n_tracks == RECORDED_TRACKS else str(n_tracks)


def main() -> None:
    """Run from the command line and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracks", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(".afa/bench/catalog"))
    parser.add_argument("--keep", action="store_true", help="keep the synthetic catalog")
    given = parser.parse_args()
    result = run(given.tracks, given.folder)
    RESULTS.mkdir(parents=True, exist_ok=True)
    variant = variant_of(given.tracks)
    path = RESULTS / f"catalog{variant and '-'}{variant}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    Console().print_json(data=result)
    if not given.keep:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
