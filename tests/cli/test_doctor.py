"""What is wrong is told with its remedy."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from redis import Redis
from typer.testing import CliRunner

from serve_app.cli.main import app
from serve_app.composition.files import below, tracks_mirror
from serve_app.composition.options import StoreOptions
from serve_app.local import nodes

runner = CliRunner()


def consult(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: str) -> tuple[int, str]:
    """Ask the doctor with these settings; give exit status and what it says."""
    monkeypatch.setenv("AFA_DATA_DIR", str(folder / "data"))
    for name in ("AFA_REDIS_URL", "REDIS_URL", "AFA_CACHE_URL", "AFA_SHARED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    done = runner.invoke(app, ["doctor"])
    return done.exit_code, done.output


def test_a_machine_of_its_own_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, told = consult(monkeypatch, tmp_path)
    assert status == 0, told
    assert "decoder    network: on" in told
    assert "afa-beats-3 verified" in told
    assert "objects    file://" in told
    assert "is not there yet" in told
    assert not (tmp_path / "data").exists()


@pytest.mark.redis
def test_a_ledger_that_may_lose_credits_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api_stores: StoreOptions
) -> None:
    url = api_stores.ledger_url
    with Redis.from_url(url) as redis:
        before = redis.config_get("maxmemory-policy")["maxmemory-policy"]
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url)
        finally:
            redis.config_set("maxmemory-policy", before)
    assert status == 1
    assert "maxmemory-policy is allkeys-lru" in told
    assert "CONFIG SET maxmemory-policy noeviction, and in its file" in told
    assert "has no replica" in told
    assert "Set AFA_SHARED" in told


def test_a_cluster_without_token_and_pepper_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setattr(nodes, "versions_by_node", dict)
    shared = (tmp_path / "shared").as_uri()
    away = {"AFA_REDIS_URL": "redis://127.0.0.1:9", "AFA_SHARED": shared}
    status, told = consult(monkeypatch, tmp_path, **away)
    assert status == 1
    assert "ledger     no answer" in told
    assert "RAY_AUTH_TOKEN" in told
    assert "AFA_KEY_PEPPER" in told


def test_nodes_with_other_versions_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, two = "10.0.0.1", "10.0.0.2"
    monkeypatch.setattr(
        nodes,
        "versions_by_node",
        lambda: {one: {"torch": "2.13.0", "afa": "1"}, two: {"torch": "2.12.0", "afa": "1"}},
    )
    away = {"AFA_REDIS_URL": "redis://127.0.0.1:9", "AFA_SHARED": (tmp_path / "shared").as_uri()}
    status, told = consult(monkeypatch, tmp_path, **away)
    assert status == 1
    assert "nodes      torch 2.13.0 on 10.0.0.1; 2.12.0 on 10.0.0.2" in told
    assert "install the same on every node" in told
    assert "nodes      afa 1 on all 2" in told


def test_what_a_node_has_of_the_publications_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared, here = (tmp_path / "shared").as_uri(), tmp_path / "data" / "published"
    publisher = tracks_mirror(below(shared, "tracks"), tmp_path / "elsewhere")
    published = publisher.publish()
    _, told = consult(monkeypatch, tmp_path, AFA_SHARED=shared)
    assert f"catalog and fingerprints: generation {published}; here none" in told
    assert "published  no checkpoints" in told
    assert "`afa models publish`" in told
    tracks_mirror(below(shared, "tracks"), here).fetch()
    _, told = consult(monkeypatch, tmp_path, AFA_SHARED=shared)
    assert f"catalog and fingerprints: generation {published}, here too" in told


def test_a_gpu_that_is_asked_for_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    status, told = consult(monkeypatch, tmp_path, AFA_DEVICE="cuda")
    assert status == 1
    assert "nvidia-smi" in told


def test_a_folder_that_cannot_be_written_to_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    status, told = consult(monkeypatch, tmp_path)
    assert status == 1
    assert "cannot be written to" in told


@contextmanager
def listening(
    folder: Path, address: str, name: str, **environment: str
) -> Iterator[tuple[int, int]]:
    """Run a process of a name that listens; give its pid and port."""
    program = folder / name
    program.symlink_to(sys.executable)
    code = "import socket, sys\nserver = socket.create_server((sys.argv[1], 0))\n"
    code += "print(server.getsockname()[1], flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [program, "-c", code, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 0), ("0.0.0.0", 1)])  # noqa: S104
def test_a_port_of_the_service_that_others_can_reach_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, status: int
) -> None:
    (tmp_path / "data").mkdir()
    with listening(tmp_path, address, "inner") as (pid, port):
        session = {"url": "http://127.0.0.1:8000", "pids": {"service": pid}}
        (tmp_path / "data" / "session.json").write_text(json.dumps(session))
        found, told = consult(monkeypatch, tmp_path)
    assert found == status, told
    if status:
        assert f"open to other machines: {port} (inner)" in told
    else:
        assert "ports      8000 and 1 are open to this machine alone" in told


@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_node_of_ray_tells_its_ports_and_whether_it_asks_for_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    away = {"AFA_REDIS_URL": "redis://127.0.0.1:9"}
    with listening(tmp_path, "0.0.0.0", "raylet", RAY_AUTH_MODE=mode) as (pid, port):  # noqa: S104
        _, told = consult(monkeypatch, tmp_path, **away)
    assert (f"raylet {pid} asks for no token" in told) == (mode != "token")
    assert re.search(rf"Ray's \d+ are open to other machines: .*\b{port}\b", told), told
