"""Each problem is reported with its remedy."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import torch
from redis import Redis
from redis.exceptions import OutOfMemoryError
from typer.testing import CliRunner

from configs.settings import Settings
from serve_app.cli.examination.redis_roles import of_access
from serve_app.cli.main import app
from serve_app.composition.files import below, tracks_mirror
from serve_app.composition.options import StoreOptions
from serve_app.local import embedded_redis, nodes, processes
from serve_app.local.embedded_redis import Role
from tests.store.test_cluster import SLOTS, start_node, wait_for
from tests.store.test_replicas import start_at_a_port

runner = CliRunner()
AWAY = "redis://127.0.0.1:9"
REST = "afa-beats-3 verified"
"""The last check."""


def consult(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, is_node: bool = False, **settings: str
) -> tuple[int, str]:
    """Run the doctor with these settings; return the exit status and the output.

    It looks at Ray nodes on this machine (including those of other tests) only with ``is_node``.
    """
    if not is_node:
        monkeypatch.setattr(processes, "raylets", list)
    monkeypatch.setenv("AFA_DATA_DIR", str(folder / "data"))
    for name in ("AFA_REDIS_URL", "REDIS_URL", "AFA_CACHE_URL", "AFA_SHARED", "AFA_KEY_PEPPER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    done = runner.invoke(app, ["doctor"])
    return done.exit_code, done.output


@contextmanager
def redis_of(*extra: str, role: Role = "ledger") -> Iterator[str]:
    """Run a server with these options; yield its address."""
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    server = embedded_redis.start(folder, role=role, extra=extra)
    yield server.url
    server.stop()
    shutil.rmtree(folder)


def test_a_machine_of_its_own_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, told = consult(monkeypatch, tmp_path)
    assert status == 0, told
    assert "decoder    network: on" in told
    assert REST in told
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
    assert "ledger     no answer from 127.0.0.1:9 (Error 111" in told
    assert "RAY_AUTH_TOKEN" in told
    assert "AFA_KEY_PEPPER: not set" in told
    assert "`openssl rand -hex 32`" in told
    _, told = consult(monkeypatch, tmp_path, **away, AFA_KEY_PEPPER="pepper of the test")
    assert "AFA_KEY_PEPPER" not in told


@pytest.mark.parametrize(
    "url", ["", "localhost:6379", "redis://localhost:port", "redis+cluster://localhost:port"]
)
def test_an_address_of_redis_that_is_none_is_told_and_the_rest_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    settings = {"AFA_REDIS_URL": url, "AFA_CACHE_URL": url}
    status, told = consult(monkeypatch, tmp_path, **settings)
    assert status == 1
    for name in settings:
        assert f"set {name} to redis://:PASSWORD@host:6379/0" in told
    assert REST in told


@pytest.mark.redis
@pytest.mark.parametrize("address", ["redis://127.0.0.1:{}/99", "redis+cluster://127.0.0.1:{}"])
def test_a_server_that_refuses_is_told_and_the_rest_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, redis_folder: Path, address: str
) -> None:
    server, port = start_at_a_port(redis_folder / "refusing")
    status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=address.format(port))
    server.stop()
    assert status == 1
    assert "set AFA_REDIS_URL to redis://:PASSWORD@host:6379/0" in told
    assert REST in told


@pytest.mark.redis
def test_a_ledger_without_config_is_looked_at_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with redis_of("--rename-command", "CONFIG", "") as url:
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url)
    assert status == 0, told
    assert "appendfsync cannot be read" in told
    assert "see that it is always" in told
    assert "has no replica" in told
    assert REST in told


@pytest.mark.redis
def test_a_user_who_may_run_no_scripts_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with redis_of() as url, Redis.from_url(url) as redis:
        rules = ("on", ">secret", "~*", "&*", "+@all", "-config", "-@scripting")
        redis.execute_command("ACL", "SETUSER", "app", *rules)
        named = url.replace("unix://", "unix://app:secret@")
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=named)
    assert status == 1
    assert "maxmemory-policy cannot be read" in told
    assert "ACL SETUSER NAME ~* resetchannels &afa-* +@read +@write +@scripting" in told
    assert REST in told


@pytest.mark.redis
def test_a_user_who_may_send_no_messages_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with redis_of() as url, Redis.from_url(url) as redis:
        redis.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-@pubsub")
        named = url.replace("unix://", "unix://app:secret@")
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=named)
        findings = list(of_access(Settings()))
    assert status == 1
    assert "ACL SETUSER NAME ~* resetchannels &afa-* " in told
    assert [finding.part for finding in findings] == ["AFA_REDIS_URL"]


@pytest.mark.redis
def test_a_replica_is_no_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with redis_of("--replicaof", "127.0.0.1", "9") as url:
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url)
    assert status == 1
    assert "ledger     is a replica of 127.0.0.1:9, which does not answer it" in told
    assert "name its master in AFA_REDIS_URL" in told


@pytest.mark.redis
def test_a_ledger_without_room_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with redis_of("--maxmemory", "1mb") as url, Redis.from_url(url) as redis:
        with suppress(OutOfMemoryError):
            while True:
                redis.rpush("written", "x" * 10_000)
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url)
        redis.config_set("maxmemory", "100mb")
        mended, told_then = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url)
    assert status == 1
    assert "ledger     its memory is full, 1 MB: it refuses every write" in told
    assert "CONFIG SET maxmemory to more" in told
    assert mended == 0, told_then


@pytest.mark.redis
def test_every_primary_of_a_cluster_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process, port = start_node(tmp_path)
    try:
        with Redis(port=port) as node:
            node.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
            wait_for(lambda: node.cluster("INFO")["cluster_state"] == "ok")
        url = f"redis+cluster://127.0.0.1:{port}"
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url)
        as_a_server = f"redis://127.0.0.1:{port}"
        _, told_else = consult(monkeypatch, tmp_path, AFA_REDIS_URL=as_a_server)
        refused = runner.invoke(app, ["up", "--port", str(embedded_redis.free_port())])
    finally:
        process.kill()
        process.wait()
    assert "or a node of one" not in told
    # afa's scripts would use keys of several slots, and be refused.
    assert "ledger     is a Redis Cluster, or a node of one" in told_else
    assert refused.exit_code == 1
    assert "AFA_REDIS_URL: is a Redis Cluster" in refused.output
    assert status == 1
    assert f"ledger     127.0.0.1:{port}: appendonly is no" in told
    assert f"ledger     127.0.0.1:{port}: has no replica" in told
    assert REST in told


def test_a_setting_that_is_misspelt_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    misspelt = {"AFA_PLAYGROND": "off", "AFA_TRUSTED_PROXY": "[]"}
    not_ours = {"AFA_PORT": "tcp://10.0.0.1:80", "AFA_SERVE_SVC_SERVICE_HOST": "10.0.0.1"}
    status, told = consult(monkeypatch, tmp_path, **misspelt, **not_ours, afa_playground="off")
    assert status == 1
    assert re.findall(r"settings +(\S+) does nothing\n +(.*)", told) == [
        ("AFA_PLAYGROND", "is AFA_PLAYGROUND meant?"),
        ("AFA_TRUSTED_PROXY", "is AFA_TRUSTED_PROXIES meant?"),
    ]


@pytest.mark.redis
@pytest.mark.parametrize("setting", ["AFA_REDIS_URL", "AFA_CACHE_URL"])
def test_a_sentinel_is_no_ledger_and_no_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    port = embedded_redis.free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\nlogfile {tmp_path / 'log'}\n")
    process = subprocess.Popen([embedded_redis.find_binary(), config, "--sentinel"])
    try:
        with Redis(port=port) as sentinel:
            wait_for(sentinel.ping)
        status, told = consult(monkeypatch, tmp_path, **{setting: f"redis://127.0.0.1:{port}"})
        refused = runner.invoke(app, ["up", "--port", str(embedded_redis.free_port())])
    finally:
        process.kill()
        process.wait()
    role = {"AFA_REDIS_URL": "ledger", "AFA_CACHE_URL": "cache"}[setting]
    assert f"{role:10} is a Redis Sentinel" in told
    assert REST in told
    assert (status, refused.exit_code) == (1, 1)
    assert f"{setting}: is a Redis Sentinel; it has no data" in refused.output


@pytest.mark.redis
@pytest.mark.parametrize(("policy", "status"), [("noeviction", 1), ("allkeys-lru", 0)])
def test_a_cache_that_fills_up_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, policy: str, status: int
) -> None:
    with redis_of("--maxmemory-policy", policy, role="cache") as url:
        found, told = consult(monkeypatch, tmp_path, AFA_CACHE_URL=url)
    assert found == status, told
    assert ("it fills up, and then refuses writes" in told) == bool(status)


@pytest.mark.redis
def test_a_ledger_that_is_the_cache_too_evicts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with redis_of() as url:
        status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=url, AFA_CACHE_URL=url)
    assert status == 0, told
    assert "cache      answers" in told


@pytest.mark.parametrize("shared", ["s3://bucket/x?foo=1", "s3://bucket/x?endpoint", "/mnt/x"])
def test_shared_storage_that_is_no_address_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: str
) -> None:
    monkeypatch.setattr(nodes, "versions_by_node", dict)
    status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=AWAY, AFA_SHARED=shared)
    assert status == 1
    assert told.count("set AFA_SHARED to s3://bucket/prefix") == 1
    assert ("AFA_SHARED: not on storage that every node sees" in told) == ("://" not in shared)
    assert REST in told


def test_what_one_machine_shares_may_be_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    _, told = consult(monkeypatch, tmp_path, AFA_SHARED=str(shared))
    assert "set AFA_SHARED" not in told
    assert f"objects    {shared.as_uri()}/objects is not there yet" in told


def test_shared_storage_that_is_not_mounted_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nodes, "versions_by_node", dict)
    away, library = tmp_path / "away", tmp_path / "library"
    settings = {"AFA_SHARED": away.as_uri(), "AFA_LIBRARY": library.as_uri()}
    status, told = consult(monkeypatch, tmp_path, AFA_REDIS_URL=AWAY, **settings)
    assert status == 1
    for part, folder in (("shared", away), ("library", library)):
        assert f"{part:<10} {folder.as_uri()} is not there\n" in told
    assert told.count("is it mounted on this machine?") == 2
    assert "not there yet" not in told
    assert not away.exists()


def test_a_file_is_no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    status, told = consult(monkeypatch, tmp_path, AFA_OBJECT_STORE=str(file))
    assert status == 1
    assert f"objects    {file} is not a folder" in told
    assert REST in told
    status, told = consult(monkeypatch, file)
    assert status == 1
    assert f"disk       {file} is not a folder" in told


def test_a_folder_that_takes_no_files_is_no_bucket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, told = consult(monkeypatch, tmp_path, AFA_OBJECT_STORE="/sys/kernel")
    assert status == 1
    assert "make room there, and let afa's user write to it" in told
    assert "bucket" not in told
    assert REST in told


def test_a_torn_session_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "session.json").write_text('{"url": "http://127.0.0.1:80')
    status, told = consult(monkeypatch, tmp_path)
    assert status == 1
    assert "session.json is torn" in told
    assert REST in told
    assert "not running; start it" in runner.invoke(app, ["status"]).output
    assert "not running" in runner.invoke(app, ["down"]).output


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
    assert "`--gpus all`" in told


@pytest.mark.parametrize(("device", "status"), [("cuda:1", 1), ("cuda:0", 0), ("cuda", 0)])
def test_a_gpu_that_is_not_among_those_here_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, status: int
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"card {number}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: (9, 0))
    found, told = consult(monkeypatch, tmp_path, AFA_DEVICE=device)
    assert found == status, told
    assert ("the last one here is AFA_DEVICE=cuda:0" in told) == bool(status)


@pytest.mark.parametrize(("device", "status"), [("auto", 1), ("cuda", 1), ("cpu", 0)])
def test_a_gpu_that_is_too_old_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, status: int
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"card {number}")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: (6, 1))
    found, told = consult(monkeypatch, tmp_path, AFA_DEVICE=device)
    assert found == status, told
    assert ("card 0 has the compute capability 6.1, and torch" in told) == bool(status)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no second disk")  # noqa: S108
def test_a_disk_without_room_is_told_whatever_lies_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(5e8))
    status, told = consult(monkeypatch, tmp_path, RAY_TMPDIR="/dev/shm")  # noqa: S108
    assert status == 1
    assert f"disk       0 GB free at {tmp_path}\n" in told
    assert "a full disk stops the ledger" in told
    assert "disk       0 GB free at /dev/shm\n" in told
    assert "name another with RAY_TMPDIR" in told
    assert "memory     0.5 GB free at /dev/shm" in told
    assert "--shm-size=2g" in told


@pytest.mark.parametrize(("available", "is_told"), [(2e9, True), (9e9, False)])
def test_a_machine_whose_memory_others_take_is_told(
    available: float, is_told: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory = namedtuple("memory", "available total")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(available, 24e9))
    status, told = consult(monkeypatch, tmp_path)
    assert status == 0
    assert f"memory     {available / 1e9:.1f} of 24.0 GB available" in told
    assert ("below 5 % Ray ends afa's processes" in told) == is_told


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
    """Run a listening process with this name; yield its pid and port."""
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
        session = {"url": "http://127.0.0.1:8000", "metrics": "", "pids": {"service": pid}}
        (tmp_path / "data" / "session.json").write_text(json.dumps(session))
        found, told = consult(monkeypatch, tmp_path)
        session["metrics"] = f"http://{address}:{port}/metrics"
        (tmp_path / "data" / "session.json").write_text(json.dumps(session))
        found_of_metrics, told_of_metrics = consult(monkeypatch, tmp_path)
    assert found_of_metrics == 0, told_of_metrics
    assert (f"{port} shows the metrics to other machines" in told_of_metrics) == bool(status)
    assert found == status, told
    if status:
        assert f"open to other machines: {port} (inner)" in told
    else:
        assert "ports      8000 and 1 are open to this machine alone" in told


def test_the_ports_of_another_process_with_the_pid_of_the_service_are_its_own_affair(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "session.json"
    with listening(tmp_path, "0.0.0.0", "inner") as (pid, _):  # noqa: S104
        session = {"url": "http://127.0.0.1:8000", "metrics": "", "pids": {"service": pid}}
        path.write_text(json.dumps(session))
        os.utime(path, (0, 0))
        status, told = consult(monkeypatch, tmp_path)
    assert status == 0, told
    assert "open to other machines" not in told


@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_node_of_ray_tells_its_ports_and_whether_it_asks_for_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    away = {"AFA_REDIS_URL": "redis://127.0.0.1:9"}
    with listening(tmp_path, "0.0.0.0", "raylet", RAY_AUTH_MODE=mode) as (pid, port):  # noqa: S104
        _, told = consult(monkeypatch, tmp_path, is_node=True, **away)
    assert (f"raylet {pid} asks for no token" in told) == (mode != "token")
    assert re.search(rf"Ray's \d+ are open to other machines: .*\b{port}\b", told), told
