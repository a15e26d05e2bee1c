"""One back-fill: what is left to do goes to the actors, what comes back into library and tables.

Invariant: a row is entered into the library first and written to its table after. What a kill
leaves between the two comes out of the library in the next run, and is not heard again. An error
that may pass goes only after what was listed at its place has another row.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.util.placement_group import placement_group, remove_placement_group

from pipelines.analysis.features import from_json
from serve_app.backfill.destination import ERRORS_FOLDER, TRACKS_FOLDER, Destination
from serve_app.backfill.hearer import NODE_FULL, SOURCE, Hearer, HearerOptions
from serve_app.backfill.rows import OF_THE_FILE, Row, heard_row, source_row
from serve_app.checkpoints.choice import models_name
from serve_app.checkpoints.exchange import ids_by_role
from serve_app.domain import identity as identity_json
from serve_app.library.library import Library
from serve_app.library.track import TrackFile
from serve_app.providers.tags.identity import TaggedIdentity
from serve_app.services.scan.entries import Entries, Hearing, Taken, is_as_listed, kind_of
from serve_app.services.scan.places import Found, Trouble

BLOCK_ROWS, ROWS_OF_A_CPU = 8, 2
"""Files in one call of an actor, whichever is more: what a kill takes from it, and what it passes
on at once. An actor with a card has many CPUs, each of which reads a file, and reads ahead."""

MOST_BLOCKS = 100_000
"""Blocks that wait cost memory, so blocks of a longer list are larger."""

AT_ONCE = 2
"""Calls that one actor works at: while the last files of one are finished, another's are read."""

SETTLED_S = 3.0
"""A cluster that has just started does not know at once all that is free in it."""

PART_ROWS, PART_S = 512, 60.0
"""A table is written for so many rows, or after so long."""


class OtherCheckpointsError(Exception):
    """A node heard with other checkpoints than this machine would."""


class NodeFullError(Exception):
    """A node has no room for a file while it is read."""


