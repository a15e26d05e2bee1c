"""Replicas may die at any moment: jobs continue, and nobody pays twice."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.data.audio_files import click_track, encode
from tests.system.conftest import Service
from tests.system.test_service import finish, poll, submit

pytestmark = [pytest.mark.ray, pytest.mark.redis]

TRACK_S = 120


def replica_pids(service: Service, deployment: str) -> list[int]:
    """Return the processes of a deployment's replicas, found below the service's own process."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                names[int(entry.name)] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])

    def is_below(pid: int) -> bool:
        while pid in parents:
            if pid == service.pids["service"]:
                return True
            pid = parents[pid]
        return False

    return [
        pid
        for pid, name in names.items()
        if b"ServeReplica" in name and deployment.encode() in name and is_below(pid)
    ]


def kill_replicas(service: Service, deployment: str, limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not (pids := replica_pids(service, deployment)):
        assert time.monotonic() < deadline, f"no replica of {deployment}"
        time.sleep(0.1)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def wait_for_stage(client: Any, job_id: str, stage: str) -> None:
    deadline = time.monotonic() + 240
    while poll(client, job_id)["_meta"]["stage"] != stage:
        assert time.monotonic() < deadline
        time.sleep(0.4)


@pytest.fixture(scope="module")
def track(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("audio") / "a.mp3"
    return encode(path, click_track(110, TRACK_S), "mp3", "libmp3lame").read_bytes()


@pytest.fixture(scope="module")
def long_track(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a track so long that its analysis does not end between two polls."""
    path = tmp_path_factory.mktemp("audio") / "a.mp3"
    return encode(path, click_track(110, 5 * TRACK_S), "mp3", "libmp3lame").read_bytes()


@pytest.mark.parametrize(
    "deployment",
    [
        "AnalysisWorker",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Spectral", "Mood", "Embedding")),
    ],
)
def test_a_job_survives_the_death_of_a_replica(
    service: Service, track: bytes, deployment: str
) -> None:
    with service.client("scale") as client:
        job = submit(client, track, "audio/mpeg").json()
        before = job["_meta"]["credits_remaining"]
        wait_for_stage(client, job["job_id"], "analyse")
        kill_replicas(service, deployment)
        envelope = finish(client, job["job_id"], limit_s=600)
    assert envelope["status"] == "complete", envelope
    assert envelope["result"]["tempo"] == pytest.approx(110, rel=0.02)
    assert envelope["_meta"]["credits_used"] == 10
    assert envelope["_meta"]["credits_remaining"] == before


@pytest.mark.slow
@pytest.mark.timeout(600)  # three leases have to run out
def test_three_crashes_fail_the_job_and_refund_it(service: Service, long_track: bytes) -> None:
    with service.client("scale", is_patient=False) as client:
        job = submit(client, long_track, "audio/mpeg").json()
        before = job["_meta"]["credits_remaining"]
        deadline = time.monotonic() + 450
        crashes = 0
        while True:
            envelope = poll(client, job["job_id"])
            if envelope["status"] in ("complete", "failed"):
                break
            assert time.monotonic() < deadline, envelope
            is_up = client.get("/readyz").json()["checks"]["spectral"] == "ok"
            if envelope["_meta"]["stage"] == "analyse" and is_up:
                kill_replicas(service, "Spectral")
                crashes += 1
                time.sleep(2)  # the readiness may be up to a second old
            time.sleep(0.2)
    assert envelope["status"] == "failed"
    assert crashes >= 3
    assert envelope["error"]["error"] == "internal_error"
    assert envelope["_meta"]["credits_used"] == 0
    assert envelope["_meta"]["credits_remaining"] == before + 10
