"""The whole service on a GPU, over HTTP: replicas that share a card, and one that is killed.

A service as `afa up` starts it, with the shipped checkpoints and the batches of
``configs/serve.gpu.yaml``: first one replica of each model deployment on half a card, then two of
each on a quarter. All clients upload and wait; clients, Redis and decoding share the machine.
Files: those in the folder ``AFA_GPU_AUDIO``, or the track that comes with afa; each upload has
different bytes after its end, so that none is answered from a cache. In the last round a `Spectral`
replica gets a kill -9: nothing may fail.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import yaml

from benchmarks.gpu.analysis import DEMO
from benchmarks.gpu.dry import NO_DEVICE, device_for
from benchmarks.report import Options, Result, Target
from benchmarks.server_process import free_port
from configs.tables import load_table
from serve_app.local.processes import descendants

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gpu-serve"

N_UPLOADS, DRY_UPLOADS = 256, 3
N_CALLERS = 64
START_LIMIT_S, END_LIMIT_S, ANSWER_LIMIT_S = 300.0, 90.0, 150.0
WAIT_S = 60
UNFINISHED = {"queued", "running"}
WATCH_S = 0.5
SHARED = ("Spectral", "MoodAndEmbedding")
"""Deployments with a share of the card."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: its address, a key without limits, and its process."""

    url: str
    key: str
    pid: int


@dataclass(slots=True)
class Round:
    """The results of a round of uploads.

    Attributes:
        audio_s: Seconds of audio that were analysed.
        took_s: From the first upload to the last answer.
        waits_s: For every upload, the time from its first byte to its answer.
        faults: Answers other than a result.
        card: Mean share of the time that the card was busy, and its peak memory in MiB.
    """

    audio_s: float = 0.0
    took_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    card: tuple[float, float] = (0.0, 0.0)

    @property
    def rate(self) -> float:
        """Seconds of audio a second."""
        return self.audio_s / self.took_s


def run(options: Options) -> Result:
    """Measure, if there is a GPU."""
    if device_for(options) is None:
        return Result(NAME, skipped=NO_DEVICE)
    if importlib.util.find_spec("ray") is None:
        return Result(NAME, skipped="Ray is not installed here")
    files = sorted(Path(os.environ.get("AFA_GPU_AUDIO", DEMO.parent)).glob("*.*"))
    bodies = [path.read_bytes() for path in files if path.suffix in {".mp3", ".ogg", ".flac"}]
    found = {n: measure(n, bodies, options) for n in ((1,) if options.is_dry else (1, 2))}
    return Result(
        NAME,
        values={
            "by_replicas": {str(n): _told(rounds) for n, rounds in found.items()},
            "callers": N_CALLERS,
            "files": len(bodies),
        },
        columns=("replicas", "round", "audio s/s", "p50 s", "longest s", "failed", "card busy"),
        rows=[
            (
                n,
                name,
                one.rate,
                statistics.median(one.waits_s),
                max(one.waits_s),
                len(one.faults),
                one.card[0],
            )
            for n, rounds in found.items()
            for name, one in rounds.items()
        ],
        targets=()
        if options.is_dry
        else [
            Target(f"failed, {n} of each, {name}", len(one.faults), 0, at_least=False)
            for n, rounds in found.items()
            for name, one in rounds.items()
        ],
        draw=lambda axes: _draw(axes, found),
    )


def measure(n: int, bodies: Sequence[bytes], options: Options) -> dict[str, Round]:
    """Start a service with ``n`` replicas of each model deployment, and put load on it."""
    fresh = (bodies[i % len(bodies)] + i.to_bytes(16) for i in itertools.count())
    n_uploads = DRY_UPLOADS if options.is_dry else N_UPLOADS
    with service(profile(n, os.cpu_count() or 1, options)) as running:
        names = {"first": len(bodies), "steady": n_uploads, "one replica killed": n_uploads}
        return {
            name: asyncio.run(
                load(running, list(itertools.islice(fresh, n_files)), "killed" in name)
            )
            for name, n_files in names.items()
        }


