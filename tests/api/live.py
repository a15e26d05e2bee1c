"""The in-process application behind a real HTTP server on loopback, in its own thread."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from serve_app.composition.options import StoreOptions
from tests.api.application import Application, open_application

START_LIMIT_S = 240.0


@dataclass
class LiveApplication:
    """A running server."""

    url: str
    application: Application
    loop: asyncio.AbstractEventLoop

    def key(self, who: str) -> str:
        return self.application.keys[who]

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(240)


@contextmanager
def serve_application(
    options: StoreOptions, catalog_dir: Path, **settings: Any
) -> Iterator[LiveApplication]:
    """Serve until the block ends."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ready, over = threading.Event(), threading.Event()
    started: list[LiveApplication] = []
    faults: list[BaseException] = []

    async def run() -> None:
        async with open_application(options, catalog_dir, public_url=url, **settings) as app:
            config = uvicorn.Config(app.app, log_level="warning", lifespan="off")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            started.append(LiveApplication(url, app, asyncio.get_running_loop()))
            while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
                await asyncio.sleep(0.01)
            ready.set()
            await asyncio.to_thread(over.wait)
            server.should_exit = True
            await serving

    def main() -> None:
        try:
            asyncio.run(run())
        except BaseException as fault:  # noqa: BLE001  raised again in the test
            faults.append(fault)
        finally:
            ready.set()

    thread = threading.Thread(target=main, name="live-application")
    thread.start()
    try:
        assert ready.wait(START_LIMIT_S)
        if faults:
            raise faults[0]
        yield started[0]
    finally:
        over.set()
        thread.join()
        listener.close()
    if faults:
        raise faults[0]