@dataclass(frozen=True, slots=True)
class Actors:
    """How many there are, and what each one gets.

    Attributes:
        n_gpus: Of each.
    """

    n: int
    n_cpus: float
    n_gpus: float

    def block_rows(self, n_files: int) -> int:
        """Return the files of one call, so that every actor has some."""
        most = max(BLOCK_ROWS, int(ROWS_OF_A_CPU * self.n_cpus))
        even = max(BLOCK_ROWS, -(-n_files // (self.n * AT_ONCE)))
        return max(min(most, even), -(-n_files // MOST_BLOCKS))


def actors_for(n: int, n_cpus: int) -> Actors:
    """Fill in, by what the connected cluster has, what is 0.

    Args:
        n: Actors; by default one for each GPU, and where there is none for each CPU.
        n_cpus: CPUs of each; by default the GPU's share of its node's, and 1 where there is none.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    nodes = [node["Resources"] for node in alive]
    n_gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if n_gpus:
        beside = sum(node.get("CPU", 0) for node in nodes if node.get("GPU", 0))
        return Actors(n or n_gpus, n_cpus or max(1, int(beside / n_gpus)), 1)
    n_cpus = n_cpus or 1
    total = sum(node.get("CPU", 0) for node in nodes)
    return Actors(n or max(1, int(total / n_cpus)), n_cpus, 0)


def has_room(actors: Actors) -> bool:
    """Return whether the connected cluster has room for one of them now."""
    # By what is free in all there may seem to be, where two nodes have half a card each.
    room = placement_group([{"CPU": actors.n_cpus, "GPU": actors.n_gpus}])
    try:
        return bool(room.wait(SETTLED_S))
    finally:
        remove_placement_group(room)


@dataclass(slots=True)
class Report:
    """What became of the rows.

    Attributes:
        before: Were there from earlier runs.
        known: Came from the library, without being heard.
        errors: Of them, ``passing`` may pass and are not remembered.
    """

    before: int = 0
    known: int = 0
    heard: int = 0
    errors: int = 0
    passing: int = 0

    @property
    def n_done(self) -> int:
        """All rows that are there now."""
        return self.before + self.known + self.heard + self.errors


class Backfill:
    """Hears files on a cluster that is connected; one run of it at a time for a destination."""

    def __init__(
        self,
        library: Library,
        destination: Destination,
        options: HearerOptions,
        actors: Actors,
        tell: Callable[[Report], None],
        tell_waiting: Callable[[], None],
    ) -> None:
        """Prepare a run.

        Args:
            library: Where tracks go; they are the operator's.
            destination: Where the tables go.
            options: What the actors are made with.
            actors: How many.
            tell: Called after every step.
            tell_waiting: Called where files are to be heard and there is no room yet for an actor.
        """
        self._library, self._entries = library, Entries(library)
        self._destination = destination
        self._options, self._actors, self._tell = options, actors, tell
        self._tell_waiting = tell_waiting
        self._made_by = models_name(ids_by_role(options.embedding.cards()))
        self._waiting: dict[str, list[Row]] = {TRACKS_FOLDER: [], ERRORS_FOLDER: []}
        self._written_s = time.monotonic()
        self._settled: set[str] = set()
        self.report = Report()

    def run(self, listed: Iterable[Found | Trouble]) -> None:
        """Bring every file that was listed to its row.

        Raises:
            DestinationError: Another run writes there, something else lies there, or it is away.
            NodeFullError: A disk of a node is full.
            OtherCheckpointsError: A node's checkpoints are not this machine's.
            RayError: No actor could be made, or what was wrong would be so with every file.
            OSError: The library cannot be written.
            LibraryBusyError: Others kept changing the same tracks.
        """
        with self._destination.only_run():
            self._library.follow()
            try:
                todo = list(self._left(listed))
                if todo:
                    for answers in self._answers(todo):
                        self._enter(answers)
            finally:
                self._write()
                self._destination.drop_passing(self._settled)
        self._tell(self.report)

    def _left(self, listed: Iterable[Found | Trouble]) -> Iterator[Found]:
        """Yield the files that have to be heard; the rows of all others are there, or made here."""
        done, named = self._destination.done(), set[str]()
        for one in listed:
            source = source_row(one, self._made_by)
            if source["id"] in done:
                self.report.before += 1
                self._settled.add(one.location)
                continue
            if source["id"] in named:  # a table may name a file twice
                self.report.before += 1
                continue
            named.add(source["id"])
            if isinstance(one, Trouble):
                self._fail(source, "unreadable", one.message)
            elif (row := self._known(one, source)) is not None:
                self.report.known += 1
                self._keep(TRACKS_FOLDER, row)
            else:
                yield one

    def _known(self, found: Found, source: Row) -> Row | None:
        """Return the row of a file that the library has as it is, heard by these checkpoints."""
        track, file = self._entries.at(found.location)
        if track is None or file is None or not is_as_listed(file, found):
            return None
        if track.analysis is None or track.analysis.made_by != self._made_by:
            return None
        whole = self._library.whole(track.track_id)
        if whole is None:
            return None
        return heard_row(source, file, track.track_id, track.identity, whole)

    def _answers(self, todo: Sequence[Found]) -> Iterator[list[dict[str, Any]]]:
        if not has_room(self._actors):
            self._tell_waiting()
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.memory_usage_poll_interval_s = None  # reads every page of the actor, each second
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        n_rows = self._actors.block_rows(len(todo))
        blocks = [
            pa.Table.from_pylist(
                [
                    {
                        "location": one.location,
                        "size_bytes": one.size_bytes,
                        "mtime_ns": one.mtime_ns,
                    }
                    for one in todo[start : start + n_rows]
                ],
                schema=SOURCE,
            )
            for start in range(0, len(todo), n_rows)
        ]
        answers = ray.data.from_arrow(blocks).map_batches(
            Hearer,
            fn_constructor_args=[self._options],
            batch_size=n_rows,  # without one, Ray Data refuses actors with a card
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=self._actors.n, max_concurrent_calls_per_actor=AT_ONCE),
            num_cpus=self._actors.n_cpus,
            num_gpus=self._actors.n_gpus,
        )
        for batch in answers.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield cast("pa.Table", batch).to_pylist()

    def _enter(self, answers: Sequence[dict[str, Any]]) -> None:
        heard = [answer for answer in answers if answer["code"] is None]
        taken = [self._taken(answer) for answer in heard]
        for one, (track_id, _) in zip(taken, self._entries.enter(taken), strict=True):
            file = one.file
            source = source_row(Found(file.location, file.size_bytes, file.mtime_ns), self._made_by)
            features = one.hearing.features  # type: ignore[union-attr]  # see `_taken`
            self._keep(
                TRACKS_FOLDER, heard_row(source, file, track_id, one.named.identity, features)
            )
            self.report.heard += 1
        for answer in answers:
            if answer["code"] not in (None, NODE_FULL):
                found = Found(answer["location"], answer["size_bytes"], answer["mtime_ns"])
                source = source_row(found, self._made_by)
                self._fail(source, answer["code"], answer["message"])
        self._tell(self.report)
        for answer in answers:
            if answer["code"] == NODE_FULL:
                raise NodeFullError(
                    f"a disk of a node is full ({answer['message']}); make room, and run the same "
                    "command again: what is done is kept"
                )

    def _taken(self, answer: dict[str, Any]) -> Taken:
        features = from_json(answer["record"])
        if models_name(features.models) != self._made_by:
            raise OtherCheckpointsError(
                f"a node analysed {answer['location']} with {features.models}; this machine has "
                "other checkpoints; `afa models pull` on every node, with the same AFA_MODEL_DIR"
            )
        file = TrackFile(
            kind_of(answer["location"]),
            answer["location"],
            answer["content_sha256"],
            answer["audio_sha256"],
            answer["size_bytes"],
            answer["mtime_ns"],
        )
        named = TaggedIdentity(
            identity_json.from_json(answer["identity"]), json.loads(answer["sources"])
        )
        found = Found(file.location, answer["size_bytes"], answer["mtime_ns"])
        at_hand = partial(self._options.place.at_hand, found)
        return Taken(file, named, Hearing(features, answer["fingerprint"]), at_hand)

    def _fail(self, source: Row, code: str, message: str) -> None:
        self.report.errors += 1
        self.report.passing += code not in OF_THE_FILE
        self._keep(ERRORS_FOLDER, source | {"code": code, "message": message})

    def _keep(self, folder: str, row: Row) -> None:
        self._waiting[folder].append(row)
        self._settled.add(row["location"])
        is_late = time.monotonic() - self._written_s > PART_S
        if is_late or len(self._waiting[folder]) >= PART_ROWS:
            self._write()

    def _write(self) -> None:
        for folder, rows in self._waiting.items():
            self._destination.put(folder, rows)
            rows.clear()
        self._written_s = time.monotonic()
