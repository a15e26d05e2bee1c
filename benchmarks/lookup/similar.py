"""Similar tracks among a million: recall of the exact results, latency, with and without filters.

Each search runs as in the service, from the seed's own vector to the reasons. The vectors are
random (`benchmarks.lookup.manifold`); tracks go straight into the view, since
`benchmarks.lookup.library` measures how they get there. The searches alternate with a bare Lance
query for the same vector.
"""

import statistics
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.lookup.manifold import Manifold
from benchmarks.lookup.manifold import Vectors as Drawn
from benchmarks.report import Options, Result, Target
from pipelines.analysis.tonality.notes import CAMELOT
from serve_app.domain.identity import TrackIdentity, to_json
from serve_app.library.dataset import FRAGMENT_ROWS
from serve_app.library.library import Library
from serve_app.library.nearest import N_PROBES, n_compared
from serve_app.library.query import TrackQuery, tag_term
from serve_app.library.rows import model_term
from serve_app.library.track import OPERATOR, Analysis, LibraryTrack, pack
from serve_app.services.similar.neighbours import LibraryNeighbours
from serve_app.services.similar.search import Search
from serve_app.services.similar.wanted import Seed, Wanted
from serve_app.services.simulation.features import simulated_features

NAME = "similar"
MODEL, REVISION = "bench", 1
N_TRACKS, N_QUICK = 1_000_000, 20_000
N_QUERIES, N_WARM = 120, 20
N_FRESH = 5_000
"""Tracks added since the index was made."""

N = 10
OWNER = "account"
BARE, FRESH = "bare query of Lance", f"all, {N_FRESH:,} of them not in the index"

RECALL, P95_MS = 0.95, 30.0


@dataclass(frozen=True, slots=True)
class Filter:
    """A query's filter, and the numbers of the tracks that match it."""

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
    """The nearest of all vectors seen, for each query and filter, except the query's own.

    Attributes:
        asked: The numbers of the query tracks.
    """

    asked: np.ndarray
    queries: Drawn
    best: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def see(self, numbers: np.ndarray, vectors: Drawn) -> None:
        """Compare some vectors with all queries."""
        scores = self.queries @ vectors.T
        scores[self.asked[:, None] == numbers] = -2
        for name, one in FILTERS.items():
            meets = one.meets(numbers)
            self._keep(name, scores[:, meets], numbers[meets])

    def _keep(self, name: str, scores: np.ndarray, numbers: np.ndarray) -> None:
        rows = np.broadcast_to(numbers, scores.shape)
        if name in self.best:
            scores = np.concatenate([self.best[name][0], scores], axis=1)
            rows = np.concatenate([self.best[name][1], rows], axis=1)
        few = np.argpartition(-scores, min(N, scores.shape[1] - 1), axis=1)[:, :N]
        scores, rows = (np.take_along_axis(one, few, axis=1) for one in (scores, rows))
        order = np.argsort(-scores, axis=1)
        self.best[name] = (
            np.take_along_axis(scores, order, axis=1),
            np.take_along_axis(rows, order, axis=1),
        )


def track_id(number: int) -> str:
    """Return the id of a track."""
    return f"trk_{number:026d}"


