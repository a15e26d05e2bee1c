"""Tempo requests at one, two and four times what the service can do: goodput, latency, refusals.

The real API on Serve, including ledger and uploads, in front of a stand-in for the tempo deployment
with a known capacity (it waits and computes nothing). Open loop, Poisson arrivals. Afterwards the
ledger is audited: every 200 answer charged once, nothing else charged, no hold left open; refusals
that had a hold first are counted.
"""

import asyncio
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.api import BpmPlan, serving
from benchmarks.harness.scene import Scene, open_scene
from benchmarks.overload.load import Arrivals, OpenLoad, run_open_load
from benchmarks.report import Options, Result, Target
from benchmarks.server_process import LOCAL, THROUGHPUT
from serve_app.composition.stores import open_stores
from serve_app.ledger.journal import Journal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "overload"

PLAN = BpmPlan(service_s=0.2, concurrent=4, max_ongoing=32, max_queued=8)
"""Concurrency and queue of one replica of `configs/serve.local.yaml`."""
CAPACITY_PER_S = PLAN.concurrent / PLAN.service_s
FACTORS = (1, 2, 4)
DURATION_S, QUICK_S = 8.0, 4.0
BODY_BYTES = 20_000
PROFILES = (LOCAL, THROUGHPUT)
LEAST_GOODPUT = 0.9


@dataclass(frozen=True, slots=True)
class Books:
    """The state of the ledger after a profile's rounds."""

    committed: int
    voided: int
    open_holds: int
    mismatches: int


Rounds = Mapping[int, list[Arrivals]]
"""Factor → its rounds."""


def run(options: Options) -> Result:
    """Measure both profiles."""
    found: dict[str, tuple[Rounds, Books]] = {}
    for profile in PROFILES:
        with open_scene() as scene:
            found[profile] = overload(profile, scene, options), asyncio.run(read_books(scene))
    return summarise(found, options)


def overload(profile: str, scene: Scene, options: Options) -> Rounds:
    """Apply every factor in turn, over and over."""
    duration_s = QUICK_S if options.is_quick else DURATION_S
    heads = [
        "POST /v1/bpm HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: audio/mpeg\r\n"
        f"Content-Length: {BODY_BYTES}\r\n\r\n"
        for key in scene.keys
    ]
    rounds: dict[int, list[Arrivals]] = {factor: [] for factor in FACTORS}
    with serving(profile, scene.stores, scene.catalog_dir, PLAN) as server:
        warm = OpenLoad(server.port, heads, BODY_BYTES, CAPACITY_PER_S / 2, 2.0, 0)
        warm_up = run_open_load(warm)
        if not warm_up.served_s:
            raise RuntimeError(f"nothing was served: {warm_up.others}")
        for seed in range(options.rounds):
            for factor in FACTORS:
                per_s = factor * CAPACITY_PER_S
                load = OpenLoad(server.port, heads, BODY_BYTES, per_s, duration_s, seed)
                rounds[factor].append(run_open_load(load))
    return rounds


async def read_books(scene: Scene) -> Books:
    """Audit every account that took part."""
    stores = open_stores(scene.stores)
    journal = Journal(stores.ledger_store)
    try:
        kinds = [
            entry.kind
            for number in range(len(scene.keys))
            for entry in await journal.entries(f"bench-{number}")
        ]
        report = await journal.audit()
    finally:
        await stores.close()
    return Books(
        kinds.count("commit"), kinds.count("void"), report.open_holds, len(report.mismatches)
    )


def summarise(found: Mapping[str, tuple[Rounds, Books]], options: Options) -> Result:
    """Compile the figures."""
    rows: list[tuple[str, int, float, float, float, float, float]] = []
    values: dict[str, dict[str, object]] = {}
    targets: list[Target] = []
    for profile, (rounds, books) in found.items():
        figures = {factor: figures_of(measured) for factor, measured in rounds.items()}
        for factor, of in figures.items():
            served = of["served_p50_s"], of["served_p99_s"]
            refused = of["refused_p50_s"], of["refused_p99_s"]
            rows.append((profile, factor, of["goodput_per_s"], *served, *refused))
        goodput = {factor: of["goodput_per_s"] for factor, of in figures.items()}
        others: dict[str, int] = {}
        for one in (one for measured in rounds.values() for one in measured):
            for outcome, n in one.others.items():
                others[outcome] = others.get(outcome, 0) + n
        n_refused = sum(len(one.refused_s) for measured in rounds.values() for one in measured)
        values[profile] = {
            "by_factor": {str(factor): of for factor, of in figures.items()},
            "goodput_2x": round(goodput[2] / goodput[1], 4),
            "goodput_4x": round(goodput[4] / goodput[1], 4),
            "malformed": others,
            "refused": n_refused,
            "refused_after_a_hold": books.voided,
            "open_holds": books.open_holds,
            "ledger_mismatches": books.mismatches,
        }
        targets += [
            Target(f"{profile}: goodput at 2 x", goodput[2] / goodput[1], LEAST_GOODPUT),
            Target(f"{profile}: goodput at 4 x", goodput[4] / goodput[1], LEAST_GOODPUT),
            Target(f"{profile}: malformed refusals", sum(others.values()), 0, at_least=False),
            Target(f"{profile}: open holds", books.open_holds, 0, at_least=False),
            Target(
                f"{profile}: refused after a hold",
                books.voided / max(1, n_refused),
                0.2,
                at_least=False,
            ),
        ]
    return Result(
        NAME,
        values={
            "profiles": values,
            "capacity_per_s": CAPACITY_PER_S,
            "plan": PLAN.model_dump(),
            "rounds": options.rounds,
        },
        columns=(
            *("profile", "load", "goodput/s", "served p50, s", "served p99, s"),
            *("refused p50, s", "refused p99, s"),
        ),
        rows=rows,
        targets=targets,
        draw=lambda axes: _draw(axes, rows),
    )


def figures_of(measured: list[Arrivals]) -> dict[str, float]:
    """Return the medians over the rounds of one factor."""

    def quantile(latencies_s: list[float], share: float) -> float:
        return float(np.quantile(latencies_s, share)) if latencies_s else 0.0

    def median(name: str, share: float) -> float:
        return round(statistics.median(quantile(getattr(one, name), share) for one in measured), 4)

    return {
        "goodput_per_s": round(
            statistics.median(len(one.served_s) / one.taken_s for one in measured), 3
        ),
        "served_p50_s": median("served_s", 0.5),
        "served_p99_s": median("served_s", 0.99),
        "refused_p50_s": median("refused_s", 0.5),
        "refused_p99_s": median("refused_s", 0.99),
    }


def _draw(axes: "Axes", rows: list[tuple[str, int, float, float, float, float, float]]) -> None:
    for profile in PROFILES:
        of = [row for row in rows if row[0] == profile]
        axes.plot([row[1] for row in of], [row[2] for row in of], marker="o", label=profile)
    axes.axhline(CAPACITY_PER_S, linestyle="--", color="tab:gray", label="capacity")
    axes.set(
        xlabel="offered load / capacity",
        ylabel="answers 200 per second",
        ylim=(0, None),
        title="Overload",
    )
    axes.legend()
