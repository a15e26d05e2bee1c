"""A whole afa on this machine in one process tree: Redis, Ray and the Serve application.

Run as ``python -m serve_app.local.service``; `afa up` starts it in the background. Invariant: when
this process ends, by itself or by a signal, everything it started ends with it.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import httpx

from configs.settings import Settings
from configs.tables import load_table
from serve_app.api.proxy import CALLBACK, MIDDLEWARES
from serve_app.composition.files import LocalFiles, make_private, write_private
from serve_app.deployments.tracing import trace_if_asked
from serve_app.domain.redaction import redact_logs
from serve_app.domain.tiers import LOCAL, ORDER, SOLD, Tiers
from serve_app.local import embedded_redis, own_ray
from serve_app.local.embedded_redis import is_alive
from serve_app.local.ending import end
from serve_app.local.metrics_page import MetricsPage
from serve_app.local.processes import birth, descendants
from serve_app.local.supervision import SupervisedRedis
from serve_app.providers.catalog.build import build_catalog
from serve_app.providers.catalog.search import Catalog
from serve_app.services.readiness import AUDIT, JOURNAL, AuditMismatchError, JournalStoppedError
from serve_app.store.accounts import Accounts
from serve_app.store.client import connect

CONFIG = Path(__file__).parents[2] / "configs" / "serve.local.yaml"
DEMO_CATALOG = Path(__file__).parents[1] / "data" / "demo_catalog.parquet"
READY_LIMIT_S = 300.0
LOOK_S = 0.5
POLL_S = 0.2
AFTER_HEADS_S = 5.0
"""Ray ends its heads last, and has little left to do then."""
TRUSTED_PROXIES = "FORWARDED_ALLOW_IPS"
"""Proxies that uvicorn trusts; if not set, it trusts every process of this machine."""
DEPLOY = (sys.executable, "-m", "serve_app.local.deploying")
BROKEN_RULE = (
    "the ledger's audit found a broken rule: `afa credits audit` names it, and AfaAuditMismatch in "
    "docs/operating/alerts.md says what to do"
)
NOT_ARCHIVED = (
    "the journal is not archived until somebody acts, as by `afa ledger reconcile`: "
    "AfaJournalNotArchived in docs/operating/alerts.md says what to do"
)
LEFT_TO_OPERATORS = {
    (AUDIT, AuditMismatchError.__name__): BROKEN_RULE,
    (JOURNAL, JournalStoppedError.__name__): NOT_ARCHIVED,
}
"""What is reported for parts that a start does not wait for."""


class RayEndedError(RuntimeError):
    """A head of this service's Ray has ended, and the service with it."""


class NotStartedError(RuntimeError):
    """A part of the service does not start, or does not become ready."""


def say(text: str) -> None:
    """Report a step in a line that `afa up` shows."""
    with suppress(OSError):  # the log's disk is full; buffered lines are written later
        sys.stdout.write(f"afa: {text}\n")
        sys.stdout.flush()


