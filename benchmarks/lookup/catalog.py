"""Time and memory of catalog look-ups over synthetic tracks.

Run as ``python -m benchmarks.lookup.catalog``.

The synthetic names use a 200 000-word vocabulary with Zipf-like frequencies, one artist for twelve
tracks, and random identifiers, so that term dictionaries and postings are as large as real ones.
"""

import argparse
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.catalog.build import build_catalog
from serve_app.providers.catalog.search import Catalog

RESULTS = Path("benchmarks/results")
RECORDED_TRACKS = 10_000_000
"""The size whose result is the plain ``catalog.json``; others have theirs in the file name."""
CHUNK_ROWS = 100_000
N_WORDS = 200_000
TRACKS_PER_ARTIST = 12
SYLLABLES = tuple(
    "ba ko ri ta mo sel un dra pi lo ne shu gar wen tis ol ma vy qua er".split()  # noqa: SIM905
)
BASE62 = np.frombuffer(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", dtype=np.uint8
)
Strings = NDArray[np.object_]


class Names:
    """Draws artists and titles of Zipf-distributed invented words."""

    def __init__(self, rng: np.random.Generator, n_tracks: int) -> None:
        self._rng = rng
        lengths = rng.choice([1, 2, 2, 3, 3, 4], N_WORDS)
        words = ["".join(rng.choice(SYLLABLES, n)) for n in lengths]
        self._words = np.array(list(dict.fromkeys(words)), dtype=object)
        weights = 1 / np.arange(3, self._words.size + 3) ** 0.9
        self._cumulative = np.cumsum(weights / weights.sum())
        self._artists = self.draw(max(1, n_tracks // TRACKS_PER_ARTIST), 3)

    def draw(self, n: int, max_words: int) -> Strings:
        """``n`` names of one to ``max_words`` words."""
        counts = self._rng.integers(1, max_words + 1, n)
        ranks = np.searchsorted(self._cumulative, self._rng.random(int(counts.sum())))
        pieces = np.split(
            self._words[np.minimum(ranks, self._words.size - 1)], counts.cumsum()[:-1]
        )
        return np.array([" ".join(piece) for piece in pieces], dtype=object)

    def artists(self, n: int) -> Strings:
        """``n`` draws from the fixed list of artists."""
        return np.asarray(self._artists[self._rng.integers(0, self._artists.size, n)])


def random_ids(rng: np.random.Generator, n: int, length: int) -> list[str]:
    """``n`` base-62 strings whose first character is a digit up to 7."""
    letters = BASE62[rng.integers(0, 62, (n, length))]
    letters[:, 0] = ord("0") + rng.integers(0, 8, n)
    return [row.tobytes().decode() for row in letters]


def random_uuids(rng: np.random.Generator, n: int) -> list[str]:
    """``n`` version-4-like UUIDs."""
    digits = [row.tobytes().hex() for row in rng.integers(0, 256, (n, 16), dtype=np.uint8)]
    return [f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits]


def synthetic_chunks(n_tracks: int, seed: int) -> Iterator[pa.Table]:
    """Catalog tables of 100 000 rows: all have four identifiers, half of them six."""
    rng = np.random.default_rng(seed)
    names = Names(rng, n_tracks)
    for start in range(0, n_tracks, CHUNK_ROWS):
        n = min(CHUNK_ROWS, n_tracks - start)
        rows = range(start, start + n)
        youtube = random_ids(rng, n, 11)
        yield pa.table(
            {
                "artist": names.artists(n),
                "title": names.draw(n, 5),
                "mbid": random_uuids(rng, n),
                "isrc": [f"QZ{row // 10**7:03d}{row % 10**7:07d}" for row in rows],
                "spotify_id": random_ids(rng, n, 22),
                "deezer_id": [str(10**8 + 97 * row) for row in rows],
                "apple_id": [str(10**9 + 89 * row) if row % 2 else None for row in rows],
                "youtube_id": [
                    i if row % 2 else None for i, row in zip(youtube, rows, strict=True)
                ],
                "album": names.draw(n, 3),
                "year": rng.integers(1960, 2026, n).astype(np.int32),
                "duration_s": rng.integers(90_000, 400_000, n) / 1000,
            }
        )


def write_synthetic(path: Path, n_tracks: int, seed: int = 0) -> None:
    """Write the synthetic catalog as Parquet."""
    writer: pq.ParquetWriter | None = None
    for table in synthetic_chunks(n_tracks, seed):
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def percentiles(call: Callable[[int], bool], n: int) -> dict[str, float]:
    """Latency in µs of ``call(0) … call(n - 1)``, and how many of them found what they should."""
    times, n_found = [], 0
    for i in range(n):
        began = time.perf_counter()
        found = call(i)
        times.append((time.perf_counter() - began) * 1e6)
        n_found += found
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50_us": round(p50, 1), "p99_us": round(p99, 1), "found": round(n_found / n, 4)}


def misspell(text: str, rng: np.random.Generator) -> str:
    """Replace one letter of the longest word."""
    word = max(text.split(), key=len)
    place = int(rng.integers(0, len(word)))
    other = "x" if word[place] != "x" else "z"
    return text.replace(word, word[:place] + other + word[place + 1 :], 1)


def memory_mib(field: str) -> float:
    """A field of this process's memory account, in MiB."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def measure(catalog: Catalog, samples: list[dict[str, object]]) -> dict[str, object]:
    """Time each kind of look-up over tracks that are in the catalog."""
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
        report = build_catalog([parquet], index, lambda done, _: bar.update(task, completed=done))
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
    """Name a size in a file name; "" for the recorded one."""
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
