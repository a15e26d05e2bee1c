"""How the shipped scaling policies meet a burst: waiting time, replicas and cost, simulated.

Jobs arrive at random, fifty times as many for ten minutes. They wait in the lanes, are decoded by
workers and analysed by two deployments that share cards; jobs that would wait too long are refused.
The policies and delays are those of ``configs/serve.gpu.yaml``, and so are the bounds at the small
load; service times are the project's own, measured for work on a CPU, and calculated from
operations and peak rate for work on a GPU. Nothing here ran on a GPU.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from ray.serve.config import AutoscalingConfig

from benchmarks.report import Options, Result, Target
from serve_app.deployments.autoscaling import BACKLOG, BUSY
from serve_app.ledger.jobs.records import JobPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "scaling"

SERVE_FILE = Path(__file__).parents[2] / "configs" / "serve.gpu.yaml"
TRACK_S = 180.0
DECODE_S = 0.11 * TRACK_S / 60
"""CPU seconds of a track, MP3 320k; measured by `afa bench decode`: .11 per minute."""
OWN_S: Mapping[str, float] = {"Spectral": 0.011, "MoodAndEmbedding": 0.011}
"""CPU seconds of a track in the replica's own process, where threads take turns. For 180 s,
measured: .004 or .006 to round it to float16, as was then done, and copy it, .002 to pass it on.
Counted: 470 or 420 kernel calls in batches of 8 tracks, at an estimated 10 µs."""
FINISH_S: Mapping[str, float] = {"Spectral": 0.091}
"""CPU seconds of a track in a process that finishes tracks, one per CPU; measured for 180 s."""
BESIDE = 0.65
"""Relative speed of a CPU with another one busy: two processes on two virtual CPUs did 1.3 times as
much as one, measured."""
DEVICE_S: Mapping[str, float] = {"MoodAndEmbedding": 0.015}
"""Card seconds for a track's AST: 261 GFLOP per window at .4 of 790 TFLOP/s, calculated.
`Spectral`'s forwards take far less."""
START_S: Mapping[str, float] = {"AnalysisWorker": 20.0}
GPU_START_S = 90.0
"""For a node, an environment, checkpoints and warm-up, if a node must be added."""

BURST = 50
BEFORE_S, BURST_S, AFTER_S = 300.0, 600.0, 2700.0
STEP_S = 0.5
PACE_S = 30.0
"""Waits are predicted from the mean pace over about this long."""
CARDS = (1, 2, 4, 8, 16)
MOST_P95_S = 30.0
MAIN_CARDS = 16


@dataclass(frozen=True, slots=True)
class Load:
    """The arriving load.

    Attributes:
        name: Name of this load.
        base_per_s: Tracks per second outside the burst.
        workers_per_card: 0 for the bounds of the Serve file. Otherwise at least its workers, and as
            many replicas of each model as there are cards.
    """

    name: str
    base_per_s: float
    workers_per_card: int = 0

    def per_s(self, now_s: float) -> float:
        """Return how many tracks per second arrive now on average."""
        is_burst = BEFORE_S <= now_s < BEFORE_S + BURST_S
        return self.base_per_s * (BURST if is_burst else 1)

    def most(self, row: Mapping[str, Any], cards: int) -> dict[str, int]:
        """Return the upper bound of a deployment, if it is not that of the Serve file."""
        if not self.workers_per_card:
            return {}
        if "num_gpus" in row["ray_actor_options"]:
            return {"max_replicas": cards}
        shipped = int(row["autoscaling_config"]["max_replicas"])
        return {"max_replicas": max(shipped, cards * self.workers_per_card)}


SMALL = Load("small", 0.6)
LARGE = Load("large", 4.0, workers_per_card=8)
"""Fewer workers have too few jobs in progress for more replicas of a model to be requested."""


@dataclass(slots=True)
class Job:
    """One track on its way."""

    came_s: float
    began_s: float = 0.0
    left: int = 2


@dataclass(slots=True)
class Door:
    """Accepts jobs as the service does: none that would wait too long at the recent pace."""

    pace: float
    n_came: int = 0
    n_refused: int = 0

    def let_in(self, coming: list[Job], n_waiting: int) -> list[Job]:
        """Return the accepted jobs: all of a step, or none."""
        self.n_came += len(coming)
        if n_waiting <= self.pace * JobPolicy().max_wait_s:
            return coming
        self.n_refused += len(coming)
        return []

    def note(self, n_done: int) -> None:
        """Note how many jobs were done in a step."""
        self.pace += (n_done / STEP_S - self.pace) * STEP_S / PACE_S