class LocalService:
    """Starts and stops the parts, in order."""

    def __init__(
        self,
        settings: Settings,
        host: str,
        port: int,
        config: Path,
        is_over: Callable[[], bool],
    ) -> None:
        """Start nothing yet.

        Args:
            settings: Settings of the installation.
            host: Address at which the service accepts requests.
            port: TCP port.
            config: The Serve file.
            is_over: Returns whether a start is to stop where it is.
        """
        self._settings = settings
        self._host = host
        self._port = port
        self._config = config
        self._is_over = is_over
        self._files = LocalFiles(settings.data_dir.absolute())
        self._redis: list[SupervisedRedis] = []
        self._keys: dict[str, str] = {}
        self._ray_thread: ThreadPoolExecutor | None = None
        self._ray_heads: Mapping[str, int] = {}
        self._metrics_url = ""
        self._is_session_old = False
        self._is_ready = False

    @property
    def url(self) -> str:
        """URL of the service."""
        return f"http://{self._host}:{self._port}"

    def start(self) -> None:
        """Start everything and write the session file once the service is ready.

        It is not interrupted, since a half-done step cannot be undone: it checks between two steps,
        and while it waits, whether it is to stop.
        """
        for step in (
            self._start_redis,
            self._import_demo_catalog,
            self._start_ray,
            self._show_metrics,
            self._deploy,
            self._wait_ready,
            self._issue_keys,
            self._write_session,
        ):
            if self._is_over():
                return
            step()
        self._is_ready = True
        say(f"ready at {self.url}")

    def look_after(self) -> None:
        """Restart parts that died and that nothing else watches; Ray watches its own.

        Raises:
            RayEndedError: Ray itself died; the process manager must start the service again.
        """
        for name in self._ended_heads():
            raise RayEndedError(f"{name} of Ray was killed or crashed; the service ends with it")
        started = [redis.look_after(say) for redis in self._redis]
        self._is_session_old |= True in started
        if self._is_session_old:
            with suppress(OSError):  # a full disk; the next check tries again
                self._write_session()
                self._is_session_old = False

    def _ended_heads(self) -> list[str]:
        return [name for name, pid in self._ray_heads.items() if not is_alive(pid)]

    def _write_session(self) -> None:
        left = {f"redis-{pid}": pid for redis in self._redis if (pid := redis.left_pid) is not None}
        pids = {"service": os.getpid(), **descendants(os.getpid()), **left}
        session = {
            "folder": self._files.folder_id,
            "url": self.url,
            "metrics": self._metrics_url,
            "keys": {tier: self._keys[tier] for tier in SOLD},
            "local_key": self._keys[LOCAL],
            "pids": pids,
            "births": {pid: born for pid in pids.values() if (born := birth(pid))},
        }
        write_private(self._files.session_path, json.dumps(session, indent=2))

    def stop(self) -> None:
        """Stop what `start` started, in reverse order."""
        is_ray_lost = False
        try:
            if self._ray_thread is not None:
                is_ray_lost = not self._stop_ray(self._ray_thread)
        finally:
            if self._redis:
                say("stopping Redis")
            for redis in reversed(self._redis):
                redis.stop()
            if is_ray_lost:
                own_ray.kill_rest()
        say("stopped")

    def _stop_ray(self, started_in: ThreadPoolExecutor) -> bool:
        """Stop this process's Ray; False if its heads have ended, since it would wait for them.

        A stop may have ended all processes of the service at once. Ray would wait for a minute, and
        then end this process before its Redis.
        """
        if self._ended_heads():
            return False
        ending: Future[None] = Future()

        def stop() -> None:
            try:
                if self._is_ready:  # a replica that still loads ends only after that
                    stop_serve()
                stop_ray()
            except BaseException as fault:  # noqa: BLE001  raised where it is waited for
                ending.set_exception(fault)
            else:
                ending.set_result(None)

        Thread(target=stop, daemon=True).start()
        while not ending.done() and not self._ended_heads():
            wait([ending], POLL_S)
        wait([ending], AFTER_HEADS_S)
        if self._ended_heads() and (not ending.done() or ending.exception()):
            return False
        ending.result()
        started_in.shutdown()
        return True

    def _start_redis(self) -> None:
        data_dir = self._files.data_dir
        make_private(data_dir)
        say("starting Redis")
        urls: Mapping[embedded_redis.Role, str | None] = {
            "ledger": self._settings.redis_url,
            "cache": self._settings.cache_url,
        }
        for role, url in urls.items():
            start = partial(embedded_redis.start, data_dir, role=role, url=url)
            self._redis.append(SupervisedRedis(role, start))
            if self._redis[-1].left_pid is not None:
                say(f"the {role} Redis of an earlier start runs on, and is used again")
        ledger, cache = self._redis
        os.environ |= {
            "AFA_DATA_DIR": str(data_dir),
            "AFA_REDIS_URL": ledger.url,
            "AFA_CACHE_URL": cache.url,
            "AFA_PUBLIC_URL": os.environ.get("AFA_PUBLIC_URL", self.url),
        }
        write_private(data_dir / "redis.url", ledger.url)

    def _import_demo_catalog(self) -> None:
        folder = self._files.catalog_dir
        if Catalog.open(folder).n_tracks == 0:
            say("importing the demo catalog")
            build_catalog([DEMO_CATALOG], folder)

    def _start_ray(self) -> None:
        say("starting Ray")
        os.environ |= {
            CALLBACK: MIDDLEWARES,
            TRUSTED_PROXIES: ",".join(self._settings.trusted_proxies),
        }
        trace_if_asked()
        # In the main thread Ray would install its own handler for SIGTERM, which interrupts this
        # start anywhere. What Ray starts ends with the thread.
        self._ray_thread = ThreadPoolExecutor(1)
        starting = self._ray_thread.submit(own_ray.start, max(2, os.cpu_count() or 2))
        self._ray_heads = starting.result()
        # Ray's core has put a handler before ours, which writes a stack trace to the log.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def _show_metrics(self) -> None:
        self._metrics_url = metrics_url()
        if self._settings.metrics_address is not None:
            page = MetricsPage(self._metrics_url, self._settings.metrics_address)
            page.start()
            self._metrics_url = page.url

    def _deploy(self) -> None:
        import ray

        say("deploying")
        address = ray.get_runtime_context().gcs_address
        command = [*DEPLOY, "--address", address, "--config", str(self._config)]
        command += ["--host", self._host, "--port", str(self._port)]
        # Our own interpreter and module. It sees by the pipe when this process has ended; no Ctrl-C
        # reaches another session.
        with subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, start_new_session=True
        ) as deploying:
            while (status := deploying.poll()) is None:
                if self._is_over():
                    deploying.kill()
                    return
                time.sleep(POLL_S)
        # A stop may end all processes of the service, and this one first.
        if status and not self._is_over():
            raise NotStartedError("not every part was deployed")

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while not self._is_over():
            try:
                state = httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).text
                answer = json.loads(state)
                away = {(part, answer["checks"][part]) for part in answer["degraded"]}
            except (httpx.HTTPError, ValueError, KeyError) as error:
                away, state = {("", type(error).__name__)}, repr(error)
            if away <= LEFT_TO_OPERATORS.keys():
                for one in sorted(away):
                    say(LEFT_TO_OPERATORS[one])
                return
            if time.monotonic() > deadline:
                raise NotStartedError(f"not ready after {READY_LIMIT_S:.0f} s: {state}")
            time.sleep(POLL_S)

    def _issue_keys(self) -> None:
        self._keys = asyncio.run(self._issued_keys())

    async def _issued_keys(self) -> dict[str, str]:
        """Return one key per tier, owned by ``local-<tier>``; keys of an earlier run stay valid."""
        path = self._files.data_dir / "keys.json"
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        store = connect(os.environ["AFA_REDIS_URL"], shards=self._settings.ledger_shards)
        await store.claim_shards()
        accounts = Accounts(
            store, self._files.key_pepper(self._settings), Tiers(load_table("tiers"))
        )
        try:
            keys = {}
            for tier in ORDER:
                key = known.get(tier)
                if key is None or await accounts.authenticate(key) is None:
                    key = (await accounts.issue(f"local-{tier}", tier)).key
                keys[tier] = key
        finally:
            await store.close()
        write_private(path, json.dumps(keys))
        return keys


