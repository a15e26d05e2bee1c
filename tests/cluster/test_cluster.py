"""Loss of a node, loss of the head, a new version: what customers notice, on three real Ray nodes.

``pytest -m slow tests/cluster -s`` as root (it makes network namespaces), about 20 minutes.
The tests share one cluster, and each leaves it in working order; each prints its figures.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.load import Load
from tests.cluster.nodes import START_LIMIT_S, Cluster, patiently, running
from tests.conftest import REPOSITORY
from tests.system.conftest import AFA
from tests.system.test_service import DEMO

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.redis,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2: namespaces"
    ),
]

DEPLOY_LIMIT_S = 1200
CALM_S = 20
AWAY_S = 60
PYTHON_PROXY = {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0"}
"""HAProxy's own answers would not have the body of the service's errors."""


def profile(**jobs: float) -> dict[str, Any]:
    """Return the shipped Serve file with the default checkpoints, which need no GPU."""
    content: dict[str, Any] = yaml.safe_load(
        (REPOSITORY / "configs" / "serve.gpu.yaml").read_text()
    )
    (application,) = content["applications"]
    application["args"] = {
        "worker": {"concurrent_jobs": 2},
        "jobs": {"run_limit_s": 900} | jobs,
    }
    rows = {row["name"]: row for row in application["deployments"]}
    both = rows.pop("MoodAndEmbedding")
    half = both["ray_actor_options"]["num_gpus"] / 2
    for name in ("Mood", "Embedding"):
        options = {"num_cpus": 1, "num_gpus": half}
        rows[name] = both | {"name": name, "ray_actor_options": options}
    for name in ("Spectral", "Mood", "Embedding"):  # there is one card, and there will be no other
        rows[name]["autoscaling_config"]["max_replicas"] = 1
    application["deployments"] = list(rows.values())
    return content


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with the service; its checkpoints and catalog come from the shared storage."""
    folder = Path(tempfile.mkdtemp(prefix="afa-cluster-"))
    with running(folder, PYTHON_PROXY) as cluster:
        cluster.afa("catalog", "import", "serve_app/data/demo_catalog.parquet")
        cluster.afa("catalog", "publish")
        cluster.afa("models", "publish")
        cluster.deploy(profile())
        cluster.wait_until_deployed(DEPLOY_LIMIT_S)
        yield cluster
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def key(cluster: Cluster) -> str:
    return cluster.afa("keys", "create", "customer", "--tier", "scale").split()[0]


@pytest.fixture
def load(cluster: Cluster, key: str) -> Load:
    urls = [node.url for node in cluster.nodes.values()]
    reads = ["/v1/account", "/v1/audio-features/isrc:QZAFA2600001"]
    load = Load(urls, key, reads, DEMO.read_bytes())
    with load.client() as client:  # afterwards the cache has it
        patiently(lambda: client.get(urls[0] + reads[1]).status_code == 200, DEPLOY_LIMIT_S)
    return load


def tell(name: str, load: Load, **figures: float) -> None:
    """Print what was observed."""
    told = ", ".join(f"{what} {value:.0f}" for what, value in figures.items())
    sys.stdout.write(f"\n{name}: {told}\n  {dict(sorted(load.counted().items()))}\n")
    for failure in load.refused()[:20]:
        sys.stdout.write(f"  {failure}\n")


def audited(cluster: Cluster, load: Load) -> None:
    """Check that each job ended once, and that the credits add up."""
    assert load.ends
    for job_id, states in load.ends.items():
        assert states[-1] in ("complete", "failed"), (job_id, states)
    assert "all invariants hold" in cluster.afa("credits", "audit")


def test_everything_lies_where_it_should(cluster: Cluster, load: Load) -> None:
    for deployment in ("Spectral", "Mood", "Embedding"):
        assert set(cluster.replicas(deployment)) == {"two"}, deployment
    for deployment in ("Api", "Bpm", "Identify", "Keeper", "AnalysisWorker"):
        assert "head" not in cluster.replicas(deployment), deployment
    with load.going_on(readers=1, submitters=1):
        patiently(lambda: any(states[-1:] == ["complete"] for states in load.ends.values()), 300)
    tell("calm", load)
    assert not load.failures()
    audited(cluster, load)
    for node in cluster.nodes.values():
        kept = {path.name for path in (node.folder / "disk" / "afa").glob("*")}
        assert kept <= {"published", "library-view"}, (node.name, kept)  # both may be deleted
    told = cluster.nodes["two"].call(*AFA, "doctor").stdout
    sys.stdout.write(f"\n{told}")
    assert "torch 2" in told, told
    assert "on all 3" in told, told
    assert told.count(", here too") == 2, told  # catalog and checkpoints, fetched by this node


def test_a_new_version_is_rolled_out_without_a_failed_request(cluster: Cluster, load: Load) -> None:
    with load.going_on():
        time.sleep(CALM_S)
        start = time.monotonic()
        cluster.deploy(profile(run_limit_s=901))
        patiently(lambda: cluster.application()["status"] == "DEPLOYING", 60)
        cluster.wait_until_deployed(DEPLOY_LIMIT_S)
        took_s = time.monotonic() - start
        time.sleep(CALM_S)
    tell("rolling upgrade", load, took_s=took_s, last_refusal_s=load.last_failure_s(start))
    assert not load.refused()
    audited(cluster, load)


def test_the_head_goes_and_comes_back(cluster: Cluster, load: Load) -> None:
    with load.going_on():
        time.sleep(CALM_S)
        start = time.monotonic()
        cluster.head.kill()
        time.sleep(AWAY_S)
        away = load.counted(start + 5)
        cluster.head.start()
        cluster.wait_for_nodes(len(cluster.nodes), DEPLOY_LIMIT_S)
        cluster.wait_until_deployed(DEPLOY_LIMIT_S)
        took_s = time.monotonic() - start
        time.sleep(CALM_S)
    tell("head killed", load, whole_again_s=took_s, last_refusal_s=load.last_failure_s(start))
    assert away["read 200"] > 0.9 * sum(n for what, n in away.items() if what.startswith("read"))
    audited(cluster, load)


def test_a_node_goes_and_comes_back(cluster: Cluster, load: Load) -> None:
    with load.going_on():
        time.sleep(CALM_S)
        start = time.monotonic()
        cluster.nodes["one"].kill()
        time.sleep(AWAY_S)
        cluster.nodes["one"].start()
        cluster.wait_for_nodes(len(cluster.nodes), START_LIMIT_S)
        cluster.wait_until_deployed(DEPLOY_LIMIT_S)
        took_s = time.monotonic() - start
        time.sleep(CALM_S)
    tell("node killed", load, whole_again_s=took_s, last_refusal_s=load.last_failure_s(start))
    audited(cluster, load)
