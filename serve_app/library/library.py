"""The library: tracks that any node may add, change and remove while all nodes answer.

Invariant: when a write returns, its changes are in the shared datasets and in this machine's view.
A track mentions an analysis or a vector only after that is stored.
"""

import fcntl
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.domain.ulid import new_ulid
from serve_app.library.analyses import Analyses
from serve_app.library.dataset import Dataset
from serve_app.library.edit import Edit
from serve_app.library.nearest import Near, Nearest
from serve_app.library.place import LibraryPlace
from serve_app.library.query import SERVER, Position, TrackQuery
from serve_app.library.rows import MODEL, SCHEMA, table_of
from serve_app.library.track import LibraryTrack, stamped
from serve_app.library.vectors import Vectors
from serve_app.library.view import FORMAT, NO_LIMIT, Outline, View

if TYPE_CHECKING:
    import lance

logger = logging.getLogger(__name__)

FOLLOW_S = 1.0
"""The most time after which another node's write is seen here, plus some milliseconds."""

PAGE = 500

NEXT_REVISION = "source.revision = target.revision + 1"
MAX_ATTEMPTS = 50


class LibraryBusyError(ServiceUnavailableError):
    """Others kept changing the same tracks; some of the changes are not stored."""


@dataclass(frozen=True, slots=True)
class LibraryHit:
    """The identity of a track of the library."""

    track_id: str
    owner: str
    identity: TrackIdentity


@dataclass(frozen=True, slots=True)
class TrackPage:
    """One page of a listing; ``next_cursor`` is None at the end."""

    items: list[LibraryTrack]
    next_cursor: str | None


