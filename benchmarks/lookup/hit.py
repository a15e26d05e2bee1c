"""A cache hit by id through Ray Serve, against the same application on one uvicorn process.

Closed loop over keep-alive connections, on a real ledger (append-only file forced to disk always)
and cache. Keys are of the scale tier, as many as it takes to stay below its request rate.
"""

import asyncio
import json
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
from redis.asyncio.connection import AbstractConnection

from benchmarks.harness.api import Plan, serving, surroundings
from benchmarks.harness.load import Load, Measured, request_text, run_load
from benchmarks.harness.scene import N_TRACKS, Scene, open_scene
from benchmarks.report import Options, Result, Target, median_ratio
from benchmarks.server_process import LOCAL, THROUGHPUT, UVICORN
from serve_app.api.asgi import create_app
from serve_app.composition.services import compose_services
from serve_app.composition.stores import open_stores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "lookup"

BATCH_IDS = 100
CONNECTIONS = 64
DURATION_S, QUICK_S = 3.0, 1.0
BATCHES, QUICK_BATCHES = 20, 10
CONTENDERS = (LOCAL, THROUGHPUT)
LEAST_RATIO = 0.30
MOST_TRIPS = 2
TRIP_HITS = 50
MOST_FAILURES = 0.01
"""Allowed share of refused requests in a round: an overloaded machine exceeds Redis' time limit.
They count in no rate, and the result states their number."""


def hit_requests(scene: Scene) -> list[str]:
    """Return one request per track, with the keys in turn."""
    return [
        request_text("GET", f"/v1/audio-features/{one}", scene.keys[n % len(scene.keys)])
        for n, one in enumerate(scene.ids)
    ]


def batch_requests(scene: Scene) -> list[str]:
    """Return one batch request per key."""
    body = json.dumps({"ids": scene.ids[:BATCH_IDS]})
    return [request_text("POST", "/v1/audio-features", key, body) for key in scene.keys]


def run(options: Options) -> Result:
    """Measure both profiles, each in rounds that alternate with uvicorn."""
    with open_scene() as scene:
        n_trips = asyncio.run(round_trips(scene))
        found = {profile: compare(profile, scene, options) for profile in CONTENDERS}
    return summarise(found, n_trips, options)


async def round_trips(scene: Scene) -> float:
    """Count one cache hit's writes to a Redis connection; a pipeline counts once."""
    n_sent = 0
    send = AbstractConnection.send_packed_command

    async def counted(connection: AbstractConnection, *given: Any, **named: Any) -> None:
        nonlocal n_sent
        n_sent += 1
        await send(connection, *given, **named)

    stores = open_stores(scene.stores, in_background=True)
    plan = Plan(server="uvicorn", port=1, stores=scene.stores, catalog_dir=scene.catalog_dir)
    app = create_app(compose_services(stores, surroundings(plan)))
    headers = {"Authorization": f"Bearer {scene.keys[0]}"}
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://bench", headers=headers
        ) as client:
            (await client.get(f"/v1/audio-features/{scene.ids[0]}")).raise_for_status()
            with mock.patch.object(AbstractConnection, "send_packed_command", counted):
                for one in scene.ids[:TRIP_HITS]:
                    answer = await client.get(f"/v1/audio-features/{one}")
                    if answer.json()["_meta"]["cache"] != "hit":
                        raise RuntimeError("not a cache hit")
    finally:
        await stores.close()
    return n_sent / TRIP_HITS


Rounds = dict[str, list[Measured]]
Found = dict[str, Rounds]
"""Kind of load ("many", "one", "batch") → contender → its rounds."""


def compare(profile: str, scene: Scene, options: Options) -> Found:
    """Run one profile and uvicorn side by side, loaded in turn."""
    duration_s = QUICK_S if options.is_quick else DURATION_S
    n_batches = QUICK_BATCHES if options.is_quick else BATCHES

    def loads(port: int) -> Mapping[str, Load]:
        return {
            "many": Load(port, hit_requests(scene), CONNECTIONS, duration_s),
            "one": Load(port, hit_requests(scene), 1, duration_s / 2),
            "batch": Load(port, batch_requests(scene), 1, 60.0, n_batches),
        }

    found: Found = {kind: {UVICORN: [], profile: []} for kind in ("many", "one", "batch")}
    with (
        serving(UVICORN, scene.stores, scene.catalog_dir) as uvicorn,
        serving(profile, scene.stores, scene.catalog_dir) as server,
    ):
        ports = {UVICORN: uvicorn.port, profile: server.port}
        for one in ports.values():  # every key and track once, to warm the caches of both processes
            run_load(Load(one, hit_requests(scene), 8, 60.0, N_TRACKS), MOST_FAILURES)
        for _ in range(options.rounds):
            for kind in found:
                for contender, one in ports.items():
                    found[kind][contender].append(run_load(loads(one)[kind], MOST_FAILURES))
    return found


def summarise(found: Mapping[str, Found], n_trips: float, options: Options) -> Result:
    """Compile the figures."""
    rows, values, ratios = [], {}, {}
    for profile, kinds in found.items():
        rates = {who: [one.per_s for one in many] for who, many in kinds["many"].items()}
        ratios[profile] = median_ratio(rates[profile], rates[UVICORN])
        figures = {who: contender(kinds, who) for who in rates}
        values[profile] = {"ratio": round(ratios[profile], 4), **figures}
        for who, of in figures.items():
            rows.append((f"{who} (beside {profile})" if who == UVICORN else who, *of.values()))
    return Result(
        NAME,
        values={
            "round_trips_per_hit": n_trips,
            "profiles": values,
            "failures": sum(
                sum(one.failures.values())
                for kinds in found.values()
                for contenders in kinds.values()
                for rounds in contenders.values()
                for one in rounds
            ),
            "connections": CONNECTIONS,
            "batch_ids": BATCH_IDS,
            "rounds": options.rounds,
        },
        columns=("server", *(name.replace("_", " ") for name in COLUMNS)),
        rows=rows,
        targets=(
            Target("ratio in the throughput profile", ratios[THROUGHPUT], LEAST_RATIO),
            Target("Redis round trips per hit", n_trips, MOST_TRIPS, at_least=False),
        ),
        draw=lambda axes: _draw(axes, found),
    )


COLUMNS = (
    *("hits_per_s", "p50_ms", "p99_ms"),
    *("one_client_p50_ms", "one_client_p99_ms", "batch_p50_ms", "batch_p99_ms"),
)


def contender(kinds: Found, who: str) -> dict[str, float]:
    """Return the medians of one contender's rounds."""
    many, one, batch = kinds["many"][who], kinds["one"][who], kinds["batch"][who]
    figures = (
        [x.per_s for x in many],
        [x.p50_ms for x in many],
        [x.p99_ms for x in many],
        [x.p50_ms for x in one],
        [x.p99_ms for x in one],
        [x.p50_ms for x in batch],
        [x.p99_ms for x in batch],
    )
    medians = [round(statistics.median(values), 3) for values in figures]
    return dict(zip(COLUMNS, medians, strict=True))


def _draw(axes: "Axes", found: Mapping[str, Found]) -> None:
    names = [name for profile in found for name in (UVICORN, profile)]
    rates = [
        statistics.median(one.per_s for one in found[profile]["many"][who])
        for profile in found
        for who in (UVICORN, profile)
    ]
    axes.bar(range(len(rates)), rates, color=["tab:gray", "tab:blue"] * len(found))
    axes.set_xticks(range(len(rates)), names)
    axes.set(ylabel=f"cache hits per second, {CONNECTIONS} connections", title="Look-up by id")