def metrics_url() -> str:
    """Return the URL of Ray's page with this machine's metrics for Prometheus."""
    import ray

    (node,) = ray.nodes()  # type: ignore[no-untyped-call]
    return f"http://127.0.0.1:{node['MetricsExportPort']}/metrics"


def stop_serve() -> None:
    """Let the application finish its requests, and stop it."""
    import ray
    from ray import serve

    if ray.is_initialized():
        say("stopping Serve")
        serve.shutdown()  # type: ignore[no-untyped-call]


def stop_ray() -> None:
    """Stop this process's Ray."""
    import ray

    say("stopping Ray")
    ray.shutdown()


def main() -> None:
    """Run until SIGTERM or SIGINT, or the terminal is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--config", type=Path, default=CONFIG)
    arguments = parser.parse_args()
    os.umask(0o077)
    redact_logs()
    signals: list[int] = []
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, lambda number, _: signals.append(number))
    service = LocalService(
        Settings(), arguments.host, arguments.port, arguments.config, lambda: bool(signals)
    )
    status = 0
    try:
        service.start()
        while not signals:
            service.look_after()
            time.sleep(LOOK_S)
    except (NotStartedError, RayEndedError) as error:
        say(str(error))
        status = 1
    finally:
        service.stop()
    end(status)


if __name__ == "__main__":
    main()
