"""How fast a back-fill is on nodes that have a fixed share of a processor.

A node is one processor, minus what its control group leaves to the head and the command itself.
The other processor always does the same kind of work, since two that share a core are slower
together than alone. While one node is measured, that work is a bare loop, with which the node is
compared: both run in the same minutes on a machine whose speed varies. The time that starting takes
cancels out: only the files that a longer run has more than a shorter one count.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.soak.backfill_kills import COMMAND

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000
MOST_SHARES = 262_144
"""Other processes get what is left."""

SHARE = 0.85
"""The share of a processor that each node has."""

NODE_MEMORY = 200_000_000
SERVED = "import sys; from tests.soak.backfill_nodes import serve; serve(int(sys.argv[1]))"
HEARD = "import sys; from tests.soak.backfill_nodes import hear; hear(sys.argv[1])"


def can_confine() -> bool:
    """Return whether a process can be given a share of a processor here."""
    return os.access(GROUPS / "cpu.cfs_quota_us", os.W_OK)


@contextmanager
def confined() -> Iterator[Path]:
    """Yield a control group with a node's share; its processes are killed after the block."""
    group = GROUPS / f"afa-{secrets.token_hex(4)}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(round(SHARE * PERIOD_US)))
    (group / "cpu.shares").write_text(str(MOST_SHARES))
    try:
        yield group
    finally:
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)
        group.rmdir()


@contextmanager
def hearing(folder: Path, cpu: int) -> Iterator[list[float]]:
    """Run a bare loop over a folder again and again: one process, one file after the other.

    After the block, the yielded list has the seconds of every complete pass.
    """
    passes_s: list[float] = []
    with confined() as group:
        enter = f'echo $$ > {group}/cgroup.procs && exec taskset -c {cpu} "$@"'
        line = ["sh", "-c", enter, "sh", sys.executable, "-c", HEARD, str(folder)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            yield passes_s
            process.kill()
            assert process.stdout is not None
            passes_s += map(float, process.stdout.read().splitlines())


def hear(folder: str) -> None:
    """Do what a back-fill does with each file, keep nothing, print each pass's seconds; repeat."""
    import torch

    from configs.settings import Settings
    from pipelines.analysis.features import to_json
    from pipelines.audio.decode import decode
    from pipelines.fingerprint.make import make_chromaprint
    from pipelines.local import LocalAnalyzer
    from serve_app.cli.environment import profile_of
    from serve_app.services.scan.facts import LIMITS
    from serve_app.services.scan.naming import Naming
    from serve_app.services.scan.places import Found
    from serve_app.services.scan.reading import read_file

    torch.set_num_threads(1)
    profile = profile_of(None)
    options = profile.model_options(profile.embedding, Settings())
    device = torch.device("cpu")
    analyzer = LocalAnalyzer(options.cards(), options.model_dir, device, options.max_windows)
    nothing = Path(folder) / "none"
    naming = Naming.open(nothing, nothing)
    paths = sorted(Path(folder).iterdir())
    analyzer.analyze(paths[0], LIMITS)
    while True:
        began_s = time.perf_counter()
        for path in paths:
            status = path.stat()
            read_file(Found(str(path), status.st_size, status.st_mtime_ns), path, naming)
            waveform = decode(path, LIMITS)
            make_chromaprint(waveform)
            to_json(analyzer.hear(waveform))
        sys.stdout.write(f"{time.perf_counter() - began_s}\n")
        sys.stdout.flush()


@contextmanager
def nodes(n: int) -> Iterator[Mapping[str, str]]:
    """Start a head without a CPU and nodes with one each; yield the environment to reach them."""
    own = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "PYTHONPATH": str(REPOSITORY),
    }
    line = [sys.executable, "-c", SERVED, str(n)]
    environment = os.environ | own
    with subprocess.Popen(
        line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address, *pids = cluster.stdout.readline().split()
        try:
            with each_confined(pids):
                yield environment | {"RAY_ADDRESS": address}
        finally:
            cluster.stdin.close()


@contextmanager
def each_confined(pids: list[str]) -> Iterator[None]:
    """Confine each process and its descendants to one processor each."""
    with ExitStack() as groups:
        for cpu, one in enumerate(pids):
            group = groups.enter_context(confined())
            for pid in family(int(one)):
                (group / "cgroup.procs").write_text(str(pid))
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), {cpu})
        yield


def family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for kids in Path(f"/proc/{pid}/task").glob("*/children"):
        for kid in kids.read_text().split():
            yield from family(int(kid))


def serve(n: int) -> None:
    """Run a cluster until standard input ends; print its address and each node's raylet pid."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": NODE_MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    told = [cluster.address]
    for _ in range(n):
        node = cluster.add_node(wait=True, num_cpus=1, object_store_memory=NODE_MEMORY)
        told.append(str(node.all_processes["raylet"][0].process.pid))
    sys.stdout.write(" ".join(told) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


def backfill_s(source: Path, folder: Path, environment: Mapping[str, str]) -> float:
    """Return the seconds of a complete run with its start, into a new library and new tables."""
    own = {"AFA_DATA_DIR": str(folder / "data")}
    line = [sys.executable, "-c", COMMAND, "backfill", str(source), "--out", str(folder / "out")]
    began_s = time.perf_counter()
    done = subprocess.run(line, env=environment | own, check=False, capture_output=True, text=True)
    took_s = time.perf_counter() - began_s
    n_files = len(list(source.iterdir()))
    assert f"{n_files} heard" in done.stdout, done.stdout + done.stderr
    return took_s
