"""This machine's view of the library: an SQLite file that answers look-ups without the network.

Invariant: the view has no data of its own. It is made from the shared dataset, fragment by
fragment, and may be deleted at any time. Of two revisions of a track it keeps the later one,
in whatever order they arrive, so several processes may fill one view.
"""

import json
import logging
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve_app.domain import identity as identity_json
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.ulid import new_ulid
from serve_app.library.query import SORT_VALUES, Position, TrackQuery, in_column
from serve_app.library.rows import MODEL, location_term, model_term, name_term
from serve_app.library.spelling import normalise, normalise_artist, normalise_title, ranked
from serve_app.library.track import LibraryTrack, unpack

logger = logging.getLogger(__name__)

FORMAT = 3
"""Part of the file's name, so that a view of another format is not misread."""

Known = tuple[str, str, TrackIdentity]
"""Track id, owner and identity."""

BUSY_S = 600.0
"""Longest wait for others that fill the view; a million rows take some minutes."""
AWAY = "the library cannot be written at the moment; try again"
AWAY_S = 30
TOGETHER = 1000
"""Rows that are added at once, a tenth of a second's work."""
MAX_SAME = 16
NO_LIMIT = -1
MAX_NAMED = 50
LAST = "\U0010ffff"
"""Sorts after anything that may continue a name."""

_TABLES = """
CREATE TABLE IF NOT EXISTS version(seen INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS life(id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fragment(id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS amount(owner TEXT PRIMARY KEY, tracks INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS track(
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, revision INTEGER NOT NULL,
    write_id TEXT NOT NULL, identity BLOB, name TEXT, tempo REAL, camelot TEXT, year INTEGER,
    energy INTEGER
);
CREATE TABLE IF NOT EXISTS record(n INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS term(term TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY(term, n))
    WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS word USING fts5(artist, title, album, tags);
CREATE INDEX IF NOT EXISTS term_n ON term(n);
CREATE INDEX IF NOT EXISTS track_owner ON track(owner, id) WHERE identity IS NOT NULL;
CREATE INDEX IF NOT EXISTS track_by_tempo ON track(owner, tempo, camelot, year, energy)
    WHERE identity IS NOT NULL;
CREATE INDEX IF NOT EXISTS track_by_key ON track(owner, camelot, tempo, year, energy)
    WHERE identity IS NOT NULL;
""" + "".join(
    f"CREATE INDEX IF NOT EXISTS track_sorted_by_{sort} ON track(owner, {value}, id) "
    "WHERE identity IS NOT NULL;"
    for sort, value in SORT_VALUES.items()
)
_PUT_TRACK = """
INSERT INTO track(id, owner, revision, write_id, identity, name, tempo, camelot, year, energy)
VALUES(:track_id, :owner, :revision, :write_id, :identity, :name, :tempo, :camelot, :year, :energy)
ON CONFLICT(id) DO UPDATE SET owner = excluded.owner, revision = excluded.revision,
    write_id = excluded.write_id, identity = excluded.identity, name = excluded.name,
    tempo = excluded.tempo, camelot = excluded.camelot, year = excluded.year,
    energy = excluded.energy
RETURNING n
"""
_COUNT = """
INSERT INTO amount VALUES(?, ?) ON CONFLICT(owner) DO UPDATE SET tracks = tracks + excluded.tracks
"""


@dataclass(frozen=True, slots=True)
class Outline:
    """A track's main fields, read without its record; see `Measures` for the numbers."""

    track_id: str
    identity: TrackIdentity
    tempo: float | None
    camelot: str | None
    energy: int | None


