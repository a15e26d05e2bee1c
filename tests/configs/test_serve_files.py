"""The deployment files are valid for Serve and Ray, and name deployments that exist."""

import random
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from math import gcd
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.serve.schema import ServeDeploySchema

from serve_app import app
from serve_app.api.door.audio_body import LONGEST_UPLOAD_S
from serve_app.composition.files import NotSharedError
from serve_app.composition.model_args import ExecutionOptions
from serve_app.composition.profile import AppArgs

REPOSITORY = Path(__file__).parents[2]
NAMES = ["serve.local.yaml", "serve.gpu.yaml"]


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


@pytest.mark.parametrize("name", NAMES)
def test_serve_accepts_the_file_and_the_builder_its_arguments(name: str) -> None:
    content = load(REPOSITORY / "configs" / name)
    schema = ServeDeploySchema.model_validate(content)
    application = schema.applications[0]
    assert application.import_path == "serve_app.app:build_app"
    AppArgs.model_validate(application.args)


def paths_of(value: Any) -> Iterator[str]:
    """Yield the ``module:attribute`` references of a configuration."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"import_path", "policy_function"}:
                yield inner
            yield from paths_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of(inner)


@pytest.mark.parametrize(("name", "n_named"), [("serve.local.yaml", 1), ("serve.gpu.yaml", 4)])
def test_what_a_file_names_by_its_path_can_be_imported(name: str, n_named: int) -> None:
    named = list(paths_of(load(REPOSITORY / "configs" / name)))
    assert len(named) == n_named
    for path in named:
        module, _, attribute = path.partition(":")
        assert callable(getattr(import_module(module), attribute))


@pytest.mark.parametrize("name", NAMES)
def test_every_deployment_is_configured_and_none_is_unknown(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AFA_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("AFA_SHARED", "s3://bucket/afa")
    monkeypatch.setenv("AFA_KEY_PEPPER", "pepper of the test")
    section = load(REPOSITORY / "configs" / name)["applications"][0]
    seen: set[str] = set()
    ingress = app.build_app(AppArgs.model_validate(section["args"]))
    waiting: list[Any] = [ingress]
    while waiting:
        bound = waiting.pop()._bound_deployment
        seen.add(bound.name)
        for argument in (*bound.init_args, *bound.init_kwargs.values()):
            children = argument.values() if isinstance(argument, dict) else [argument]
            waiting += [child for child in children if hasattr(child, "_bound_deployment")]
    assert {row["name"] for row in section["deployments"]} == seen


def test_serve_deploy_refuses_what_would_lie_on_a_nodes_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AFA_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    with pytest.raises(NotSharedError, match="AFA_SHARED"):
        app.build_app(AppArgs())


def test_the_small_profile_fits_on_two_cores() -> None:
    section = load(REPOSITORY / "configs" / "serve.local.yaml")["applications"][0]
    cpus = sum(row["ray_actor_options"]["num_cpus"] for row in section["deployments"])
    assert cpus <= 1.9
    assert not any("num_gpus" in row["ray_actor_options"] for row in section["deployments"])


def test_the_models_share_one_card() -> None:
    section = load(REPOSITORY / "configs" / "serve.gpu.yaml")["applications"][0]
    shares = [row["ray_actor_options"].get("num_gpus", 0) for row in section["deployments"]]
    assert sum(share > 0 for share in shares) == 2
    assert sum(shares) == pytest.approx(1)


def test_a_card_runs_transformers_compiled_and_recorded_for_every_size() -> None:
    section = load(REPOSITORY / "configs" / "serve.gpu.yaml")["applications"][0]
    embedding = AppArgs(**section["args"]).embedding
    assert embedding.execution == ExecutionOptions(
        dtype="bfloat16", batch_sizes=(1, 2, 4, 8, 16, 32, 64), cuda_graphs=True
    )
    assert embedding.batch_windows == 64


def stranded(shares: Sequence[float], n_cards: int, seed: int) -> bool:
    """Start and stop replicas of random shares on cards, placed like Ray does: where there is room.

    Return whether one was refused although the cards together had enough room.
    """
    chance = random.Random(seed)
    free = [1.0] * n_cards
    placed: list[tuple[int, float]] = []
    for _ in range(300):
        if placed and chance.random() < 0.5:
            card, share = placed.pop(chance.randrange(len(placed)))
            free[card] += share
            continue
        share = chance.choice(shares)
        fits = [card for card, room in enumerate(free) if room >= share - 1e-9]
        if fits:
            card = chance.choice(fits)
            free[card] -= share
            placed.append((card, share))
        elif sum(free) >= share - 1e-9:
            return True
    return False


@pytest.mark.parametrize("file", ["configs/serve.gpu.yaml", "deploy/kuberay.yaml"])
def test_no_room_of_a_card_is_stranded(file: str) -> None:
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    shares = [float(share) for share in re.findall(r"num_gpus: ([0-9.]+)", text)]
    assert len(shares) == 2
    assert not any(stranded(shares, n_cards, seed) for n_cards in (1, 2, 4) for seed in range(5))
    assert any(stranded([0.4, 0.6], 4, seed) for seed in range(5))  # the shares shipped before


def test_the_cluster_file_is_valid() -> None:
    config = load(REPOSITORY / "cluster.yaml")
    validate_config(prepare_config(config))
    resources = [node["resources"] for node in config["available_node_types"].values()]
    assert any("GPU" in row for row in resources)
    assert len(resources) == 3
    for node in ("head", "worker"):  # where Prometheus looks for every node
        assert "--metrics-export-port=8080" in config[f"{node}_start_ray_commands"][-1]


def nodes_of(file: str) -> dict[str, tuple[dict[str, float], int, int]]:
    """Return each kind of node in a cluster file: its resources, the fewest and the most of it."""
    if file == "cluster.yaml":
        kinds = load(REPOSITORY / file)["available_node_types"]
        return {
            name: (row["resources"], row["min_workers"], row["max_workers"])
            for name, row in kinds.items()
            if name != "head"
        }
    content = next(yaml.safe_load_all((REPOSITORY / file).read_text(encoding="utf-8")))
    found = {}
    for group in content["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        resources = {"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0))}
        if "cpu_node" in group["rayStartParams"].get("resources", ""):
            resources["cpu_node"] = 1000
        found[group["groupName"]] = (resources, group["minReplicas"], group["maxReplicas"])
    return found


def asked(rows: Sequence[dict[str, Any]], bound: str) -> Iterator[tuple[str, float, float]]:
    """Yield every replica of a rolling upgrade: its kind of node, GPUs and CPUs.

    Args:
        rows: The deployments of a Serve file.
        bound: ``min_replicas``, or ``max_replicas`` when all have scaled up fully.
    """
    for row in rows:
        n = row.get("autoscaling_config", {}).get(bound) or row.get("num_replicas", 1)
        n += n * row.get("max_surge_percent", 0) // 100
        options = row["ray_actor_options"]
        kind = "cpu_node" if "cpu_node" in options.get("resources", {}) else "GPU"
        yield from [(kind, options.get("num_gpus", 0.0), options["num_cpus"])] * n


@pytest.mark.parametrize("bound", ["min_replicas", "max_replicas"])
@pytest.mark.parametrize("file", ["cluster.yaml", "deploy/kuberay.yaml"])
def test_a_rolling_upgrade_always_finds_room(file: str, bound: str) -> None:
    """However the replicas are placed, some node has room for the last one."""
    (section,) = load(REPOSITORY / "configs" / "serve.gpu.yaml")["applications"]
    replicas = list(asked(section["deployments"], bound))
    for resources, fewest, most in nodes_of(file).values():
        n_nodes = fewest if bound == "min_replicas" else most
        kind = "cpu_node" if "cpu_node" in resources else "GPU"
        of_kind = [replica for replica in replicas if replica[0] == kind]
        for place, unit in ((1, "GPU"), (2, "CPU")):
            shares = [round(1000 * replica[place]) for replica in of_kind]
            largest, step = max(shares), gcd(*shares)
            # A node refuses the largest only if at least this much of it is in use:
            taken = round(1000 * resources.get(unit, 0)) - largest + step
            assert largest == 0 or sum(shares) - largest < n_nodes * taken, (file, kind, unit)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_may_take_as_long_as_an_upload_and_a_wait_for_its_job(name: str) -> None:
    longest_wait_s = 60
    allowed_s = load(REPOSITORY / "configs" / name)["http_options"]["request_timeout_s"]
    assert allowed_s > LONGEST_UPLOAD_S + longest_wait_s
