"""An echo behind zero, one or two deployments, on Serve or on plain uvicorn, for the hop bench.

``python -m benchmarks.hop_server`` takes a plan on the first line of stdin, prints "ready", and
ends with its stdin.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Any

from fastapi import FastAPI

from benchmarks.lookup_server import say_ready
from serve_app.store.local_redis import end_process, is_alive

PATHS = {"echo": "/echo", "one hop": "/hop/1", "two hops": "/hop/2"}
INSIDE_CALLS = 200

Answer = dict[str, bool]
Call = Callable[[], Awaitable[Answer]]


class Leaf:
    """Answers."""

    async def answer(self) -> Answer:
        """Give a small answer."""
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


def serve_uvicorn(port: int) -> None:
    """Serve from one uvicorn process; a hop is a bare call."""
    import uvicorn

    leaf = Leaf()
    config = uvicorn.Config(
        echo_app(leaf.answer, leaf.answer), port=port, log_level="warning", access_log=False
    )
    server = uvicorn.Server(config)

    def wait() -> None:
        sys.stdin.read()
        server.should_exit = True

    Thread(target=wait, daemon=True).start()
    say_ready()
    server.run()


def serve_ray(port: int) -> None:
    """Serve from three deployments of one replica each."""
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions

    from serve_app.local_service import descendants

    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        num_cpus=2,
        _node_ip_address="127.0.0.1",
    )
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options=HTTPOptions(host="127.0.0.1", port=port, keep_alive_timeout_s=75),
        )
        wrap: Any = serve.deployment(max_ongoing_requests=500, ray_actor_options={"num_cpus": 0.2})
        leaf = wrap(Leaf).bind()
        ingress: Any = serve.ingress()
        app = wrap(ingress(Ingress)).bind(leaf, wrap(Middle).bind(leaf))
        serve.run(app, name="bench-hop", route_prefix="/")
        say_ready()
        sys.stdin.read()
    finally:
        started = descendants(os.getpid())
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
        for pid in started.values():  # HAProxy may outlive its manager
            if is_alive(pid):
                end_process(pid)


def main() -> None:
    """Serve until stdin ends."""
    plan = json.loads(sys.stdin.readline())
    (serve_uvicorn if plan["server"] == "uvicorn" else serve_ray)(plan["port"])


if __name__ == "__main__":
    main()