@dataclass
class Deployment:
    """Replicas of one deployment: a queue, a rate, and Serve's autoscaler around the policy."""

    name: str
    row: Mapping[str, Any]
    tracks_per_s: float
    most: Mapping[str, int]
    queue: deque[Job] = field(default_factory=deque)
    running: int = 0
    starting: list[float] = field(default_factory=list)
    credit: float = 0.0
    seen: deque[tuple[float, float]] = field(default_factory=deque)
    wished_s: float = 0.0
    wish: int = 0
    n_changes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = AutoscalingConfig(**self.row["autoscaling_config"] | self.most)
        self.policy = self.config.policy.get_policy()(**self.config.policy.policy_kwargs)
        self.running = self.config.min_replicas
        self.share = self.row["ray_actor_options"].get("num_gpus", 0.0)
        self.start_s = START_S.get(self.name, GPU_START_S)

    @property
    def target_num_replicas(self) -> int:
        """Number of running and starting replicas."""
        return self.running + len(self.starting)

    @property
    def current_num_replicas(self) -> int:
        """Number of running replicas."""
        return self.running

    total_num_requests = 1.0
    total_queued_requests = 0.0

    @property
    def aggregated_metrics(self) -> dict[str, dict[str, float]]:
        """Each replica's mean over Serve's look-back period."""
        backlog, busy = (fmean(values) for values in zip(*self.seen, strict=True))
        names = [str(n) for n in range(self.running)]
        return {BACKLOG: dict.fromkeys(names, backlog), BUSY: dict.fromkeys(names, busy)}

    def serve(self) -> Iterator[Job]:
        """Do one step's work; yield the jobs that are done."""
        capacity = self.running * self.tracks_per_s * STEP_S
        self.credit = min(self.credit, 1.0) + capacity
        n_done = min(int(self.credit), len(self.queue))
        self.credit -= n_done
        self.busy = min(1.0, n_done / capacity)
        for _ in range(n_done):
            yield self.queue.popleft()

    def backlog_s(self) -> float:
        """Seconds of work waiting at each replica."""
        return len(self.queue) / (self.running * self.tracks_per_s)

    def scale(self, now_s: float, backlog_s: float, busy: float, room: float) -> None:
        """Note what a replica would report; do what the policy has requested for long enough.

        Args:
            now_s: The time.
            backlog_s: See `BACKLOG`.
            busy: See `BUSY`.
            room: Cards that are free for this deployment's share.
        """
        ready = [at for at in self.starting if at <= now_s]
        self.running += len(ready)
        self.starting = [at for at in self.starting if at > now_s]
        self.seen.append((backlog_s, busy))
        while len(self.seen) > self.config.look_back_period_s / STEP_S:
            self.seen.popleft()
        wanted, _ = self.policy(self)
        wanted = min(max(int(wanted), self.config.min_replicas), self.config.max_replicas)
        target = self.target_num_replicas
        direction = (wanted > target) - (wanted < target)
        if direction != self.wish:
            self.wish, self.wished_s = direction, now_s
        is_up = direction > 0
        delay_s = self.config.upscale_delay_s if is_up else self.config.downscale_delay_s
        if direction == 0 or now_s - self.wished_s < delay_s:
            return
        self.wished_s = now_s
        if is_up:
            n_more = wanted - target
            if self.share:
                n_more = min(n_more, int(room / self.share + 1e-9))
            self.starting += [now_s + self.start_s] * n_more
        else:
            n_fewer = target - wanted
            self.running -= n_fewer
        if wanted != target:
            self.n_changes.append(direction)


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated hour, step by step."""

    times_s: list[float]
    waiting: list[int]
    replicas: Mapping[str, list[int]]
    waits_s: list[float]
    refused: float
    card_hours: float
    flaps: int


def cpus_of(row: Mapping[str, Any]) -> float:
    """Return the CPUs of a replica."""
    return float(row["ray_actor_options"]["num_cpus"])


def profile() -> dict[str, Any]:
    """Return the application of the Serve file."""
    return dict(yaml.safe_load(SERVE_FILE.read_text(encoding="utf-8"))["applications"][0])


def limits(row: Mapping[str, Any]) -> dict[str, float]:
    """Tracks per second that a replica of a model could do, by limiting resource."""
    name = row["name"]
    found = {"own process": 1 / OWN_S[name]}
    if name in FINISH_S:
        found["finishing"] = cpus_of(row) * BESIDE / FINISH_S[name]
    if name in DEVICE_S:
        found["card"] = 1 / DEVICE_S[name]
    return found


def simulate(cards: int, load: Load = SMALL, seed: int = 0) -> Run:
    """Simulate a burst on some number of cards."""
    chance = np.random.default_rng(seed)
    content = profile()
    rows = {row["name"]: row for row in content["deployments"]}
    slots = content["args"]["worker"]["concurrent_jobs"]
    row = rows["AnalysisWorker"]
    worker = Deployment("AnalysisWorker", row, cpus_of(row) / DECODE_S, load.most(row, cards))
    models = [
        Deployment(name, rows[name], min(limits(rows[name]).values()), load.most(rows[name], cards))
        for name in ("Spectral", "MoodAndEmbedding")
    ]
    lane: deque[Job] = deque()
    run = Run([], [], {one.name: [] for one in (worker, *models)}, [], 0.0, 0.0, 0)
    card_steps, n_in_flight, n_steps = 0.0, 0, int((BEFORE_S + BURST_S + AFTER_S) / STEP_S)
    door = Door(load.base_per_s)
    for step in range(n_steps):
        now_s = step * STEP_S
        coming = [Job(now_s) for _ in range(chance.poisson(load.per_s(now_s) * STEP_S))]
        lane.extend(door.let_in(coming, len(lane)))
        while lane and n_in_flight < worker.running * slots:
            job = lane.popleft()
            job.began_s = now_s
            run.waits_s.append(now_s - job.came_s)
            worker.queue.append(job)
            n_in_flight += 1
        for job in worker.serve():
            for model in models:
                model.queue.append(job)
        n_done = 0
        for model in models:
            for job in model.serve():
                job.left -= 1
                n_done += job.left == 0
        n_in_flight -= n_done
        door.note(n_done)
        used = sum(one.share * one.target_num_replicas for one in models)
        wait_s = now_s - lane[0].came_s if lane else 0.0
        worker.scale(now_s, wait_s, n_in_flight / (worker.running * slots), room=0.0)
        for model in models:
            model.scale(now_s, model.backlog_s(), model.busy, room=max(0.0, cards - used))
            used = sum(one.share * one.target_num_replicas for one in models)
        card_steps += ceil(used - 1e-9)
        if step % 20 == 0:
            run.times_s.append(now_s)
            run.waiting.append(len(lane))
            for one in (worker, *models):
                run.replicas[one.name].append(one.running)
    flaps = sum(
        before > 0 > now
        for one in (worker, *models)
        for before, now in zip(one.n_changes, one.n_changes[1:], strict=False)
    )
    hours = card_steps * STEP_S / 3600
    refused = door.n_refused / door.n_came
    return Run(run.times_s, run.waiting, run.replicas, run.waits_s, refused, hours, flaps)


def run(options: Options) -> Result:
    """Simulate both bursts on 1 to 16 cards."""
    runs = {
        (load, cards): simulate(cards, load)
        for load in (SMALL, LARGE)
        for cards in ((1, MAIN_CARDS) if options.is_quick else CARDS)
    }
    hours = (BEFORE_S + BURST_S + AFTER_S) / 3600
    rows: list[tuple[object, ...]] = []
    values: dict[str, object] = {
        "tracks_per_s_of_a_replica": {
            row["name"]: {by: round(rate, 1) for by, rate in limits(row).items()}
            for row in profile()["deployments"]
            if row["name"] in OWN_S
        }
    }
    for (load, cards), played in runs.items():
        p50, p95 = (quantiles(played.waits_s, n=20)[n] for n in (9, 18))
        most = {name: max(counts) for name, counts in played.replicas.items()}
        values[f"{load.name} load, {cards} cards"] = {
            "jobs": len(played.waits_s),
            "refused": round(played.refused, 3),
            "wait_p50_s": round(p50, 1),
            "wait_p95_s": round(p95, 1),
            "wait_max_s": round(max(played.waits_s), 1),
            "most_replicas": most,
            "card_hours": round(played.card_hours, 2),
            "of_always_on": round(played.card_hours / (cards * hours), 3),
        }
        rows.append(
            (
                f"{load.base_per_s:g}, then {load.base_per_s * BURST:g}",
                cards,
                played.refused,
                p50,
                p95,
                max(played.waits_s),
                " / ".join(str(count) for count in most.values()),
                played.card_hours,
                played.card_hours / (cards * hours),
            )
        )
    main = runs[SMALL, MAIN_CARDS]
    return Result(
        NAME,
        values=values,
        columns=(
            "tracks a second",
            "cards at most",
            "refused",
            "wait p50 s",
            "wait p95 s",
            "longest s",
            "most workers / spectral / mood",
            "card hours",
            "of always on",
        ),
        rows=rows,
        targets=(
            Target(
                "p95 wait of the small load with 16 cards, s",
                quantiles(main.waits_s, n=20)[18],
                MOST_P95_S,
                at_least=False,
            ),
        ),
        draw=lambda axes: _draw(axes, runs[LARGE, MAIN_CARDS]),
    )


def _draw(axes: "Axes", played: Run) -> None:
    minutes = [at / 60 for at in played.times_s]
    axes.fill_between(minutes, played.waiting, color="0.85", label="jobs that wait")
    axes.set(
        xlabel="minutes", ylabel="jobs that wait", title="From 4 to 200 tracks a second, 16 cards"
    )
    beside = axes.twinx()
    for name, counts in played.replicas.items():
        beside.step(minutes, counts, where="post", label=name)
    beside.set_ylabel("replicas")
    beside.legend(loc="upper right")
