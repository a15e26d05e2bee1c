"""The actor that analyses files: the service's steps and batchers, with paths as input.

Invariant: every file gives one row, with the result or with what was wrong. Only a missing
checkpoint or a broken device, which would fail every file, is raised.
"""

import asyncio
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import torch

from pipelines.analysis import mood_and_embedding, spectral
from pipelines.analysis.features import to_json
from pipelines.analysis.records import TrackFeatures
from pipelines.analysis.whole import PreparedTrack, WholeAnalysis
from pipelines.audio.decode import decode
from pipelines.batching.backfill import backfill
from pipelines.batching.device import ANY_PROCESSOR, Turns
from pipelines.batching.runner import BatchedStep
from pipelines.fingerprint.make import make_chromaprint
from serve_app.composition.execution import execution_on
from serve_app.composition.options import ModelOptions
from serve_app.deployments.placement import assigned_cpus, replica_device
from serve_app.domain import identity as identity_json
from serve_app.library.track import TrackFile
from serve_app.providers.tags.identity import TaggedIdentity
from serve_app.services.failure import Failure
from serve_app.services.scan.entries import Hearing
from serve_app.services.scan.facts import LIMITS, Stamp
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import FULL, Found, Place
from serve_app.services.scan.reading import read_file

PASSES_ON_CPU = 8
"""Forward passes per batch on a CPU; with only one, waking threads takes a tenth of the time."""

SOURCE = pa.schema(
    [("location", pa.string()), ("size_bytes", pa.int64()), ("mtime_ns", pa.int64())]
)

ANSWER = pa.schema(
    [
        *SOURCE,
        ("content_sha256", pa.string()),
        ("audio_sha256", pa.string()),
        ("identity", pa.binary()),
        ("sources", pa.string()),
        ("record", pa.binary()),
        ("fingerprint", pa.string()),
        ("code", pa.string()),
        ("message", pa.string()),
    ]
)
"""The result of a file, or ``code`` and ``message`` of what was wrong."""

NODE_FULL = "node_full"
"""Code of a file for which a disk of the node had no room."""


@dataclass(frozen=True, slots=True)
class HearerOptions:
    """What every actor of a run is made with.

    Attributes:
        place: Where the files are.
        spectral: Checkpoints and batches for rhythm and key; ``embedding`` has those for the rest.
        catalog_dir: On the actor's own node, like ``fingerprint_dir``; may be missing there.
    """

    place: Place
    spectral: ModelOptions
    embedding: ModelOptions
    catalog_dir: Path
    fingerprint_dir: Path


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that is ready for the batchers."""

    file: TrackFile
    named: TaggedIdentity
    fingerprint: str | None
    prepared: PreparedTrack


@dataclass(frozen=True, slots=True)
class _Heard:
    file: TrackFile
    named: TaggedIdentity
    hearing: Hearing


class Hearer:
    """Analyses blocks of files; several at once share its batchers."""

    def __init__(self, options: HearerOptions) -> None:
        """Load the checkpoints, after fetching them if they are published.

        Raises:
            ServiceUnavailableError: The store of published checkpoints is unavailable.
            DamagedPublicationError: What the store has is not what was published.
            CardError: A checkpoint is not known, or not allowed.
            CheckpointError: A checkpoint is not on this node, or not what its card says.
            DeviceMissingError: Ray gave a GPU, but CUDA finds none.
        """
        options.embedding.follow()
        self._place = options.place
        self._naming = Naming.open(options.catalog_dir, options.fingerprint_dir)
        self._n_readers = assigned_cpus()
        torch.set_num_threads(self._n_readers)
        device, turns = replica_device(options.embedding.device), Turns()
        is_cpu = device.type == "cpu"
        passes = PASSES_ON_CPU if is_cpu else 1
        self._processor = Lock() if is_cpu and self._n_readers == 1 else ANY_PROCESSOR
        execution = execution_on(device, options.embedding)
        model_dir, cards = options.embedding.model_dir, options.embedding.cards()
        self._analysis = WholeAnalysis(
            BatchedStep(
                spectral.build(cards, model_dir, device),
                device,
                options.spectral.batch_windows,
                max_batch_bytes=options.spectral.batch_mib << 20,
                passes=passes,
                host_threads=self._n_readers,
                finishers=self._n_readers if device.type == "cuda" else 0,
                turns=turns,
                processor=self._processor,
            ),
            BatchedStep(
                mood_and_embedding.build(
                    cards, model_dir, device, options.embedding.max_windows, execution
                ),
                device,
                options.embedding.batch_windows,
                max_batch_bytes=options.embedding.batch_mib << 20,
                passes=passes,
                host_threads=self._n_readers,
                turns=turns,
                processor=self._processor,
            ),
        )
        self._compiling = asyncio.Lock()
        self._is_compiled = False

    async def __call__(self, files: pa.Table) -> pa.Table:
        """Analyse a block of files.

        Args:
            files: The files, with the schema `SOURCE`.

        Returns:
            A row for each file, with the schema `ANSWER`, in the order of completion.

        Raises:
            DeviceFaultError: The device broke.
            DecoderUnavailableError: Nothing can be decoded on this node.
        """
        await self._compile()
        rows: list[dict[str, Any]] = []
        await backfill(
            [Found(**row) for row in files.to_pylist()],
            self._read,
            self._complete,
            lambda found, outcome: rows.append(_row(found, outcome)),
            self._analysis.wants_more,
            self._n_readers,
        )
        return pa.Table.from_pylist(rows, schema=ANSWER)

    async def _compile(self) -> None:
        async with self._compiling:
            if not self._is_compiled:
                await self._analysis.compile()
                self._is_compiled = True

    def _read(self, found: Found) -> _Read:
        with self._place.at_hand(found) as path:
            stamp = Stamp.of(path)
            # Reads the whole file, so that nothing waits for a slow disk while it has a processor.
            file, named = read_file(found, path, self._naming)
            with self._processor:
                waveform = decode(path, LIMITS)
                stamp.check(path)
                prepared = self._analysis.prepare(waveform)
                fingerprint = make_chromaprint(waveform)
        return _Read(file, named, fingerprint, prepared)

    async def _complete(self, read: _Read) -> _Heard:
        features = await self._analysis.complete(read.prepared)
        return _Heard(read.file, read.named, Hearing(features, read.fingerprint))


def _row(found: Found, outcome: _Heard | Exception) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(ANSWER.names)
    row |= {
        "location": found.location,
        "size_bytes": found.size_bytes,
        "mtime_ns": found.mtime_ns,
    }
    if isinstance(outcome, OSError) and outcome.errno in FULL:
        return row | {"code": NODE_FULL, "message": f"{socket.gethostname()}: {outcome}"}
    if isinstance(outcome, Exception):
        failure = Failure.of(outcome)
        return row | {"code": failure.code, "message": failure.message}
    features: TrackFeatures = outcome.hearing.features
    return row | {
        "content_sha256": outcome.file.content_sha256,
        "audio_sha256": outcome.file.audio_sha256,
        "identity": identity_json.to_json(outcome.named.identity),
        "sources": json.dumps(dict(outcome.named.sources)),
        "record": to_json(features),
        "fingerprint": outcome.hearing.fingerprint,
    }
