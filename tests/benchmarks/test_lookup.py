"""The cost of a cache hit, and the load generator."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from benchmarks.harness.api import serving
from benchmarks.harness.load import Load, Measured, request_text, run_load
from benchmarks.harness.scene import Scene, open_scene
from benchmarks.lookup.catalog import percentiles
from benchmarks.lookup.hit import (
    BATCH_IDS,
    MOST_TRIPS,
    batch_requests,
    hit_requests,
    round_trips,
    summarise,
)
from benchmarks.report import Options, Result, Target, as_json
from benchmarks.server_process import LOCAL, THROUGHPUT, UVICORN

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with open_scene(n_tracks=100) as opened:
        yield opened


def test_a_hit_takes_two_trips_to_redis(scene: Scene) -> None:
    assert asyncio.run(round_trips(scene)) == MOST_TRIPS


def test_hits_and_batches_are_answered_under_load(scene: Scene) -> None:
    with serving(UVICORN, scene.stores, scene.catalog_dir) as server:
        port = server.port
        # On a busy machine, Redis may not answer in time, which gives a 503.
        hits = run_load(Load(port, hit_requests(scene), 8, 60.0, 200), most_failures=0.5)
        batches = run_load(Load(port, batch_requests(scene), 1, 60.0, 2), most_failures=0.5)
        assert hits.n + hits.failures.get("503", 0) == 200
        assert batches.n + batches.failures.get("503", 0) == 2
        assert 0 < hits.p50_ms <= hits.p99_ms
        with pytest.raises(RuntimeError, match="401"):
            run_load(Load(port, [request_text("GET", "/v1/audio-features/x", "no key")], 1, 9.0, 1))


@pytest.mark.slow
def test_a_batch_asks_for_a_hundred_ids(scene: Scene) -> None:
    assert batch_requests(scene)[0].count('", "') == BATCH_IDS - 1


def test_the_ratio_is_told_per_profile() -> None:
    def rounds(per_s: float) -> list[Measured]:
        return [Measured(per_s, 1.0, 2.0, 10)]

    found = {
        profile: {
            kind: {UVICORN: rounds(100), profile: rounds(rate)} for kind in ("many", "one", "batch")
        }
        for profile, rate in ((LOCAL, 20), (THROUGHPUT, 40))
    }
    result = summarise(found, 2.0, Options())
    assert result.values["profiles"][LOCAL]["ratio"] == 0.2
    assert [target.value for target in result.targets] == [0.4, 2.0]
    assert all(target.is_met for target in result.targets)


def test_percentiles_can_be_written_with_their_targets() -> None:
    found = percentiles(lambda _: True, 3)
    target = Target("p99", found["p99_us"], 1.0, at_least=False)
    json.dumps(as_json(Result("x", {"found": found}, targets=[target])))
