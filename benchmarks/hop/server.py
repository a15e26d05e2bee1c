"""An echo behind zero, one or two deployments, on Serve or on plain uvicorn, for the hop bench.

``python -m benchmarks.hop.server`` takes a plan on the first line of stdin, prints "ready", and
ends with its stdin.
"""

import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI

from benchmarks.server_process import serve_ray, serve_uvicorn

PATHS = {"echo": "/echo", "one hop": "/hop/1", "two hops": "/hop/2"}
INSIDE_CALLS = 200

Answer = dict[str, bool]
Call = Callable[[], Awaitable[Answer]]


class Leaf:
    """Answers."""

    async def answer(self) -> Answer:
        """Return a small answer."""
        return {"ok": True}


class Middle:
    """Asks a leaf."""

    def __init__(self, leaf: Any) -> None:
        self._leaf = leaf

    async def answer(self) -> Answer:
        """Pass on the leaf's answer."""
        answer: Answer = await self._leaf.answer.remote()
        return answer


def echo_app(one_hop: Call, two_hops: Call) -> FastAPI:
    """Make the application around the two calls."""
    app = FastAPI()

    @app.get(PATHS["echo"])
    async def echo() -> Answer:
        return {"ok": True}

    @app.get(PATHS["one hop"])
    async def hop_once() -> Answer:
        return await one_hop()

    @app.get(PATHS["two hops"])
    async def hop_twice() -> Answer:
        return await two_hops()

    @app.get("/inside")
    async def inside() -> dict[str, float]:
        return {"bare_ms": await median_ms(Leaf().answer), "hop_ms": await median_ms(one_hop)}

    return app


async def median_ms(call: Call) -> float:
    """Time one call after the other."""
    times_s = []
    for _ in range(INSIDE_CALLS):
        begun_s = time.perf_counter()
        await call()
        times_s.append(time.perf_counter() - begun_s)
    return 1000 * statistics.median(times_s)


class Ingress:
    """Answers HTTP in a replica."""

    def __init__(self, leaf: Any, middle: Any) -> None:
        self._leaf, self._middle = leaf, middle

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve in the replica, after the constructor."""

        async def one_hop() -> Answer:
            answer: Answer = await self._leaf.answer.remote()
            return answer

        async def two_hops() -> Answer:
            answer: Answer = await self._middle.answer.remote()
            return answer

        return echo_app(one_hop, two_hops)


def bind() -> Any:
    """Bind three deployments of one replica each."""
    from ray import serve

    wrap: Any = serve.deployment(max_ongoing_requests=500, ray_actor_options={"num_cpus": 0.2})
    leaf = wrap(Leaf).bind()
    ingress: Any = serve.ingress()
    return wrap(ingress(Ingress)).bind(leaf, wrap(Middle).bind(leaf))


def main() -> None:
    """Serve until stdin ends."""
    plan = json.loads(sys.stdin.readline())
    if plan["server"] == "uvicorn":
        leaf = Leaf()  # a hop is a bare call
        serve_uvicorn(echo_app(leaf.answer, leaf.answer), plan["port"])
    else:
        serve_ray(bind, "bench-hop", plan["port"])


if __name__ == "__main__":
    main()