def view_rows(numbers: np.ndarray) -> Iterator[dict[str, object]]:
    """Yield analysed tracks in the form that the view accepts."""
    keys = [name for pair in CAMELOT for name in pair]
    heard = simulated_features(NAME).outline()
    analysis = Analysis(heard, NAME, datetime.now(UTC))
    who = TrackIdentity(artist="Band", title="Song 0")
    first = LibraryTrack(
        track_id(0), who, analysis=analysis, embeddings=(MODEL,), revision=REVISION
    )
    text = zlib.decompress(pack(first))
    for number in numbers.tolist():
        own = text.replace(track_id(0).encode(), track_id(number).encode())
        title = f"Song {number}"
        yield {
            "track_id": track_id(number),
            "owner": OPERATOR,
            "revision": REVISION,
            "write_id": "",
            "identity": to_json(TrackIdentity(artist="Band", title=title)),
            "record": zlib.compress(own.replace(b"Song 0", title.encode()), level=1),
            "terms": [model_term(MODEL), *([tag_term("rare")] if number % 1000 == 7 else [])],
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
    """A filled library, and how long filling took."""

    library: Library
    exact: Exact
    index_s: float
    size_bytes: int


def fill(folder: Path, n_tracks: int) -> Scene:
    """Store vectors and tracks, index them, and find the exact results."""
    manifold = Manifold()
    library = Library((folder / "shared").as_uri(), folder)
    asked = np.arange(N_QUERIES) * (FRAGMENT_ROWS // N_QUERIES)
    exact = Exact(asked, manifold.draw(FRAGMENT_ROWS, 0)[asked])
    for start in range(0, n_tracks, FRAGMENT_ROWS):
        numbers = np.arange(start, start + FRAGMENT_ROWS)
        add(library, exact, numbers, manifold.draw(FRAGMENT_ROWS, start))
    began = time.perf_counter()
    library.vectors(MODEL).maintain()
    index_s = time.perf_counter() - began
    size = sum(path.stat().st_size for path in (folder / "shared").rglob("*") if path.is_file())
    return Scene(library, exact, index_s, size)


def add(library: Library, exact: Exact, numbers: np.ndarray, vectors: Drawn) -> None:
    """Store some tracks."""
    exact.see(numbers, vectors)
    names = map(track_id, numbers.tolist())
    owners = [OPERATOR] * len(numbers)
    library.vectors(MODEL).put(dict(zip(names, vectors, strict=True)), owners)
    library._view.take_in(int(numbers[0]), view_rows(numbers))


@dataclass(slots=True)
class Taken:
    """The durations and recall of searches."""

    ms: list[float] = field(default_factory=list)
    processor_ms: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)

    def note(self, search: Callable[[], set[str]], expected: set[str]) -> None:
        """Time a search."""
        began, had = time.perf_counter(), time.process_time()
        found = search()
        self.ms.append(1000 * (time.perf_counter() - began))
        self.processor_ms.append(1000 * (time.process_time() - had))
        self.recalls.append(len(expected & found) / len(expected))

    def figures(self) -> dict[str, float]:
        """Return recall, medians and 95th percentiles in milliseconds, with all data in memory."""
        return {
            "recall_at_10": round(statistics.fmean(self.recalls), 4),
            **{
                f"{what}p{q}_ms": round(float(np.percentile(took[N_WARM:], q)), 2)
                for what, took in (("", self.ms), ("processor_", self.processor_ms))
                for q in (50, 95)
            },
        }


def measure(scene: Scene) -> dict[str, dict[str, float]]:
    """Search for every query under every filter, alternating with a bare Lance query."""
    taken = defaultdict[str, Taken](Taken)
    search = Search(LibraryNeighbours(scene.library))
    queries = [one.query for one in FILTERS.values()]
    for at in range(N_QUERIES):
        for name, query in zip(FILTERS, queries, strict=True):
            taken[name].note(partial(searched, scene, search, at, query), expected(scene, name, at))
        taken[BARE].note(partial(bare, scene, at), expected(scene, "all", at))
    newest = np.arange(N_FRESH) + 1_000_000_000
    add(scene.library, scene.exact, newest, Manifold().draw(N_FRESH, int(newest[0])))
    for at in range(N_QUERIES):
        found = partial(searched, scene, search, at, TrackQuery())
        taken[FRESH].note(found, expected(scene, "all", at))
    return {name: one.figures() for name, one in taken.items()}


def searched(scene: Scene, search: Search, at: int, query: TrackQuery) -> set[str]:
    """Search as the service does, around a track."""
    seed = scene.library.get(track_id(int(scene.exact.asked[at])))
    if seed is None:
        raise LookupError("the view lost a track")
    wanted = Wanted(N, [Seed(track=seed.track_id)], query=query)
    return {one.track.track_id for one in search.similar(OWNER, wanted, [seed])[1]}


def bare(scene: Scene, at: int) -> set[str]:
    """Let Lance find and compare as many, and nothing else."""
    found = scene.library.vectors(MODEL).read(
        columns=["track_id", "_distance"],
        nearest={
            "column": "vector",
            "q": scene.exact.queries[at],
            "k": N + 1,
            "metric": "cosine",
            "nprobes": N_PROBES,
            "refine_factor": n_compared(N) // N,
        },
    )
    return set(found["track_id"].to_pylist())


def expected(scene: Scene, name: str, at: int) -> set[str]:
    """Return the exact results."""
    return {track_id(int(row)) for row in scene.exact.best[name][1][at]}


def run(options: Options) -> Result:
    """Measure."""
    n_tracks = N_QUICK if options.is_quick else N_TRACKS
    with tempfile.TemporaryDirectory(prefix="afa-similar-") as folder:
        scene = fill(Path(folder), n_tracks)
        figures = measure(scene)
        scene.library.close()
    everything = figures["all"]
    return Result(
        NAME,
        {
            "tracks": n_tracks,
            "queries": N_QUERIES - N_WARM,
            "index_s": round(scene.index_s, 1),
            "size_bytes": scene.size_bytes,
            "of_a_bare_query": round(everything["p50_ms"] / figures[BARE]["p50_ms"], 2),
            "searches": figures,
        },
        ["search", *everything],
        [[name, *one.values()] for name, one in figures.items()],
        [
            Target("recall@10", everything["recall_at_10"], RECALL),
            Target("p95 ms", everything["p95_ms"], P95_MS, at_least=False),
        ],
    )
