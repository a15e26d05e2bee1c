"""The nearest tracks are those of an exact comparison, with or without filters and an index."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchmarks.lookup.manifold import Manifold
from serve_app.library import dataset, nearest, vectors
from serve_app.library.edit import Edit, added, removed
from serve_app.library.library import Library
from serve_app.library.query import Position, Sort, TrackQuery
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.library.view import View
from tests.library.library_setting import track

MODEL = "test-model"
N_TRACKS = 1200
OWNERS = ("acct_1", OPERATOR)


def one_of(number: int) -> LibraryTrack:
    """One in ten is another account's; tempo, key, year and tags differ."""
    owner = ("acct_2", "acct_1", *[OPERATOR] * 8)[number % 10]
    one = track(
        f"Song {number}",
        owner=owner,
        tempo=60.0 + number % 120,
        key=number % 12,
        mode=0,
        year=1960 + number % 60,
    )
    tags = ("rare",) if number % 400 == 3 else ()
    return replace(one, track_id=f"trk_{number:026d}", embeddings=(MODEL,), tags=tags)


class Shelf:
    """A library of tracks with vectors spread like those of music, and their exact comparison."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.tracks = [one_of(number) for number in range(N_TRACKS)]
        self.rows = Manifold().draw(N_TRACKS, 3)
        names = [one.track_id for one in self.tracks]
        library.vectors(MODEL).put(
            dict(zip(names, self.rows, strict=True)), [one.owner for one in self.tracks]
        )
        library.write([Edit(one.track_id, added(one)) for one in self.tracks])

    def exact(self, vector: np.ndarray, n: int, keep: list[bool]) -> list[str]:
        order = np.argsort(1 - self.rows @ vector, kind="stable")
        return [self.tracks[at].track_id for at in order if keep[at]][:n]


@pytest.fixture(scope="module", params=["compared", "indexed"])
def shelf(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shelf]:
    """The same tracks without an index and with one."""
    folder: Path = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        library = Library(folder.as_uri(), folder)
        shelf = Shelf(library)
        if request.param == "indexed":
            patch.setattr(dataset, "FRAGMENT_ROWS", 500)
            patch.setattr(vectors, "INDEX_FROM", 1000)
            patch.setattr(vectors, "PARTITION_ROWS", 100)
            library.maintain()
            indices = library.vectors(MODEL).latest().describe_indices()
            assert {one.name for one in indices} == {"track_id_idx", "vector_idx"}
        yield shelf
        library.close()


QUERIES = {
    "all": (TrackQuery(), lambda n: True),
    "tempo": (TrackQuery(tempo_min=100, tempo_max=110), lambda n: 40 <= n % 120 <= 50),
    "octaves": (
        TrackQuery(tempo_min=150, tempo_max=155, tempo_octaves=True),
        lambda n: 90 <= n % 120 <= 95 or 15 <= n % 120 <= 17,
    ),
    "keys": (TrackQuery(keys=["8A", "5A"]), lambda n: n % 12 in (9, 0)),
    "rare": (TrackQuery(tags=["Rare"]), lambda n: n % 400 == 3),
    "narrow": (
        TrackQuery(year_min=1965, year_max=1965, tempo_max=70),
        lambda n: n % 60 == 5 and n % 120 <= 10,
    ),
    "none": (TrackQuery(year_min=2050), lambda n: False),
}


@pytest.mark.parametrize("circle", [nearest.CIRCLE, 100])
@pytest.mark.parametrize("name", QUERIES)
def test_the_nearest_that_meet_a_query_are_found(
    shelf: Shelf, name: str, circle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small circle has too few for most queries, so the index looks among the others."""
    monkeypatch.setattr(nearest, "CIRCLE", circle)
    monkeypatch.setattr(nearest, "MAX_COMPARED", circle // 4)
    query, meets = QUERIES[name]
    keep = [one.owner in OWNERS and meets(n) for n, one in enumerate(shelf.tracks)]
    n_found = n_expected = 0
    for at in range(0, N_TRACKS, 120):
        vector = shelf.rows[at]
        found = shelf.library.nearest(MODEL, vector.tolist(), 10, OWNERS, query)
        expected = shelf.exact(vector, 10, keep)
        assert len(found) == len(expected)
        assert {one.track_id for one in found} <= {
            one.track_id for one, kept in zip(shelf.tracks, keep, strict=True) if kept
        }
        distances = [one.distance for one in found]
        assert distances == sorted(distances)
        assert [float(1 - one.vector @ vector) for one in found] == pytest.approx(
            distances, abs=1e-5
        )
        n_found += len({one.track_id for one in found} & set(expected))
        n_expected += len(expected)
    assert n_found >= 0.95 * n_expected


def test_only_what_a_model_made_is_near(shelf: Shelf) -> None:
    vector = shelf.rows[0].tolist()
    assert shelf.library.nearest("another", vector, 10, OWNERS, TrackQuery()) == []


def test_an_import_in_great_pieces_is_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "FRAGMENT_ROWS", 100)
    monkeypatch.setattr(vectors, "INDEX_FROM", 100)
    monkeypatch.setattr(vectors, "PARTITION_ROWS", 50)
    stored = Library(tmp_path.as_uri(), tmp_path).vectors(MODEL)
    random = np.random.default_rng(0)

    def grow(n: int) -> int:
        rows = random.standard_normal((n, 768))
        stored.put({f"t{random.integers(10**12)}": row for row in rows}, [OPERATOR] * n)
        stored.maintain()
        return vectors._n_partitions(stored.latest())

    n_first, _, n_grown = grow(150), grow(120), grow(700)
    assert (n_first, n_grown) == (3, 19)


