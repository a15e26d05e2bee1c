"""All our metrics, and how their values are reported.

Code that measures calls `Metric.record`. What shows the values is set once per process with
`show_with`; without it nothing happens. Invariant: a label has few values. What a customer sends
(paths, ids, tracks, hosts) never becomes one, and beyond `MOST_VALUES` a value counts as ``other``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from serve_app.domain.telemetry.facts import known_facts

Kind = Literal["counter", "gauge", "histogram"]
Recorder = Callable[["Metric", float, Mapping[str, str]], None]

MOST_VALUES = 100
OTHER = "other"

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds of buckets."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric.

    Attributes:
        name: Without Ray's prefix of names (``ray_``) and suffix of counters (``_total``).
        labels: The labels that distinguish its values.
        buckets: Upper bounds of a histogram's buckets.
    """

    kind: Kind
    name: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    _seen: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        METRICS[self.name] = self

    def record(self, value: float, **labels: str) -> None:
        """Add to a counter, set a gauge, or put a value into a histogram."""
        if _recorder is not None:
            _recorder(self, value, {name: self._bounded(name, labels[name]) for name in labels})

    def _bounded(self, name: str, value: str) -> str:
        seen = self._seen.setdefault(name, set())
        if value not in seen:
            if len(seen) >= MOST_VALUES:
                return OTHER
            seen.add(value)
        return value


METRICS: dict[str, Metric] = {}
"""All metrics by name."""

_recorder: Recorder | None = None


def show_with(recorder: Recorder | None) -> None:
    """Report every value to ``recorder`` from now on."""
    global _recorder
    _recorder = recorder


REQUESTS = Metric(
    "counter",
    "afa_requests",
    "Requests by the route's template and status; route is `none` where no key was given.",
    ("route", "status"),
)
REQUEST_SECONDS = Metric(
    "histogram",
    "afa_request_seconds",
    "From a request's head to the end of its answer.",
    ("route",),
    SECONDS,
)

LANE = ("stage", "lane")
LANE_WAITING = Metric("gauge", "afa_lane_waiting_jobs", "Jobs in line.", LANE)
LANE_RUNNING = Metric("gauge", "afa_lane_running_jobs", "Jobs that workers have.", LANE)
LANE_WAIT = Metric(
    "gauge",
    "afa_lane_oldest_wait_seconds",
    "How long the job has waited that is longest in line, of owners who may run one more.",
    LANE,
)
UNFINISHED = Metric("gauge", "afa_jobs_unfinished", "Jobs taken in that have not ended.")
JOBS_ENDED = Metric(
    "counter",
    "afa_jobs_ended",
    "Jobs that ended; code is the error's, or empty.",
    ("outcome", "code"),
)
JOB_ATTEMPTS_LOST = Metric(
    "counter",
    "afa_job_attempts_lost",
    "Attempts that ended without their job: it was queued again.",
    ("code",),
)
JOB_SECONDS = Metric(
    "histogram",
    "afa_job_run_seconds",
    "From a worker's claim to the end of the attempt.",
    ("stage", "outcome"),
    SECONDS,
)
CREDITS = Metric(
    "counter",
    "afa_credits_charged",
    "Credits charged, by route, or `job` for analyses; key is live or test.",
    ("operation", "key"),
)
HOLDS = Metric("gauge", "afa_holds_open", "Credits set aside: how many times.")
HOLD_OVERDUE = Metric(
    "gauge",
    "afa_hold_overdue_seconds",
    "How long ago the hold should have ended that is longest over its deadline.",
)
UNEXPORTED = Metric(
    "gauge",
    "afa_journal_unexported_seconds",
    "Age of the oldest entry of the journal that is not in the archive.",
)
AUDIT_MISMATCHES = Metric(
    "gauge", "afa_audit_mismatches", "Broken rules that the last audit of the ledger found."
)
AUDITED_AT = Metric("gauge", "afa_audit_timestamp_seconds", "When an audit last ended, Unix time.")
CHORES_FAILED = Metric("counter", "afa_chores_failed", "Rounds of a chore that failed.", ("chore",))
CACHE_READS = Metric(
    "counter",
    "afa_cache_reads",
    "Reads of the cache: hit, miss, or away if its Redis does not answer.",
    ("space", "outcome"),
)
PROVIDER_CALLS = Metric(
    "counter",
    "afa_provider_calls",
    "Calls of outside services: ok, error, or skipped without being made.",
    ("provider", "outcome"),
)
PROVIDER_SECONDS = Metric(
    "histogram",
    "afa_provider_seconds",
    "From a call to its answer, its wait for a turn included.",
    ("provider",),
    SECONDS,
)
DECODES = Metric(
    "counter",
    "afa_decodes",
    "Files given to the decoder: ok, the code of its refusal, or how its child was killed.",
    ("outcome",),
)
URLS_BLOCKED = Metric(
    "counter",
    "afa_urls_blocked",
    "Addresses refused because they lead into a private network: as an address, by their name, or "
    "where the name resolves to.",
    ("by",),
)

MODEL = ("model",)
BATCH_WINDOWS = Metric(
    "histogram",
    "afa_batch_windows",
    "Windows in a forward, without padding.",
    MODEL,
    tuple(float(1 << power) for power in range(11)),
)
BATCH_QUEUE_SECONDS = Metric(
    "histogram",
    "afa_batch_queue_seconds",
    "From the submission of a track to the start of its first batch.",
    MODEL,
    SECONDS,
)
BATCH_DEVICE_SECONDS = Metric(
    "histogram", "afa_batch_device_seconds", "Device time of a forward.", MODEL, SECONDS
)
BATCH_SECONDS = Metric(
    "histogram",
    "afa_batch_seconds",
    "From the start of a batch to its outputs, host work included.",
    MODEL,
    SECONDS,
)
BATCH_PADDING = Metric(
    "counter", "afa_batch_padding_windows", "Rows of zeros added to reach an allowed size.", MODEL
)
BATCH_DROPPED = Metric(
    "counter", "afa_batch_dropped_windows", "Queued windows whose caller had gone.", MODEL
)
BATCH_FAILED = Metric("counter", "afa_batch_failed_tracks", "Tracks that failed.", MODEL)
BATCH_REFUSED = Metric(
    "counter", "afa_batch_refused_tracks", "Tracks that found a full queue.", MODEL
)
BATCH_QUEUED = Metric("gauge", "afa_batch_queued_windows", "Windows that wait.", MODEL)
DEVICE_BUSY = Metric(
    "counter",
    "afa_device_busy_seconds",
    "Device time of forwards; Ray's histograms know their sums only by the middle of buckets.",
    MODEL,
)
DEVICE = Metric(
    "gauge", "afa_device_info", "1 for what is loaded, with its device.", ("model", "device")
)
PUBLISHED = Metric(
    "gauge",
    "afa_published_info",
    "1 for the generation that a replica's node has of what is published.",
    ("what", "generation"),
)
WARM_UP = Metric(
    "gauge",
    "afa_warm_up_seconds",
    "From loaded to ready, with all that answers together with it: compilation, a first track.",
    MODEL,
)


def count_charged(credits: int) -> None:
    """Count credits that were just charged, for the current route or job."""
    if credits:
        facts = known_facts()
        operation = facts.get("route", "other")
        CREDITS.record(credits, operation=operation, key=facts.get("key", "live"))
