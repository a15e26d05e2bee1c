"""Jobs: the work, the record, its states, and what a worker holds while it runs one.

States only move queued → running → complete | failed, and running → queued when a lease is lost or
the audio at an address has been fetched.
The work is stored as JSON: names never change their meaning, and every absent one has a default,
so that jobs queued before a deploy survive it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Literal

from serve_app.domain.credits import Balance

JOB_HOLD_PREFIX = "job:"


class JobState(StrEnum):
    """The four states of the API."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the state can no longer change."""
        return self in (JobState.COMPLETE, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Audio in the object store; ``sha256`` and ``media_type`` are "" if they are not known."""

    kind: ClassVar[str] = "object"
    key: str
    sha256: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class UrlSource:
    """Audio at a public address; ``host`` is the host of the address, for logs and quotas."""

    kind: ClassVar[str] = "url"
    url: str
    host: str | None = None


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file on the worker's disk; only the operator's catalog can name one."""

    kind: ClassVar[str] = "file"
    path: str


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """Audio that a test key sent: nothing is decoded, ``seed`` decides the answer.

    Attributes:
        key: Where the uploaded bytes are kept until the job ends; "" when nothing was uploaded.
    """

    kind: ClassVar[str] = "simulated"
    seed: str
    key: str = ""


Stage = Literal["fetch", "analyse"]
"""A job waits in the lanes of its next stage; a fetch ends by passing it on to the other."""

Source = ObjectSource | UrlSource | FileSource | SimulatedSource
SOURCES: dict[str, type[Source]] = {
    source.kind: source for source in (ObjectSource, UrlSource, FileSource, SimulatedSource)
}


def source_to_json(source: Source) -> dict[str, Any]:
    """Write a source as plain JSON types."""
    return {"kind": source.kind} | asdict(source)


def source_from_json(plain: Mapping[str, Any]) -> Source:
    """Read a source; fields that this version does not know are ignored.

    Raises:
        ValueError: It is of no known kind.
    """
    kind = SOURCES.get(plain["kind"])
    if kind is None:
        raise ValueError(f"unknown kind of source: {plain['kind']!r}")
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in plain.items() if name in names})


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """What a worker is to do.

    Attributes:
        source: The audio.
        max_audio_s: Longest audio that the tier allows.
        max_bytes: Largest file that the tier allows.
        format: The shape that the customer asked for at submission; None for the canonical one.
        include_embedding: Whether the result is to hold the embedding.
        cache_key: Where the features are cached; "" when they are the customer's alone.
        is_for_lookup: Whether a look-up waits for it; nobody receives the id of such a job.
        library_id: The library's track that the features are kept with; "" for none.
        tempo_range: BPM that the tempo must be between; None leaves it to the audio.
        trace_id: Trace id of the request that asked for it; for logs.
        span_id: Id of that request's span, the parent of the job's; "" if it was not traced.
        embedding_model: Model that makes the embedding; "" for the chosen one.
    """

    source: Source
    max_audio_s: float
    max_bytes: int
    format: str | None = None
    include_embedding: bool = False
    cache_key: str = ""
    is_for_lookup: bool = False
    library_id: str = ""
    tempo_range: tuple[float, float] | None = None
    trace_id: str = ""
    span_id: str = ""
    embedding_model: str = ""

    @property
    def stage(self) -> Stage:
        """The next stage: audio at an address is fetched before anything is analysed."""
        return "fetch" if isinstance(self.source, UrlSource) else "analyse"

    def to_json(self) -> dict[str, Any]:
        """Write as plain JSON types."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"source": source_to_json(self.source)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "AnalysisJob":
        """Read a job, even one that an earlier version wrote.

        Raises:
            ValueError: Its source is of no known kind.
        """
        cache_key, tempo_range = plain.get("cache_key", ""), plain.get("tempo_range")
        return cls(
            source=source_from_json(plain["source"]),
            max_audio_s=plain["max_audio_s"],
            max_bytes=plain["max_bytes"],
            format=plain.get("format"),
            include_embedding=plain.get("include_embedding", False),
            cache_key=cache_key,
            # 0.1 did not store it, but gave a cache key only for look-ups
            is_for_lookup=plain.get("is_for_lookup", bool(cache_key)),
            library_id=plain.get("library_id", ""),
            tempo_range=None if tempo_range is None else (tempo_range[0], tempo_range[1]),
            trace_id=plain.get("trace_id", ""),
            span_id=plain.get("span_id", ""),
            embedding_model=plain.get("embedding_model", ""),
        )


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to submit. Submitting the same id and fingerprint again changes nothing."""

    job_id: str
    account: str
    tier: str
    work: AnalysisJob
    cost: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job failed, in words for the customer."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as its owner may see it.

    Attributes:
        balance: The owner's credits right after submission; None when the job was read later.
    """

    job_id: str
    account: str
    tier: str
    state: JobState
    progress: float
    stage: str
    attempts: int
    cost: int
    credits_used: int
    work: AnalysisJob
    error: JobFailure | None
    created_at: datetime
    finished_at: datetime | None
    result: bytes | None
    balance: Balance | None = None


@dataclass(frozen=True, slots=True, order=True)
class JobPosition:
    """A job's position in its owner's list, oldest first."""

    created_ms: int
    job_id: str


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job as a listing shows it: without its work and its result.

    Attributes:
        trace_id: Trace id of the request that asked for it, if the job failed; otherwise "".
    """

    position: JobPosition
    state: JobState
    progress: float
    stage: str
    credits_used: int
    error: JobFailure | None
    trace_id: str
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one attempt of a job; its ``fence`` invalidates every older claim."""

    job_id: str
    account: str
    tier: str
    work: AnalysisJob
    cost: int
    attempt: int
    fence: int
    token: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one sweep did; ``left_behind`` are the stored objects of the jobs that it failed."""

    requeued: int = 0
    failed: int = 0
    enqueued: int = 0
    left_behind: tuple[str, ...] = ()