class Library:
    """The view answers look-ups; all else blocks, so call it in a thread. Thread-safe."""

    def __init__(self, url: str, view_dir: Path) -> None:
        """Open a library, and create it if it does not exist.

        Args:
            url: See `LibraryPlace.parse`.
            view_dir: A folder of this machine; its processes share the view in it.
        """
        self._place = LibraryPlace.parse(url)
        self._tracks = Dataset(self._place, "tracks", SCHEMA)
        self._analyses = Analyses(self._place)
        self._nearest: dict[str, Nearest] = {}
        self._lock = Lock()
        self._closing = Event()
        self._follower: Thread | None = None
        self._view = View(view_dir / f"view-{FORMAT}-{self._tracks.stamp}.sqlite")
        self._turns = view_dir / "turns.lock"

    def close(self) -> None:
        """Stop following, and close the view."""
        self._closing.set()
        if self._follower is not None:
            self._follower.join()
        self._view.close()

    def follow_on(self) -> None:
        """Follow now, and from now on every second in a thread.

        So a new machine, or one whose view has another format, does not answer before it has seen
        what others have.
        """
        self._follow_if_it_goes()
        self._follower = Thread(target=self._follow_on, name="library", daemon=True)
        self._follower.start()

    def _follow_on(self) -> None:
        while not self._closing.wait(FOLLOW_S):
            self._follow_if_it_goes()

    def _follow_if_it_goes(self) -> None:
        try:
            self.follow()
        except (ServiceUnavailableError, OSError, ValueError, sqlite3.Error):
            # The shared datasets are unavailable; what this machine has seen still answers.
            logger.warning("the library could not be followed", exc_info=True)

    def follow(self) -> None:
        """Update the view to the newest version of the shared dataset."""
        dataset = self._tracks.latest()
        if dataset.version == self._view.version:
            return
        if dataset.version < self._view.version:
            self._view.empty()  # the shared dataset went back, after a crash or to a backup
        fragments = {one.fragment_id: one for one in dataset.get_fragments()}
        for number in self._view.lacking(fragments):
            self._view.take_in(number, self._news(fragments[number]))
        self._view.reached(dataset.version, fragments)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep what is looked up valid until it is written: others on this machine wait.

        This holds only for those who also take turns.
        """
        with self._turns.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by a kill
            self.follow()
            yield

    def _news(self, fragment: "lance.LanceFragment") -> Iterable[dict[str, object]]:
        """Yield a fragment's rows unless all are known: joined fragments have no news."""
        known = fragment.to_table(columns=["track_id", "revision"]).to_pylist()
        if self._view.knows((row["track_id"], row["revision"]) for row in known):
            return
        for batch in fragment.to_batches(batch_size=1000):
            yield from batch.to_pylist()

    def count(self, owners: Sequence[str]) -> int:
        """Return how many tracks these owners have."""
        return self._view.count(owners)

    def by_id(self, track_id: TrackId, owners: Sequence[str]) -> list[LibraryHit]:
        """Return the tracks of an identifier that these owners have, oldest first."""
        if track_id.platform is Platform.LIBRARY:
            found = self._view.identity(track_id.value, owners)
        else:
            found = self._view.identities(str(track_id), owners)
        return [LibraryHit(*one) for one in found]

    def named(self, artist: str, title: str, owners: Sequence[str]) -> list[LibraryHit]:
        """Return the tracks of that artist and title, however spelt, best first."""
        return [LibraryHit(*one) for one in self._view.named(artist, title, owners)]

    def get(self, track_id: str) -> LibraryTrack | None:
        """Return a track without the analysis's details and the vectors."""
        return self._view.track(track_id)[0]

    def of_term(self, term: str, owner: str, limit: int = NO_LIMIT) -> list[LibraryTrack]:
        """Return an owner's first tracks of a term; `serve_app.library.rows` makes terms."""
        return self._view.of_term(term, owner, limit)

    def locations(self, root: str) -> list[str]:
        """Return the locations of files that begin with ``root``, ascending."""
        try:
            return self._view.locations(root)
        except UnicodeEncodeError:
            return []  # a name that is not UTF-8: the library has no such files

    def page(
        self, query: TrackQuery, owners: Sequence[str], limit: int, cursor: str | None = None
    ) -> TrackPage:
        """Return the tracks that match a query, in its order; ``cursor`` is the previous page's."""
        after = None if cursor is None else Position.parse(cursor)
        found = self._view.page(query, owners, limit + 1, after)
        items = [track for track, _ in found[:limit]]
        return TrackPage(items, found[limit - 1][1].cursor if len(found) > limit else None)

    def all(self, owners: Sequence[str]) -> Iterator[LibraryTrack]:
        """Yield every track that these owners have, newest first."""
        cursor: str | None = None
        while True:
            page = self.page(TrackQuery(), owners, PAGE, cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def whole(self, track_id: str) -> TrackFeatures | None:
        """Return a track's analysis with segments, sections and embedding."""
        features = self._analyses.get(track_id)
        if features is None:
            return None
        vector = self.vectors(features.models["embedding"]).get([track_id]).get(track_id)
        return features if vector is None else replace(features, embedding=vector)

    def models(self) -> list[str]:
        """Return the models of which vectors are stored."""
        return self._view.terms(MODEL)

    def servers(self) -> list[str]:
        """Return the media servers whose items are known."""
        return self._view.terms(SERVER)

    @property
    def version(self) -> int:
        """The shared dataset's version that this machine has seen; every write makes a new one."""
        return self._view.version

    def with_vectors(self, owners: Sequence[str]) -> dict[str, int]:
        """Return for each model how many tracks of these owners have its vector."""
        return self._view.with_vectors(owners)

    def sample(self, model: str, owners: Sequence[str], n: int) -> list[Outline]:
        """Return up to ``n`` tracks of these owners with a model's vector, evenly sampled."""
        return self._view.sample(model, owners, n)

    def vectors(self, model: str) -> Vectors:
        """Return the vectors of a model."""
        return self._of_model(model).vectors

    def _of_model(self, model: str) -> Nearest:
        with self._lock:
            if model not in self._nearest:
                self._nearest[model] = Nearest(Vectors(self._place, model), self._view)
            return self._nearest[model]

    def nearest(
        self,
        model: str,
        vector: Sequence[float],
        n: int,
        owners: Sequence[str],
        query: TrackQuery,
    ) -> list[Near]:
        """Return these owners' ``n`` nearest tracks that match a query, nearest first."""
        return self._of_model(model).find(vector, n, owners, query)

    def write(self, edits: Sequence[Edit]) -> list[LibraryTrack | None]:
        """Make changes in one commit; return the changed tracks, in the order of the edits.

        Raises:
            LibraryBusyError: Others kept changing the tracks first.
        """
        todo = list(dict.fromkeys(edit.track_id for edit in edits))
        done: dict[str, LibraryTrack | None] = {}
        for _ in range(MAX_ATTEMPTS):
            self.follow()
            known = {one: self._view.track(one) for one in todo}
            current = [edit for edit in edits if edit.track_id in known]
            changed = {one: track for one, (track, *_) in known.items()}
            for edit in current:
                changed[edit.track_id] = edit.apply(changed[edit.track_id])
            done |= {
                one: None if track is None else stamped(track, known[one][1] + 1)
                for one, track in changed.items()
            }
            gone = [track for one, (track, *_) in known.items() if track and changed[one] is None]
            here = [track for one in todo if (track := done[one]) is not None]
            todo = self._store(here, gone, current)
            if not todo:
                return [done[edit.track_id] for edit in edits]
        raise LibraryBusyError(f"others keep changing {', '.join(todo)}; try again")

    def _store(
        self, here: Sequence[LibraryTrack], gone: Sequence[LibraryTrack], edits: Sequence[Edit]
    ) -> list[str]:
        """Write the changed tracks; return the ids of those that another writer changed first."""
        owners = {track.track_id: track.owner for track in here}
        self._store_heard([edit for edit in edits if edit.track_id in owners], owners)
        write_id = new_ulid()
        rows = table_of(here, gone, write_id, self._tracks.schema)
        n_written = self._tracks.upsert(rows, NEXT_REVISION) if len(rows) else 0
        self.follow()
        self._delete_heard(gone)
        if n_written == len(rows):
            return []
        return [one for one in rows["track_id"].to_pylist() if self._view.track(one)[2] != write_id]

    def _store_heard(self, edits: Sequence[Edit], owners: Mapping[str, str]) -> None:
        heard = {edit.track_id: edit.heard.features for edit in edits if edit.heard is not None}
        if heard:
            self._analyses.put(heard)
        by_model = defaultdict[str, dict[str, Sequence[float]]](dict)
        for edit in edits:
            if edit.heard is not None and edit.heard.model is not None:
                by_model[edit.heard.model][edit.track_id] = edit.heard.features.embedding
            if edit.embedded is not None:
                by_model[edit.embedded.model][edit.track_id] = edit.embedded.vector
        for model, vectors in by_model.items():
            self.vectors(model).put(vectors, [owners[one] for one in vectors])

    def _delete_heard(self, gone: Sequence[LibraryTrack]) -> None:
        self._analyses.rows.delete([track.track_id for track in gone if track.analysis])
        for model in {model for track in gone for model in track.embeddings}:
            of_model = [track.track_id for track in gone if model in track.embeddings]
            self.vectors(model).delete(of_model)

    def maintain(self) -> None:
        """Join small files, bring the indices up to date, remove old versions."""
        datasets = [self._tracks, self._analyses.rows, *map(self.vectors, self.models())]
        for dataset in datasets:
            dataset.maintain()
        self.follow()