def profile(n: int, n_cpus: int, options: Options) -> dict[str, Any]:
    """Return the local Serve file with the GPU file's models, ``n`` replicas of each."""
    table = load_table("serve.local")
    application = table["applications"][0]
    of_gpu = load_table("serve.gpu")["applications"][0]["args"]
    n_workers = max(1, n_cpus // 4)
    application["args"] = {
        "shared_trunk": True,
        "spectral": of_gpu["spectral"],
        "embedding": of_gpu["embedding"],
        "worker": {"concurrent_jobs": 4 if options.is_dry else N_CALLERS // n_workers},
    }
    rows = {row["name"]: row for row in application["deployments"]}
    rows["AnalysisWorker"]["num_replicas"] = n_workers
    others = [row for name, row in rows.items() if name not in {*SHARED, "Mood", "Embedding"}]
    on_card = {"num_cpus": 0.2 if options.is_dry else max(1, n_cpus // (4 * n))}
    if not options.is_dry:
        on_card["num_gpus"] = 0.5 / n
    application["deployments"] = others + [
        {
            "name": name,
            "num_replicas": n,
            "max_ongoing_requests": 256,
            "health_check_period_s": 2,
            "ray_actor_options": on_card,
        }
        for name in SHARED
    ]
    return table


@contextmanager
def service(table: Mapping[str, Any]) -> Iterator[Service]:
    """Run a service from a Serve file until the block ends.

    Raises:
        RuntimeError: It did not start; the message contains its output.
    """
    with tempfile.TemporaryDirectory(prefix="afa-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        config, said, session = folder / "serve.yaml", folder / "said", folder / "data/session.json"
        config.write_text(yaml.safe_dump(table))
        command = [sys.executable, "-m", "serve_app.local.service"]
        command += ["--config", str(config), "--port", str(free_port())]
        with (
            said.open("wb") as out,
            subprocess.Popen(  # noqa: S603 - one of our own modules
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"AFA_DATA_DIR": str(folder / "data")},
            ) as process,
        ):
            try:
                end_s = time.monotonic() + START_LIMIT_S
                while not session.exists():
                    if process.poll() is not None or time.monotonic() > end_s:
                        raise RuntimeError(said.read_text(errors="replace")[-2000:])
                    time.sleep(WATCH_S)
                known = json.loads(session.read_text())
                yield Service(known["url"], known["local_key"], process.pid)
            finally:
                process.terminate()
                process.wait(END_LIMIT_S)


async def load(running: Service, bodies: Sequence[bytes], is_killing: bool) -> Round:
    """Upload everything, `N_CALLERS` at a time, and wait for the answers."""
    found = Round()
    left, is_answering = list(bodies), asyncio.Event()
    headers = {"Authorization": f"Bearer {running.key}"}
    watching = asyncio.create_task(_watch_card(found))
    killing = asyncio.create_task(_kill_one(running, is_answering)) if is_killing else None
    begun_s = time.perf_counter()
    async with httpx.AsyncClient(
        base_url=running.url, headers=headers, timeout=ANSWER_LIMIT_S
    ) as client:

        async def call() -> None:
            while left:
                sent_s = time.perf_counter()
                answer = await client.post(
                    "/v1/audio-features/upload",
                    params={"wait": WAIT_S},
                    files={"file": ("track", left.pop())},
                )
                while answer.json().get("status") in UNFINISHED:
                    job = f"/v1/jobs/{answer.json()['job_id']}"
                    answer = await client.get(job, params={"wait": WAIT_S})
                found.waits_s.append(time.perf_counter() - sent_s)
                is_answering.set()
                result = answer.json().get("result")
                if result is None:
                    found.faults.append(answer.text)
                else:
                    found.audio_s += result["duration_ms"] / 1000

        await asyncio.gather(*(call() for _ in range(N_CALLERS)))
    found.took_s = time.perf_counter() - begun_s
    watching.cancel()
    if killing is not None:
        await killing
    return found


async def _kill_one(running: Service, is_answering: asyncio.Event) -> None:
    """Kill once the first answer has come, while the others are in progress."""
    await is_answering.wait()
    replicas = [pid for name, pid in descendants(running.pid).items() if f":{SHARED[0]}-" in name]
    os.kill(replicas[0], signal.SIGKILL)


async def _watch_card(found: Round) -> None:
    query = "--query-gpu=utilization.gpu,memory.used"
    seen = []
    with suppress(FileNotFoundError):  # a dry run may have no tools for a card
        while True:
            asked = await asyncio.create_subprocess_exec(
                "nvidia-smi", query, "--format=csv,noheader,nounits", stdout=subprocess.PIPE
            )
            told, _ = await asked.communicate()
            seen.append([float(value) for value in told.decode().split(",")])
            found.card = statistics.fmean(row[0] for row in seen) / 100, max(row[1] for row in seen)
            await asyncio.sleep(WATCH_S)


def _told(rounds: Mapping[str, Round]) -> dict[str, Any]:
    return {
        name: asdict(one)
        | {
            "audio_s_per_s": one.rate,
            "uploads": len(one.waits_s),
            "waits_s": dict(zip(("p50", "p95", "longest"), _waits(one), strict=True)),
        }
        for name, one in rounds.items()
    }


def _waits(one: Round) -> list[float]:
    return [float(wait_s) for wait_s in np.percentile(one.waits_s, (50, 95, 100))]


def _draw(axes: "Axes", found: Mapping[int, Mapping[str, Round]]) -> None:
    for n, rounds in found.items():
        axes.bar([f"{n}: {name}" for name in rounds], [one.rate for one in rounds.values()], 0.5)
    axes.set(ylabel="seconds of audio per second", title="Uploads over HTTP, by replicas of each")