def test_a_view_answers_in_the_order_that_is_given(shelf: Shelf) -> None:
    view: View = shelf.library._view
    names = [f"trk_{number:026d}" for number in (9, 2, 7, 10, 5)]
    numbers = view.numbers([*names, "trk_unheard_of"])
    assert numbers[-1] == 0
    assert view.meeting(numbers, TrackQuery(), OWNERS, 9) == [*numbers[:3], numbers[4]]
    assert view.meeting(numbers, TrackQuery(), OWNERS, 2) == numbers[:2]
    rare = view.numbers([f"trk_{number:026d}" for number in (3, 403, 803)])
    assert set(view.matching(TrackQuery(tags=["rare"]), (OPERATOR,))) == set(rare)


def test_a_search_sees_what_was_written_changed_and_removed(tmp_path: Path) -> None:
    library = Library(tmp_path.as_uri(), tmp_path)
    tracks = [one_of(number) for number in range(1, 6)]
    rows = np.eye(768, dtype=np.float32)

    def near(at: int) -> list[tuple[str, float]]:
        found = library.nearest(MODEL, rows[at].tolist(), 9, OWNERS, TrackQuery())
        return [(one.track_id, round(one.distance, 3)) for one in found if one.distance < 0.5]

    # The vectors of the second come before its track, as they do while another process writes it.
    for track_, row in zip(tracks, rows, strict=False):
        library.vectors(MODEL).put({track_.track_id: row}, [track_.owner])
    first, second = tracks[:2]
    library.write([Edit(first.track_id, added(first))])
    assert near(0) == [(first.track_id, 0.0)]
    assert near(1) == []
    library.write([Edit(one.track_id, added(one)) for one in tracks[1:]])
    assert near(1) == [(second.track_id, 0.0)]
    library.vectors(MODEL).put({second.track_id: rows[9]}, [second.owner])
    assert (near(1), near(9)) == ([], [(second.track_id, 0.0)])
    library.write([Edit(first.track_id, removed)])
    assert near(0) == []
    library._view.empty()
    library.follow()
    assert near(9) == [(second.track_id, 0.0)]
    library.close()


def plan(view: View, read: Callable[[], object]) -> str:
    """Return SQLite's plan for the one statement of a read."""
    statements: list[str] = []
    connection = view._connection()
    connection.set_trace_callback(statements.append)
    read()
    connection.set_trace_callback(None)
    (statement,) = statements
    steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    return "; ".join(step[3] for step in steps)


def test_a_filter_walks_no_index_for_each_track_near(shelf: Shelf) -> None:
    """With a million tracks such a plan took minutes."""
    view: View = shelf.library._view
    query = TrackQuery(tempo_min=100, tempo_max=110, tags=["rare"])
    told = plan(view, lambda: view.meeting([1, 2, 3], query, OWNERS, 9))
    assert "SEARCH track USING INTEGER PRIMARY KEY (rowid=?)" in told
    assert "(term=? AND n=?)" in told or "(n=? AND term=?)" in told  # in newer SQLite


def test_a_filter_goes_by_an_index_of_all_that_is_asked_for(shelf: Shelf) -> None:
    """Sort indexes hold one value each; for the other filters the rows would be read."""
    view: View = shelf.library._view
    years = TrackQuery(tempo_min=100, tempo_max=110, year_min=1970, year_max=1974)
    assert "track_by_tempo (owner=? AND tempo>" in plan(view, lambda: view.matching(years, OWNERS))
    keys = TrackQuery(keys=["8A", "8B"], year_min=1970)
    told = plan(view, lambda: view.matching(keys, OWNERS))
    assert "track_by_key (owner=? AND camelot=?" in told
    octaves = TrackQuery(tempo_min=100, tempo_max=110, tempo_octaves=True)
    for query in (octaves, TrackQuery(energy_min=50), TrackQuery(year_max=1980)):
        assert "track_by_tempo (owner=?" in plan(
            view, lambda query=query: view.matching(query, OWNERS)
        )


@pytest.mark.parametrize("sort", get_args(Sort))
@pytest.mark.parametrize("is_first", [True, False])
def test_a_page_sorts_no_more_than_some_pages(shelf: Shelf, sort: Sort, is_first: bool) -> None:
    """Sorting a million tracks took seconds for every page."""
    view: View = shelf.library._view
    values = {"name": "the cure song 1", "tempo": 61.0, "key": 16}
    last = Position(one_of(1).track_id, values.get(sort.strip("-")))
    told = plan(
        view, lambda: view.page(TrackQuery(sort=sort), OWNERS, 5, None if is_first else last)
    )
    reads = [step for step in told.split("; ") if step.startswith("SEARCH track")]
    index = {"added": "track_owner"}.get(sort.strip("-"), f"track_sorted_by_{sort.strip('-')}")
    assert len(reads) >= len(OWNERS)
    assert all(f"{index} (owner=?" in step for step in reads), told
    assert told.count("TEMP B-TREE") == 2, told  # sorts what all parts gave, twice


def test_a_listing_goes_on_after_a_track_that_is_gone(tmp_path: Path) -> None:
    library = Library(tmp_path.as_uri(), tmp_path)
    tracks = [one_of(number) for number in range(2, 8)]
    library.write([Edit(one.track_id, added(one)) for one in tracks])
    first = library.page(TrackQuery(), OWNERS, 2)
    library.write([Edit(first.items[-1].track_id, removed)])
    rest = library.page(TrackQuery(), OWNERS, 9, first.next_cursor)
    assert [one.track_id for one in rest.items] == [one.track_id for one in tracks[3::-1]]
    library.close()
