"""Similar tracks among a million: recall of exact comparison and latency, with filters and without.

The vectors are drawn (`benchmarks.lookup.manifold`); the store, its index and the view are the
library's own. A comparison of 20,000 vectors one by one is timed between the searches.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.lookup.manifold import Manifold
from benchmarks.lookup.manifold import Vectors as Drawn
from benchmarks.report import Options, Result, Target
from pipelines.analysis.notes import CAMELOT
from serve_app.domain.identity import TrackIdentity, to_json
from serve_app.library.dataset import FRAGMENT_ROWS
from serve_app.library.nearest import nearest
from serve_app.library.place import LibraryPlace
from serve_app.library.query import TrackQuery, tag_term
from serve_app.library.track import OPERATOR
from serve_app.library.vectors import Vectors
from serve_app.library.view import View

NAME = "similar"
N_TRACKS, N_QUICK = 1_000_000, 20_000
N_QUERIES, N_WARM = 100, 20
N = 10
N_BARE = 20_000
QUERY_SEED = 987_654_321
OWNERS = ("account", OPERATOR)

RECALL, P95_MS = 0.95, 30.0


@dataclass(frozen=True, slots=True)
class Filter:
    """What is asked for, and which numbers of tracks meet it."""

    query: TrackQuery
    meets: Callable[[np.ndarray], np.ndarray]


FILTERS: Mapping[str, Filter] = {
    "all": Filter(TrackQuery(), lambda n: n >= 0),
    "tempo, 1 of 10": Filter(
        TrackQuery(tempo_min=100, tempo_max=111.5), lambda n: (n % 120 >= 40) & (n % 120 <= 51)
    ),
    "compatible keys, 1 of 6": Filter(
        TrackQuery(keys=["8A", "8B", "9A", "7A"]),
        lambda n: np.isin(n % 24, [18, 1, 8, 4]),
    ),
    "year and tempo, 1 of 100": Filter(
        TrackQuery(tempo_min=100, tempo_max=111.5, year_min=1970, year_max=1974),
        lambda n: (n % 120 >= 40) & (n % 120 <= 51) & (n // 120 % 50 >= 10) & (n // 120 % 50 <= 14),
    ),
    "tag, 1 of 1,000": Filter(TrackQuery(tags=["rare"]), lambda n: n % 1000 == 7),
}


@dataclass(slots=True)
class Exact:
    """The nearest of all vectors that were seen, for each query and filter."""

    queries: Drawn
    best: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def see(self, numbers: np.ndarray, vectors: Drawn) -> None:
        """Compare some vectors with all queries."""
        scores = self.queries @ vectors.T
        for name, one in FILTERS.items():
            meets = one.meets(numbers)
            self._keep(name, scores[:, meets], numbers[meets])

    def _keep(self, name: str, scores: np.ndarray, numbers: np.ndarray) -> None:
        rows = np.broadcast_to(numbers, scores.shape)
        if name in self.best:
            scores = np.concatenate([self.best[name][0], scores], axis=1)
            rows = np.concatenate([self.best[name][1], rows], axis=1)
        order = np.argsort(-scores, axis=1)[:, :N]
        self.best[name] = (
            np.take_along_axis(scores, order, axis=1),
            np.take_along_axis(rows, order, axis=1),
        )


def track_id(number: int) -> str:
    """Give the id of a track."""
    return f"trk_{number:026d}"


def view_rows(numbers: np.ndarray) -> Iterator[dict[str, object]]:
    """Give tracks as the view takes them in."""
    keys = [name for pair in CAMELOT for name in pair]
    for number in numbers.tolist():
        title = f"Song {number}"
        yield {
            "track_id": track_id(number),
            "owner": OPERATOR,
            "revision": 1,
            "write_id": "",
            "identity": to_json(TrackIdentity(artist="Band", title=title)),
            "record": b"",
            "terms": [tag_term("rare")] if number % 1000 == 7 else [],
            "tags": [],
            "artist": "Band",
            "title": title,
            "album": None,
            "tempo": 60.0 + number % 120,
            "camelot": keys[number % 24],
            "year": 1960 + number // 120 % 50,
        }


@dataclass(frozen=True, slots=True)
class Scene:
    """A filled store, and how long that took."""

    vectors: Vectors
    view: View
    exact: Exact
    bare: Drawn
    index_s: float
    size_bytes: int


def fill(folder: Path, n_tracks: int) -> Scene:
    """Store vectors and tracks, index them, and find what exact comparison finds."""
    manifold = Manifold()
    vectors = Vectors(LibraryPlace.parse((folder / "shared").as_uri()), "bench")
    view = View(folder / "view.sqlite")
    exact = Exact(manifold.draw(N_QUERIES, QUERY_SEED))
    for start in range(0, n_tracks, FRAGMENT_ROWS):
        numbers = np.arange(start, start + FRAGMENT_ROWS)
        drawn = manifold.draw(FRAGMENT_ROWS, start)
        exact.see(numbers, drawn)
        names = map(track_id, numbers.tolist())
        vectors.put(dict(zip(names, drawn, strict=True)), [OPERATOR] * FRAGMENT_ROWS)
        view.take_in(start, view_rows(numbers))
    began = time.perf_counter()
    vectors.maintain()
    index_s = time.perf_counter() - began
    size = sum(path.stat().st_size for path in (folder / "shared").rglob("*") if path.is_file())
    return Scene(vectors, view, exact, drawn[:N_BARE], index_s, size)


def measure(scene: Scene) -> dict[str, dict[str, float]]:
    """Search for every query under every filter, with a bare comparison between."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in FILTERS}
    bare: list[float] = []
    for number, query in enumerate(scene.exact.queries):
        began = time.perf_counter()
        np.argpartition(scene.bare @ query, -N)
        bare.append(1000 * (time.perf_counter() - began))
        for name, one in FILTERS.items():
            began = time.perf_counter()
            near = nearest(scene.vectors, scene.view, query.tolist(), N, OWNERS, one.query)
            took = 1000 * (time.perf_counter() - began)
            expected = {track_id(int(row)) for row in scene.exact.best[name][1][number]}
            hits = len(expected & {track.track_id for track in near}) / len(expected)
            found[name][0].append(took)
            found[name][1].append(hits)
    figures = {
        name: {"recall_at_10": statistics.fmean(hits)} | quantiles(took[N_WARM:])
        for name, (took, hits) in found.items()
    }
    return figures | {"bare comparison of 20,000": quantiles(bare[N_WARM:])}


def quantiles(took: list[float]) -> dict[str, float]:
    """Give median and 95th percentile in milliseconds."""
    return {
        "p50_ms": round(float(np.percentile(took, 50)), 2),
        "p95_ms": round(float(np.percentile(took, 95)), 2),
    }


def run(options: Options) -> Result:
    """Measure."""
    n_tracks = N_QUICK if options.is_quick else N_TRACKS
    with tempfile.TemporaryDirectory() as folder:
        scene = fill(Path(folder), n_tracks)
        figures = measure(scene)
        scene.view.close()
    return Result(
        NAME,
        {
            "tracks": n_tracks,
            "queries": N_QUERIES - N_WARM,
            "index_s": round(scene.index_s, 1),
            "size_bytes": scene.size_bytes,
            "searches": figures,
        },
        ["search", "recall@10", "p50 ms", "p95 ms"],
        [
            [name, one.get("recall_at_10", "-"), one["p50_ms"], one["p95_ms"]]
            for name, one in figures.items()
        ],
        [
            Target("recall@10", figures["all"]["recall_at_10"], RECALL),
            Target("p95 ms", figures["all"]["p95_ms"], P95_MS, at_least=False),
        ],
    )
