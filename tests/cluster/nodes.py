"""A Ray cluster on one machine: every node has its own address, processes and disk.

A node is a network namespace on a bridge, with its own process and mount namespaces: killing its
first process has the effect of a power cut. The ledger, the cache, Ray's state and the bucket are
on the bridge's address, outside all nodes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from serve_app.local.embedded_redis import find_binary
from tests.conftest import REPOSITORY

BIN = Path(sys.executable).parent
IP = shutil.which("ip") or "ip"
BRIDGE = "afa0"
OUTSIDE = "10.77.0.254"
LEDGER_PORT, CACHE_PORT, STATE_PORT, BUCKET_PORT = 6401, 6402, 6403, 5400
GCS_PORT = 6379
START_LIMIT_S = 420
DASHBOARD = "http://127.0.0.1:8265"
PASSWORD = "of-the-test"  # noqa: S105
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--aof-load-truncated", "no")


def environment_file() -> dict[str, str]:
    """Return what the shipped file of settings sets on every node."""
    lines = (REPOSITORY / "deploy" / "afa.env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def run(*words: str) -> None:
    """Run a system command; its output is shown if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@dataclass
class Node:
    """One machine of the cluster.

    Attributes:
        name: The name of its namespace.
        address: Its address on the bridge.
        resources: The options of `ray start` for its resources.
        folder: Its disk, as a folder seen from outside.
        places: For each folder of its disk, the path where its own processes see it.
    """

    name: str
    address: str
    resources: tuple[str, ...]
    folder: Path
    places: Mapping[str, Path]
    environment: Mapping[str, str]
    is_head: bool = False
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """The URL of its proxy."""
        return f"http://{self.address}:8000"

    def plug_in(self) -> None:
        """Connect it to the network."""
        ends = (f"v-{self.name}", f"w-{self.name}")
        run(IP, "netns", "add", self.name)
        run(IP, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        run(IP, "link", "set", ends[0], "master", BRIDGE, "up")
        run(IP, "link", "set", ends[1], "netns", self.name)
        for words in (
            f"link set {ends[1]} name eth0",
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
        ):
            run(IP, "-n", self.name, *words.split())

    def start(self) -> None:
        """Start Ray; the first time, on an empty disk."""
        own = {self.folder / name: place for name, place in self.places.items()}
        for path in (*own, *own.values()):
            path.mkdir(parents=True, exist_ok=True)
        words = [str(BIN / "ray"), "start", "--block", f"--node-ip-address={self.address}"]
        if self.is_head:
            words += ["--head", f"--port={GCS_PORT}", f"--redis-password={PASSWORD}"]
        else:
            words += [f"--address={HEAD_ADDRESS}:{GCS_PORT}"]
        words += ["--metrics-export-port=8080", "--object-store-memory=500000000", *self.resources]
        binds = [f"mount --bind {folder} {place}" for folder, place in own.items()]
        mounts = " && ".join([*binds, "mount -t tmpfs tmpfs /dev/shm"])
        mounts += ' && until "$@"; do sleep 1; done'
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [IP, "netns", "exec", self.name, *apart, "bash", "-c", mounts, "node", *words],
                env=self.environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill all its processes at once, as a power cut does."""
        assert self.process is not None
        self.process.kill()  # its child is killed with it, and so is all of the namespace
        self.process.wait()
        self.process = None

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on it: in its namespaces, on its disk, with its settings."""
        assert self.process is not None
        kids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        (first,) = kids.read_text().split()
        inside = ["nsenter", "--mount", "--pid", f"--target={first}"]
        return subprocess.run(
            [IP, "netns", "exec", self.name, *inside, *words],
            env=self.environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


HEAD_ADDRESS = "10.77.0.1"


@dataclass
class Cluster:
    """Three nodes: a head without work, one without a GPU, one that claims to have one."""

    folder: Path
    changed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        token = "0123456789abcdef" * 4
        clean = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        redis = f"redis://:{PASSWORD}@{OUTSIDE}"
        self.settings = environment_file() | {
            "AFA_REDIS_URL": f"{redis}:{LEDGER_PORT}/0",
            "AFA_CACHE_URL": f"{redis}:{CACHE_PORT}/0",
            "AFA_SHARED": f"s3://afa/data?endpoint=http://{OUTSIDE}:{BUCKET_PORT}&region=us-east-1",
            "AFA_KEY_PEPPER": "pepper-of-the-test-pepper-of-the-test",
            "AFA_PUBLIC_URL": f"http://{HEAD_ADDRESS}:8000",
            "AFA_DEVICE": "cpu",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "RAY_AUTH_TOKEN": token,
            "RAY_REDIS_ADDRESS": f"{OUTSIDE}:{STATE_PORT}",
            "RAY_REDIS_PASSWORD": PASSWORD,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_server_port_wait_time_s": "120",
            "RAY_worker_niceness": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(REPOSITORY),
            **self.changed,
        }
        kinds: list[tuple[str, list[str]]] = [
            ("head", ["--num-cpus=0"]),
            ("one", ["--num-cpus=20", '--resources={"cpu_node": 1000}']),
            ("two", ["--num-cpus=36", "--num-gpus=1", '--resources={"cpu_node": 1000}']),
        ]
        disk = self.folder / "disk"  # the same path on all nodes, but a different disk on each
        places = {
            "ray": Path("/tmp/ray"),  # noqa: S108
            "haproxy": Path("/tmp/haproxy-serve"),  # noqa: S108
            "disk": disk,
        }
        self.nodes = {}
        for place, (name, resources) in enumerate(kinds, start=1):
            own = {"AFA_DATA_DIR": str(disk / "afa"), "HOME": str(disk)}
            environment = clean | self.settings | own
            if name != "head":
                del environment["RAY_REDIS_ADDRESS"]
            self.nodes[name] = Node(
                f"afa-{name}",
                f"10.77.0.{place}",
                tuple(resources),
                self.folder / name,
                places,
                environment,
                is_head=name == "head",
            )
        self._outside: list[subprocess.Popen[bytes]] = []
        self._quick = Path(tempfile.mkdtemp(prefix="afa-cluster-", dir="/dev/shm"))

    @property
    def head(self) -> Node:
        """The node with Ray's own state and Serve's controller."""
        return self.nodes["head"]

    def start(self) -> None:
        """Start the servers outside the nodes, then the nodes."""
        run(IP, "link", "add", BRIDGE, "type", "bridge")
        run(IP, "addr", "add", f"{OUTSIDE}/24", "dev", BRIDGE)
        run(IP, "link", "set", BRIDGE, "up")
        for port, options in (
            (LEDGER_PORT, DURABLE),
            (CACHE_PORT, ("--save", "", "--maxmemory-policy", "allkeys-lru")),
            (STATE_PORT, DURABLE),
        ):
            self._start_redis(port, options)
        self._start(str(BIN / "moto_server"), "-H", OUTSIDE, "-p", str(BUCKET_PORT))
        bucket = f"http://{OUTSIDE}:{BUCKET_PORT}/afa"
        patiently(lambda: httpx.put(bucket).is_success, 60)
        for node in self.nodes.values():
            node.plug_in()
        self.head.start()
        self.wait_for_nodes(1, START_LIMIT_S)
        for node in self.nodes.values():
            if not node.is_head:
                node.start()
        self.wait_for_nodes(len(self.nodes), START_LIMIT_S)

    def stop(self) -> None:
        """End everything, and remove the network."""
        for node in self.nodes.values():
            if node.process is not None:
                node.kill()
            for words in (["netns", "del", node.name], ["link", "del", f"v-{node.name}"]):
                subprocess.run([IP, *words], capture_output=True, check=False)
        for process in self._outside:
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run([IP, "link", "del", BRIDGE], capture_output=True, check=False)
        shutil.rmtree(self._quick)

    def wait_for_nodes(self, n: int, limit_s: float) -> None:
        """Return once Ray knows ``n`` living nodes."""
        patiently(lambda: self.n_alive() == n, limit_s)

    def n_alive(self) -> int:
        """Count the nodes that Ray considers alive."""
        told = self.asked("/nodes?view=summary")
        states = [row["raylet"].get("state") for row in told["data"]["summary"]]
        return states.count("ALIVE")

    def asked(self, path: str) -> Any:
        """Return JSON from Ray's dashboard on the head."""
        words = ["curl", "-sS", "-m", "20", "-H", f"Authorization: Bearer {self._token}"]
        return json.loads(self.head.call(*words, DASHBOARD + path).stdout)

    @property
    def _token(self) -> str:
        return self.settings["RAY_AUTH_TOKEN"]

    def deploy(self, content: Mapping[str, Any]) -> None:
        """Deploy as an operator does: `serve deploy FILE` on the head."""
        file = self.folder / "serve.json"
        file.write_text(json.dumps(content))
        done = self.head.call(str(BIN / "serve"), "deploy", str(file), "-a", DASHBOARD)
        assert done.returncode == 0, done.stdout + done.stderr

    def application(self) -> dict[str, Any]:
        """Return what Serve reports about the application."""
        told: dict[str, Any] = self.asked("/api/serve/applications/")["applications"].get("afa", {})
        return told

    def wait_until_deployed(self, limit_s: float) -> None:
        """Return once Serve reports every deployment as healthy."""

        def is_done() -> bool:
            told = self.application()
            parts = told.get("deployments", {}).values()
            messages = [part["message"] for part in parts if part["status"] != "HEALTHY"]
            assert told.get("status") != "DEPLOY_FAILED", messages
            return told.get("status") == "RUNNING" and all(
                part["status"] == "HEALTHY" for part in parts
            )

        patiently(is_done, limit_s)

    def replicas(self, deployment: str) -> dict[str, int]:
        """Count the running replicas of a deployment by node."""
        names = {node.address: name for name, node in self.nodes.items()}
        counted: dict[str, int] = {}
        for row in self.application()["deployments"][deployment]["replicas"]:
            if row["state"] == "RUNNING":
                name = names[row["node_ip"]]
                counted[name] = counted.get(name, 0) + 1
        return counted

    def afa(self, *words: str) -> str:
        """Run the `afa` command with the settings of the cluster, but on none of its nodes."""
        own = {"AFA_DATA_DIR": str(self.folder / "operator"), "HOME": str(Path.home())}
        done = subprocess.run(
            [sys.executable, "-c", "from serve_app.cli.main import main; main()", *words],
            env=self.head.environment | own,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _start_redis(self, port: int, options: tuple[str, ...]) -> None:
        """Start a server as if on a separate machine: no node slows down its processor or its disk.

        `nice` would not help: Linux weighs it only within a session (sched(7), autogroups).
        """
        place = self._quick / f"redis-{port}"
        place.mkdir()
        own = ("--bind", OUTSIDE, "--port", str(port), "--dir", str(place))
        command = (str(find_binary()), *own, "--requirepass", PASSWORD, *options)
        self._start("chrt", "--rr", "1", *command)

    def _start(self, *words: str) -> None:
        with (self.folder / "outside.log").open("ab") as log:
            self._outside.append(subprocess.Popen(words, stdout=log, stderr=log))


def patiently(is_done: Any, limit_s: float, pause_s: float = 1.0) -> float:
    """Ask until it is true; return how many seconds that took."""
    start = time.monotonic()
    while True:
        told: object = None
        try:
            told = is_done()
            if told:
                return time.monotonic() - start
        except (OSError, ValueError, KeyError, httpx.HTTPError) as error:
            told = error
        assert time.monotonic() - start < limit_s, f"not after {limit_s:g} s: {told!r}"
        time.sleep(pause_s)


@contextmanager
def running(folder: Path, changed: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Start a cluster, and remove all of it afterwards."""
    cluster = Cluster(folder, changed or {})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