class View:
    """Reads and fills one file. Safe to share between threads and processes."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create it if it does not exist.

        Raises:
            OSError: It cannot be opened or created, or is damaged.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._threads = threading.local()
        self._opened: list[sqlite3.Connection] = []
        weakref.finalize(self, _close, self._opened).atexit = False
        try:
            connection = self._connection()
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_TABLES)
        except sqlite3.OperationalError as error:  # mostly a read-only or full disk
            raise OSError(f"{path}: {error}; the library's view has to be writable") from error
        except sqlite3.DatabaseError as error:
            raise OSError(
                f"{path}: {error}; end what uses it and remove it: the library's view is made again"
            ) from error

    def close(self) -> None:
        """Close the connections of all threads."""
        _close(self._opened)

    @property
    def version(self) -> int:
        """The version of the shared dataset that is completely here; 0 before the first."""
        (seen,) = self._connection().execute("SELECT max(seen) FROM version").fetchone()
        return seen or 0

    @property
    def life(self) -> str:
        """Changes when everything is deleted, after which numbers begin anew."""
        found = self._connection().execute("SELECT id FROM life").fetchone()
        return found[0] if found else ""

    def lacking(self, fragments: Collection[int]) -> list[int]:
        """Return those fragments that are not here yet."""
        here = {one for (one,) in self._connection().execute("SELECT id FROM fragment")}
        return sorted(set(fragments) - here)

    def knows(self, revisions: Iterable[tuple[str, int]]) -> bool:
        """Return whether all these tracks are here in that revision or a later one."""
        connection = self._connection()
        return all(
            connection.execute(
                "SELECT 1 FROM track WHERE id = ? AND revision >= ?", [track_id, revision]
            ).fetchone()
            for track_id, revision in revisions
        )

    def take_in(self, fragment: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of one fragment, some at a time, so that no other process waits long."""
        life, rows = self.life, iter(rows)
        while some := list(islice(rows, TOGETHER)):
            with self._transaction() as connection:
                for row in some:
                    _put(connection, row)
        with self._transaction() as connection:
            if self.life == life:  # else another process has emptied the view in the meantime
                connection.execute("INSERT OR IGNORE INTO fragment VALUES(?)", [fragment])

    def reached(self, version: int, fragments: Collection[int]) -> None:
        """Record that the view has all of a version, which consists of these fragments."""
        with self._transaction() as connection:
            (seen,) = connection.execute("SELECT max(seen) FROM version").fetchone()
            if seen is not None and seen >= version:
                return
            connection.execute("DELETE FROM version")
            connection.execute("INSERT INTO version VALUES(?)", [version])
            gone = {one for (one,) in connection.execute("SELECT id FROM fragment")}
            gone -= set(fragments)
            connection.executemany("DELETE FROM fragment WHERE id = ?", [[one] for one in gone])

    def empty(self) -> None:
        """Delete everything."""
        with self._transaction() as connection:
            for table in ("version", "fragment", "amount", "track", "record", "term", "word"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608  names of this module
            connection.execute("DELETE FROM life")
            connection.execute("INSERT INTO life VALUES(?)", [new_ulid()])

    def count(self, owners: Sequence[str]) -> int:
        """Return how many tracks these owners have."""
        marks = _marks(owners)
        found = self._connection().execute(
            f"SELECT total(tracks) FROM amount WHERE owner IN ({marks})",  # noqa: S608  only marks
            owners,
        )
        return int(found.fetchone()[0])

    def identities(self, term: str, owners: Sequence[str]) -> list[Known]:
        """Return id, owner and identity of the tracks of a term, oldest first."""
        found = self._connection().execute(
            "SELECT id, owner, identity FROM term JOIN track USING(n) "  # noqa: S608  only marks
            f"WHERE term = ? AND owner IN ({_marks(owners)}) ORDER BY id LIMIT {MAX_SAME}",
            [term, *owners],
        )
        return [(one, owner, identity_json.from_json(who)) for one, owner, who in found]

    def identity(self, track_id: str, owners: Sequence[str]) -> list[Known]:
        """Return the same as `identities`, for the library's own id."""
        found = self._connection().execute(
            "SELECT id, owner, identity FROM track "  # noqa: S608  only marks
            f"WHERE id = ? AND identity IS NOT NULL AND owner IN ({_marks(owners)})",
            [track_id, *owners],
        )
        return [(one, owner, identity_json.from_json(who)) for one, owner, who in found]

    def terms(self, kind: str) -> list[str]:
        """Return the rest of all terms that begin with ``kind``, ascending."""
        connection, found = self._connection(), [kind]
        while True:  # from term to term in the index, however many tracks each has
            next_one = "SELECT min(term) FROM term WHERE term > ? AND term < ?"
            (term,) = connection.execute(next_one, [found[-1], kind + LAST]).fetchone()
            if term is None:
                return [term.removeprefix(kind) for term in found[1:]]
            found.append(term)

    def locations(self, root: str) -> list[str]:
        """Return the locations of files that begin with ``root``, ascending."""
        first = location_term(root)
        found = self._connection().execute(
            "SELECT DISTINCT term FROM term WHERE term >= ? AND term < ? ORDER BY term",
            [first, first + LAST],
        )
        return [term.removeprefix(location_term("")) for (term,) in found]

    def track(self, track_id: str) -> tuple[LibraryTrack | None, int, str]:
        """Return a track, its revision and the write that made it; no track if it was removed.

        Revision 0 means that the track never existed.
        """
        found = self._connection().execute(
            "SELECT record, revision, write_id FROM track LEFT JOIN record USING(n) WHERE id = ?",
            [track_id],
        )
        record, revision, write_id = found.fetchone() or (None, 0, "")
        return (None if record is None else _track(record)), revision, write_id

    def of_term(self, term: str, owner: str, limit: int) -> list[LibraryTrack]:
        """Return the tracks of a term that this owner has, oldest first."""
        found = self._connection().execute(
            "SELECT record FROM term JOIN track USING(n) JOIN record USING(n) "
            "WHERE term = ? AND owner = ? ORDER BY id LIMIT ?",
            [term, owner, limit],
        )
        return [_track(record) for (record,) in found]

    def named(self, artist: str, title: str, owners: Sequence[str]) -> list[Known]:
        """Return the tracks of that artist and title, however spelt, best first."""
        exact = self.identities(name_term(artist, title), owners)
        if exact:
            return exact
        by_artist, by_title = normalise_artist(artist), normalise_title(title)
        whose = in_column("artist", by_artist)
        queries = (
            in_column("title", by_title),
            f"{whose} AND {in_column('title', by_title, any_word=True)}",
            whose,
        )
        found: dict[str, Known] = {}
        for query in queries:
            rows = self._connection().execute(
                "SELECT id, owner, identity FROM track WHERE n IN "  # noqa: S608  only marks
                f"(SELECT rowid FROM word WHERE word MATCH ? LIMIT {MAX_NAMED}) "
                f"AND owner IN ({_marks(owners)})",
                [query, *owners],
            )
            for one, owner, who in rows:
                found[one] = (one, owner, identity_json.from_json(who))
        known = {id(identity): (one, owner, identity) for one, owner, identity in found.values()}
        matches = ranked([identity for *_, identity in found.values()], artist, title)
        return [known[id(match.identity)] for match in matches]

    def page(
        self, query: TrackQuery, owners: Sequence[str], limit: int, after: Position | None
    ) -> list[tuple[LibraryTrack, Position]]:
        """Return the tracks that match a query and come after a position, in the query's order."""
        where, values = query.where()
        selects, bound = [], []
        # For each owner those with a value and those without, each in the order of an index, so
        # that no more than some pages are sorted.
        for part, owner in product(query.parts(after), owners):
            terms = " AND ".join([*where, *part.terms, "identity IS NOT NULL", "owner = ?"])
            selects.append(
                f"SELECT * FROM (SELECT n, {part.value} AS value, id FROM track "  # noqa: S608  as above
                f"WHERE {terms} ORDER BY {part.order} LIMIT ?)"
            )
            bound += [*values, *part.bound, owner, limit]
        way = "DESC" if query.sort.startswith("-") else "ASC"
        order = f"value IS NULL, value {way}, id {way}"
        # One statement, so that no track disappears between its place and its record.
        found = self._connection().execute(
            f"SELECT record, id, value FROM (SELECT * FROM ({' UNION ALL '.join(selects)}) "  # noqa: S608  as above
            f"ORDER BY {order} LIMIT ?) JOIN record USING(n) ORDER BY {order}",
            [*bound, limit],
        )
        return [(_track(record), Position(*place)) for record, *place in found]

    def with_vectors(self, owners: Sequence[str]) -> dict[str, int]:
        """Return for each model how many tracks of these owners have its vector."""
        found = self._connection().execute(
            "SELECT term, count(*) FROM term JOIN track USING(n) "  # noqa: S608  only marks
            f"WHERE term >= ? AND term < ? AND owner IN ({_marks(owners)}) GROUP BY term",
            [MODEL, MODEL + "\x7f", *owners],
        )
        return {term.removeprefix(MODEL): n for term, n in found}

    def sample(self, model: str, owners: Sequence[str], n: int) -> list[Outline]:
        """Return some tracks of these owners with a model's vector; mostly the same every time.

        The end of an id is random, so sorting by it samples evenly.
        """
        found = self._connection().execute(
            "SELECT id, identity, tempo, camelot, energy FROM term JOIN track USING(n) "  # noqa: S608
            f"WHERE term = ? AND owner IN ({_marks(owners)}) ORDER BY substr(id, -12) LIMIT ?",
            [model_term(model), *owners, n],
        )
        return [Outline(one, identity_json.from_json(who), *rest) for one, who, *rest in found]

    def numbers(self, track_ids: Sequence[str]) -> list[int]:
        """Return the view's own numbers of some tracks, in their order; 0 if it never saw one."""
        found = self._connection().execute(
            "SELECT coalesce(n, 0) FROM json_each(?) AS given LEFT JOIN track "
            "ON track.id = given.value ORDER BY given.key",
            [json.dumps(track_ids)],
        )
        return [n for (n,) in found]

    def meeting(
        self, numbers: Sequence[int], query: TrackQuery, owners: Sequence[str], limit: int
    ) -> list[int]:
        """Return the first of some tracks that match a query and these owners have, in order."""
        where, values = _asked(query, owners, one_by_one=True)
        # For each of these an index of many tracks would be walked; reading by number avoids that.
        found = self._connection().execute(
            "SELECT given.key, track.n FROM json_each(?) AS given "  # noqa: S608  as above
            f"CROSS JOIN track NOT INDEXED ON track.n = given.value WHERE {where} LIMIT ?",
            [json.dumps(numbers), *values, limit],
        )
        return [n for _, n in sorted(found)]

    def matching(self, query: TrackQuery, owners: Sequence[str]) -> NDArray[np.int64]:
        """Return the numbers of the tracks that match a query and these owners have."""
        where, values = _asked(query, owners)
        if query.names_terms:  # the terms' tracks are fewer than the owners'
            table, where = "track", where.replace(" owner IN", " +owner IN")
        else:  # these hold all fields; SQLite would choose a sorted one, and then read rows
            table = f"track INDEXED BY track_by_{'key' if query.keys else 'tempo'}"
        found = self._connection().execute(
            f"SELECT track.n FROM {table} WHERE {where}",  # noqa: S608  as above
            values,
        )
        return np.fromiter((n for (n,) in found), np.int64)

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if known is None:
            known = sqlite3.connect(
                self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            # The shared dataset is the durable one; a view that lost its end catches up.
            known.execute("PRAGMA synchronous=NORMAL")
            self._threads.connection = known
            self._opened.append(known)
        return known

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:  # mostly a full disk
            logger.warning("the view of the library cannot be written: %s", error)
            raise ServiceUnavailableError(AWAY, AWAY_S) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _close(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _track(record: bytes) -> LibraryTrack:
    try:
        return unpack(record)
    except zlib.error as error:
        raise sqlite3.DatabaseError(f"a record is damaged: {error}") from error


def _put(connection: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    known = connection.execute(
        "SELECT n, revision, identity IS NOT NULL FROM track WHERE id = ?", [row["track_id"]]
    ).fetchone()
    n, revision, was_there = known or (None, 0, False)
    if revision >= row["revision"]:
        return
    if was_there:
        connection.execute("DELETE FROM term WHERE n = ?", [n])
        connection.execute("DELETE FROM word WHERE rowid = ?", [n])
        connection.execute("DELETE FROM record WHERE n = ?", [n])
    is_there = row["identity"] is not None
    words = [normalise(row[name] or "") for name in ("artist", "title", "album")]
    name = f"{words[0]} {words[1]}" if is_there else None
    # A dataset from before energies were stored has no such column. A tempo of 0 means a track
    # without a beat, which is not slow.
    values = {"energy": None, **row, "name": name, "tempo": row["tempo"] or None}
    ((n,),) = connection.execute(_PUT_TRACK, values).fetchall()
    if is_there:
        connection.execute("INSERT INTO record VALUES(?, ?)", [n, row["record"]])
        connection.executemany("INSERT INTO term VALUES(?, ?)", [[one, n] for one in row["terms"]])
        tags = " ".join(normalise(tag) for tag in row["tags"])
        connection.execute(
            "INSERT INTO word(rowid, artist, title, album, tags) VALUES(?, ?, ?, ?, ?)",
            [n, *words, tags],
        )
    if is_there != bool(was_there):
        connection.execute(_COUNT, [row["owner"], 1 if is_there else -1])


def _asked(
    query: TrackQuery, owners: Sequence[str], *, one_by_one: bool = False
) -> tuple[str, list[object]]:
    """Return the condition for a query's tracks that owners have, and its values."""
    terms, values = query.where(one_by_one=one_by_one)
    terms += ["identity IS NOT NULL", f"owner IN ({_marks(owners)})"]
    return " AND ".join(terms), [*values, *owners]


def _marks(owners: Sequence[str]) -> str:
    return ", ".join("?" * len(owners))
