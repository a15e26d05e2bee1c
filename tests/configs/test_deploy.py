"""What the deploy kit says agrees with the Serve file and the settings."""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from configs.settings import Settings
from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
SERVE_FILE = REPOSITORY / "configs" / "serve.gpu.yaml"


def lines_of(name: str) -> dict[str, str]:
    """Give the variables of an environment file."""
    text = (DEPLOY / name).read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]", line))


def test_kubernetes_serves_the_same_file() -> None:
    service, *budgets = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    assert yaml.safe_load(service["spec"]["serveConfigV2"]) == yaml.safe_load(
        SERVE_FILE.read_text()
    )
    groups = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    labels = {group["template"]["metadata"]["labels"]["afa/group"] for group in groups}
    assert labels == {one["spec"]["selector"]["matchLabels"]["afa/group"] for one in budgets}
    (container,) = groups[1]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["image"] == "afa"


def test_the_operator_can_ask_and_reach_what_it_starts() -> None:
    """KubeRay asks Ray's dashboard with the token, and each node by wget."""
    service = next(yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text()))
    cluster = service["spec"]["rayClusterConfig"]
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    secrets = {source["secretRef"]["name"] for source in head["envFrom"]}
    assert cluster["authOptions"] == {"mode": "token", "secretName": "afa"}
    assert {cluster["authOptions"]["secretName"]} == secrets
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert {"gcs-server": 6379, "dashboard": 8265, "serve": 8000}.items() <= ports.items()
    assert " wget" in (DEPLOY / "Dockerfile").read_text()
    waits = "RAY_gcs_rpc_server_reconnect_timeout_s"
    assert {"name": waits, "value": lines_of("afa.env.example")[waits]} in head["env"]


def test_what_needs_no_gpu_runs_on_nodes_without_one() -> None:
    rows: list[Any] = yaml.safe_load(SERVE_FILE.read_text())["applications"][0]["deployments"]
    for row in rows:
        options = row["ray_actor_options"]
        assert ("num_gpus" in options) != ("cpu_node" in options.get("resources", {}))
    cluster = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())
    for node in cluster["available_node_types"].values():
        assert not {"GPU", "cpu_node"} <= set(node["resources"])
    assert 'cpu_node\\": 1000' in (DEPLOY / "kuberay.yaml").read_text()


def test_the_settings_of_the_kit_exist() -> None:
    known = {f"AFA_{name.upper()}" for name in Settings.model_fields}
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["afa"]
    for names in (lines_of("afa.env.example"), compose["environment"]):
        assert {name for name in names if name.startswith("AFA_")} <= known
        assert {"AFA_REDIS_URL", "AFA_CACHE_URL", "AFA_SHARED", "AFA_KEY_PEPPER"} <= set(names)


def test_every_node_of_a_cluster_reads_the_settings() -> None:
    cluster = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())
    for kind in ("head", "worker"):
        assert "./afa.env" in cluster[f"{kind}_start_ray_commands"][-1]
    assert {"RAY_REDIS_ADDRESS", "RAY_AUTH_TOKEN", "RAY_external_storage_namespace"} <= set(
        lines_of("afa.env.example")
    )


def test_rays_launcher_has_what_it_needs_on_the_head() -> None:
    """Ray's image is too old for afa's Python, and Ray itself brings nothing that starts nodes."""
    text = (REPOSITORY / "cluster.yaml").read_text()
    cluster = yaml.safe_load(text)
    assert " boto3 " in cluster["setup_commands"][-1]
    for node in cluster["available_node_types"].values():
        assert node["node_config"]["ImageId"].startswith("ami-")
    assert "/srv/afa/.venv/bin/serve deploy" in text.partition("cluster_name")[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_understands_the_unit() -> None:
    line = ["systemd-analyze", "verify", str(DEPLOY / "afa.service")]
    told = subprocess.run(line, capture_output=True, text=True, check=False)
    complaints = [one for one in told.stderr.splitlines() if "is not executable" not in one]
    assert not complaints


def test_the_image_copies_every_package_of_the_project() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - {"tests"}
    assert copied == packages
