"""Runs one back-fill: remaining files go to the actors, results to the library and the tables.

Invariant: a row is entered into the library first and written to its table after. If a run is
killed between the two, the next run takes the row from the library and does not analyse again. A
temporary error is removed only after the file at its location has another row.
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
"""Files in one call of an actor, whichever is more: so many are lost when it is killed, and
returned at once. An actor with a GPU has many CPUs, each of which reads a file, and reads ahead."""

MOST_BLOCKS = 100_000
"""Waiting blocks cost memory, so a longer list has larger blocks."""

AT_ONCE = 2
"""Calls that an actor works on at once: it reads one's files while it finishes the other's."""

SETTLED_S = 3.0
"""A cluster that has just started does not know at once all its free resources."""

PART_ROWS, PART_S = 512, 60.0
"""A table file is written after so many rows, or so many seconds."""


class OtherCheckpointsError(Exception):
    """A node analysed with other checkpoints than this machine would."""


class NodeFullError(Exception):
    """A node has no room for a file that is being read."""


@dataclass(frozen=True, slots=True)
class Actors:
    """How many actors there are, and what each one gets.

    Attributes:
        n_gpus: GPUs of each actor.
    """

    n: int
    n_cpus: float
    n_gpus: float

    def block_rows(self, n_files: int) -> int:
        """Return the number of files in one call, such that every actor has some."""
        most = max(BLOCK_ROWS, int(ROWS_OF_A_CPU * self.n_cpus))
        even = max(BLOCK_ROWS, -(-n_files // (self.n * AT_ONCE)))
        return max(min(most, even), -(-n_files // MOST_BLOCKS))


def actors_for(n: int, n_cpus: int) -> Actors:
    """Replace values of 0 by what suits the connected cluster.

    Args:
        n: Number of actors; by default one for each GPU, or for each CPU if there is no GPU.
        n_cpus: CPUs of each; by default the GPU's share of its node, or 1 if there is no GPU.
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
    """Return whether the connected cluster has room for one of these actors now."""
    # The sum of what is free can mislead: two nodes may have half a GPU each.
    room = placement_group([{"CPU": actors.n_cpus, "GPU": actors.n_gpus}])
    try:
        return bool(room.wait(SETTLED_S))
    finally:
        remove_placement_group(room)


@dataclass(slots=True)
class Report:
    """Counts of the rows.

    Attributes:
        before: Rows that were there from earlier runs.
        known: Rows that came from the library, without analysis.
        errors: Rows of errors; ``passing`` of them are temporary, and not remembered.
    """

    before: int = 0
    known: int = 0
    heard: int = 0
    errors: int = 0
    passing: int = 0

    @property
    def n_done(self) -> int:
        """Number of all rows that are there now."""
        return self.before + self.known + self.heard + self.errors


class Backfill:
    """Analyses files on the connected cluster; one run at a time for a destination."""

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
            library: Where tracks go; they belong to the operator.
            destination: Where the tables go.
            options: What the actors are made with.
            actors: Number and resources of the actors.
            tell: Called after every step.
            tell_waiting: Called if there are files to analyse but no room yet for an actor.
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
        """Make a row for every file that was listed.

        Raises:
            DestinationError: Another run writes there, or it is unavailable or has other files.
            NodeFullError: A disk of a node is full.
            OtherCheckpointsError: A node's checkpoints are not this machine's.
            RayError: No actor could be made, or the fault would affect every file.
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
        """Yield the files to analyse; the rows of all others exist, or are made here."""
        done, named = self._destination.done(), set[str]()
        for one in listed:
            source = source_row(one, self._made_by)
            if source["id"] in done:
                self.report.before += 1
                self._settled.add(one.location)
                continue
            if source["id"] in named:  # a table may have a file twice
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
        """Return the row of an unchanged file that the library has, if by these checkpoints."""
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
        context.memory_usage_poll_interval_s = None  # would read all pages of the actor each second
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
            batch_size=n_rows,  # without one, Ray Data refuses actors with a GPU
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
