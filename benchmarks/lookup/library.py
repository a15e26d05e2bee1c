"""Time of the library's look-ups, listings and writes over a million synthetic tracks.

The rows have identities but no analysis, which is stored apart from what look-ups read.
``$AFA_BENCH_CATALOG`` may name the folder of a large catalog: its tracks are then looked up too,
in the library first, as in the service.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import tantivy

from benchmarks.harness.synthetic_tracks import write_synthetic
from benchmarks.lookup.catalog import misspell, percentiles
from benchmarks.report import Options, Result, Target
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.library.edit import Edit, added
from serve_app.library.library import Library
from serve_app.library.query import TrackQuery
from serve_app.library.track import OPERATOR, LibraryTrack, new_track_id
from serve_app.providers.catalog.index import CURRENT, identities_between
from serve_app.providers.catalog.rows import parse_row
from serve_app.providers.catalog.search import Catalog

NAME = "library"
N_TRACKS, N_QUICK = 1_000_000, 5_000
TOGETHER = 10_000
N_SAMPLES = 2_000
EVERYBODY = (OPERATOR,)


def run(options: Options) -> Result:
    """Fill a library, and measure it."""
    n_tracks = N_QUICK if options.is_quick else N_TRACKS
    with TemporaryDirectory(prefix="afa-library-") as folder:
        return measure(Path(folder), n_tracks, "" if n_tracks == N_TRACKS else str(n_tracks))


def measure(folder: Path, n_tracks: int, variant: str) -> Result:
    """Fill a library in a folder, and measure it."""
    library = Library((folder / "shared").as_uri(), folder / "view")
    filling = time.perf_counter()
    samples: list[TrackIdentity] = []
    rng = np.random.default_rng(1)
    for identities in synthetic(folder, n_tracks):
        library.write([adding(identity) for identity in identities])
        samples += [identities[i] for i in rng.integers(0, len(identities), 20)]
    library.maintain()
    filling = time.perf_counter() - filling
    picked = [samples[i] for i in rng.integers(0, len(samples), N_SAMPLES)]
    fresh = time.perf_counter()
    second = Library((folder / "shared").as_uri(), folder / "second view")
    second.follow()
    fresh = time.perf_counter() - fresh
    second.close()
    found = {
        "by ISRC": percentiles(
            lambda i: bool(library.by_id(isrc(picked[i]), EVERYBODY)), N_SAMPLES
        ),
        "unknown id": percentiles(
            lambda i: not library.by_id(TrackId(Platform.DEEZER, str(7 + i)), EVERYBODY), N_SAMPLES
        ),
        "by name": percentiles(named(library, picked, str.upper), N_SAMPLES),
        "by misspelt name": percentiles(
            named(library, picked, lambda title: misspell(title, rng)), 500
        ),
        "newest 50": percentiles(lambda _: listed(library, TrackQuery()), 200),
        "50 by year and word": percentiles(
            lambda i: listed(library, TrackQuery(year_min=1900, text=first_word(picked[i]))), 200
        ),
        "write of one": percentiles(writing(library, 1), 100),
        "write of ten": percentiles(writing(library, 10), 50),
    }
    n_catalog = 0
    if folder_of_catalog := os.environ.get("AFA_BENCH_CATALOG"):
        n_catalog, beside = beside_catalog(library, Path(folder_of_catalog), picked)
        found |= beside
    library.close()
    sizes = {name: mib(folder / name) for name in ("shared", "view")}
    return Result(
        NAME,
        values={
            "tracks": n_tracks,
            "catalog_tracks": n_catalog,
            "filling_s": round(filling, 1),
            "fresh_view_s": round(fresh, 1),
            "mib": sizes,
            "found": found,
        },
        columns=("what", "p50 ms", "p99 ms", "found"),
        rows=[
            (what, one["p50_us"] / 1000, one["p99_us"] / 1000, one["found"])
            for what, one in found.items()
        ],
        targets=[
            Target("by ISRC, p99 ms", found["by ISRC"]["p99_us"] / 1000, 1.0, at_least=False),
            Target("by name, p99 ms", found["by name"]["p99_us"] / 1000, 10.0, at_least=False),
        ],
        variant=variant,
    )


def synthetic(folder: Path, n_tracks: int) -> Iterator[list[TrackIdentity]]:
    """Yield synthetic identities, some thousands at a time."""
    parquet = folder / "synthetic.parquet"
    write_synthetic(parquet, n_tracks)
    for batch in pq.ParquetFile(parquet).iter_batches(TOGETHER):
        yield [parse_row(row, folder) for row in batch.to_pylist()]
    parquet.unlink()


def adding(identity: TrackIdentity) -> Edit:
    """Return the edit that adds a track."""
    track = LibraryTrack(new_track_id(), identity)
    return Edit(track.track_id, added(track))


def beside_catalog(
    library: Library, folder: Path, picked: list[TrackIdentity]
) -> tuple[int, dict[str, dict[str, float]]]:
    """Look up tracks of both: in the library, and if they are not there, in the catalog.

    Returns:
        The number of tracks in the catalog, and the times.
    """
    catalog = Catalog.open(folder)
    n_tracks = catalog.n_tracks
    searcher = tantivy.Index.open(str((folder / CURRENT).resolve())).searcher()
    n = min(N_SAMPLES, n_tracks)
    rows = np.random.default_rng(2).choice(n_tracks, n, replace=False).tolist()
    listed = [one for row in rows for one in identities_between(searcher, row, row)]

    def by(track_id: TrackId) -> bool:
        return bool(library.by_id(track_id, EVERYBODY) or catalog.by_id(track_id))

    def by_name(who: TrackIdentity) -> bool:
        title = who.title.upper()
        return bool(
            library.named(who.artist, title, EVERYBODY) or catalog.find_exact(who.artist, title)
        )

    mbids = [TrackId(Platform.MBID, one.mbid or "") for one in listed]
    spotify_ids = [TrackId(Platform.SPOTIFY, one.spotify_id or "") for one in listed]
    ways: dict[str, Callable[[int], bool]] = {
        "by MBID": lambda i: by(mbids[i]),
        "by Spotify id": lambda i: by(spotify_ids[i]),
        "by name": lambda i: by_name(listed[i]),
    }
    found = {
        f"catalog beside it: {way}{passed}": percentiles(call, n)
        for way, call in ways.items()
        for passed in (", first touch", "")
    }
    found["catalog beside it: by ISRC, in the library"] = percentiles(
        lambda i: by(isrc(picked[i])), N_SAMPLES
    )
    return n_tracks, found


def isrc(identity: TrackIdentity) -> TrackId:
    """Return the ISRC."""
    return TrackId(Platform.ISRC, identity.isrc or "")


def named(
    library: Library, picked: list[TrackIdentity], spell: Callable[[str], str]
) -> Callable[[int], bool]:
    """Look up by artist and title."""

    def call(i: int) -> bool:
        who = picked[i]
        hits = library.named(who.artist, spell(who.title), EVERYBODY)
        return any(hit.identity.title == who.title for hit in hits)

    return call


def listed(library: Library, query: TrackQuery) -> bool:
    """List a page."""
    return bool(library.page(query, EVERYBODY, 50).items)


def first_word(identity: TrackIdentity) -> str:
    """Return the first word of the title."""
    return identity.title.split()[0]


def writing(library: Library, n: int) -> Callable[[int], bool]:
    """Write new tracks, ``n`` together."""

    def call(i: int) -> bool:
        new = [TrackIdentity(artist=f"Writer {i}", title=f"Song {n}") for n in range(n)]
        return all(library.write([adding(identity) for identity in new]))

    return call


def mib(folder: Path) -> float:
    """Return the size of a folder's content."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return round(sum(sizes) / 2**20, 1)
