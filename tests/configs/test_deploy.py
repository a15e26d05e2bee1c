"""The deployment files agree with the Serve file and the settings."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.settings import Settings
from serve_app.cli.service import STOP_LIMIT_S
from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
SERVE_FILE = REPOSITORY / "configs" / "serve.gpu.yaml"


def lines_of(name: str) -> dict[str, str]:
    """Return the variables of an environment file."""
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
    """KubeRay calls Ray's dashboard with the token, and each node with wget."""
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


def test_what_an_image_compiles_lies_where_it_can_be_loaded() -> None:
    """Docker mounts a tmpfs, such as the image's /tmp, with ``noexec``."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["afa"]
    text = (DEPLOY / "Dockerfile").read_text()
    (folder,) = re.findall(r"\bTORCHINDUCTOR_CACHE_DIR=(\S+)", text)
    assert "/data" in re.findall(r"^VOLUME (.*)$", text, re.MULTILINE)
    assert folder.startswith("/data/")
    assert not any(folder.startswith(place) for place in compose["tmpfs"])


def test_every_node_of_a_cluster_reads_the_settings() -> None:
    cluster = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())
    for kind in ("head", "worker"):
        assert " . deploy/settings.sh " in cluster[f"{kind}_start_ray_commands"][-1]
    assert {"RAY_REDIS_ADDRESS", "RAY_AUTH_TOKEN", "RAY_external_storage_namespace"} <= set(
        lines_of("afa.env.example")
    )


SETTINGS = {
    "AFA_SHARED": "s3://afa/data?endpoint=http://minio:9000&region=us-east-1",
    "AFA_REDIS_URL": "redis://:a;b$HOME`id`'\"\\ #é@ledger:6379/0",
    "AFA_TRUSTED_PROXIES": '["10.0.0.0/8", "127.0.0.1"]',
    "RAY_REDIS_PASSWORD": "two  words ",
}


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("kind", ["head", "worker"])
def test_settings_reach_ray_as_they_stand_in_the_file(
    tmp_path: Path, shell: str, kind: str
) -> None:
    """Runs the exact line of the cluster file, with a `ray` that prints what it was given."""
    lines = ["# comment", "", *(f"{name}={value}" for name, value in SETTINGS.items())]
    (tmp_path / "afa.env").write_text("\n".join(lines))  # the last line has no newline
    (tmp_path / "deploy").symlink_to(DEPLOY)
    ray = tmp_path / ".venv" / "bin" / "ray"
    ray.parent.mkdir(parents=True)
    ray.write_text('#!/bin/sh\nprintf "%s\\0" "$@"; exec env -0\n')
    ray.chmod(0o755)
    cluster = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())
    line = cluster[f"{kind}_start_ray_commands"][-1].replace("/srv/afa", str(tmp_path))
    done = subprocess.run(
        [shell, "-c", line],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    told = done.stdout.split("\0")
    assert {f"{name}={value}" for name, value in SETTINGS.items()} <= set(told)
    assert ("--redis-password=two  words " in told) == (kind == "head")
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    "text", [None, "export A=1", " A=1", "A-B=1", "A='1'", 'A="1"', "A=1\r", "A", "1A=1"]
)
def test_settings_that_cannot_be_taken_stop_what_comes_next(
    tmp_path: Path, shell: str, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "afa.env").write_bytes(f"# secrets\nB=2\n{text}\nC=3\n".encode())
    (tmp_path / "deploy").symlink_to(DEPLOY)
    done = subprocess.run(
        [shell, "-c", ". deploy/settings.sh && echo started"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.stdout == ""
    assert done.stderr.startswith("afa.env")


def pods() -> list[dict[str, Any]]:
    """Return the pod templates on Kubernetes: the head's and the workers'."""
    service = next(yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text()))
    cluster = service["spec"]["rayClusterConfig"]
    return [one["template"] for one in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def test_whoever_ends_the_service_waits_as_long_as_it_may_take() -> None:
    unit = (DEPLOY / "afa.service").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["afa"]
    waits = {
        f"{STOP_LIMIT_S:.0f}",
        *re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE),
        compose["stop_grace_period"].removesuffix("s"),
        *(str(pod["spec"]["terminationGracePeriodSeconds"]) for pod in pods()),
    }
    rows = yaml.safe_load(SERVE_FILE.read_text())["applications"][0]["deployments"]
    serve_s = max(row.get("graceful_shutdown_timeout_s", 0) for row in rows)
    assert len(waits) == 1
    assert int(waits.pop()) > serve_s
    assert compose["init"]


def snake(name: str) -> str:
    """Return a Kubernetes name as Prometheus writes it."""
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def test_prometheus_finds_what_each_part_of_the_kit_starts() -> None:
    cluster = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    machine = yaml.safe_load((DEPLOY / "prometheus" / "one-machine.yaml").read_text())
    (static,) = machine["scrape_configs"][0].pop("static_configs")
    (target,) = static["targets"]
    (job,) = cluster["scrape_configs"]
    del job["file_sd_configs"]
    assert machine == cluster
    assert job["job_name"] == "afa"

    assert f" AFA_METRICS_ADDRESS={target}\n" in (DEPLOY / "afa.service").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["afa"]
    port = compose["environment"]["AFA_METRICS_ADDRESS"].removeprefix("0.0.0.0:")
    assert f"{target}:{port}" in compose["ports"]

    monitor = yaml.safe_load((DEPLOY / "prometheus" / "podmonitor.yaml").read_text())["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    rules = [{snake(key): value for key, value in r.items()} for r in endpoint["metricRelabelings"]]
    assert rules == job["metric_relabel_configs"]
    for pod in pods():
        assert pod["metadata"]["labels"][monitor["jobLabel"]] == job["job_name"]
        assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("name", ["prometheus.yaml", "one-machine.yaml"])
def test_prometheus_accepts_its_configuration(name: str) -> None:
    line = ["promtool", "check", "config", str(DEPLOY / "prometheus" / name)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rays_launcher_has_what_it_needs_on_the_head() -> None:
    """Ray's image is too old for afa's Python, and Ray itself has nothing that starts nodes."""
    text = (REPOSITORY / "cluster.yaml").read_text()
    cluster = yaml.safe_load(text)
    assert " boto3 " in cluster["setup_commands"][-1]
    for node in cluster["available_node_types"].values():
        assert node["node_config"]["ImageId"].startswith("ami-")
    assert "cd /srv/afa; . deploy/settings.sh; .venv/bin/serve deploy" in " ".join(text.split())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_understands_the_unit() -> None:
    line = ["systemd-analyze", "verify", str(DEPLOY / "afa.service")]
    told = subprocess.run(line, capture_output=True, text=True, check=False)
    complaints = [one for one in told.stderr.splitlines() if "is not executable" not in one]
    assert not complaints


def test_the_user_of_the_unit_is_made_first() -> None:
    unit = (DEPLOY / "afa.service").read_text()
    (user,) = re.findall(r"^User=(\w+)$", unit, re.MULTILINE)
    for text in (unit, (REPOSITORY / "docs" / "operating" / "install.md").read_text()):
        assert re.search(rf"useradd --system .*/nologin {user}\b", text)


def test_the_image_copies_every_package_of_the_project() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - {"tests"}
    assert copied == packages
