"""Dry runs of the GPU benchmarks on the CPU: everything except the device."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks.gpu import __main__ as everything
from benchmarks.gpu import analysis, check, embed, end_to_end, frontends, service
from benchmarks.gpu.dry import device_for, kernels
from benchmarks.gpu.roofs import Roofs, bound, copy_bytes_per_s
from benchmarks.gpu.served import served
from benchmarks.gpu.subjects import networks, subjects
from benchmarks.gpu.track_file import track_file
from benchmarks.registry import run_benchmark
from benchmarks.report import Options
from configs.tables import load_table
from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard
from pipelines.analysis.records import MoodTag
from serve_app.composition.profile import AppArgs
from serve_app.services.simulation.features import simulated_features

DRY = Options(rounds=1, is_dry=True)
CPU = torch.device("cpu")

# From importing inductor.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"
)


def test_every_check_runs_dry_and_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([], DRY) == 0
    title, _, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("dry run on the CPU, torch ")
    names = [subject.name for subject in subjects()]
    assert [name for name, row in zip(names, rows, strict=True) if not row.startswith(name)] == []
    assert all(row.endswith("  ok") for row in rows)
    compiled = [row.split()[-5] for row in rows]  # those with a half precision
    assert sum(value != "-" for value in compiled) == 5


def test_embedding_goes_through_the_deployments_own_path() -> None:
    result = embed.run(DRY)
    assert result.targets == ()
    assert list(result.values["by_model"]) == ["mert-95m", "ast-audioset"]
    for found in result.values["by_model"].values():
        assert set(found["shares"]) == {"matrix", "copy", "decode"}
        assert set(found["windows_per_s"]) == {
            "eager float32",
            "one at a time",
            "bare loop",
            "batcher",
        }
        assert min(found["windows_per_s"].values()) > 0
        assert found["bound_by"] in {"matrix", "copy", "decode", "launches, host"}
        assert 0.5 < sum(found["kernel_shares"].values()) <= 1.0 + 1e-9
    assert all(len(row) == len(result.columns) for row in result.rows)


def test_a_served_model_has_the_execution_of_the_gpu_profile() -> None:
    profile = load_table("serve.gpu")["applications"][0]["args"]["embedding"]
    with served("mert-95m", CPU, DRY) as of:
        (model,) = of.step.step.models
        assert model.model_id == "mert-95m"
        assert str(model.network.precision) == f"torch.{profile['execution']['dtype']}"
        assert model.batch_sizes == (1, 4)
        with kernels(DRY):
            rate = asyncio.run(of.served_rate(1.0))
        (metrics,) = of.step.metrics().values()
        assert rate > 0
        assert metrics.windows >= 16  # four callers with one batch each


def test_files_become_vectors_and_the_halves_are_measured_too() -> None:
    result = end_to_end.run(DRY)
    rates = result.values["audio_s_per_s"]
    assert set(rates) == {"decode alone", "network alone", "files to vectors"}
    assert result.values["files"] == "MP3 320k"
    assert result.values["share_of_slower_half"] > 0
    assert 0 <= result.values["device_busy"] <= 1
    assert all(len(row) == len(result.columns) for row in result.rows)


def test_files_are_analysed_and_the_answers_held_against_the_cpus(
    cards: dict[str, ModelCard], model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))
    assert "checkpoints are missing" in analysis.run(DRY).skipped
    monkeypatch.setenv("AFA_MODEL_DIR", str(model_dir))
    for model_id in ("vibenet", "musicnn-mtt", "afa-embed-1", "afa-beats-3"):
        pull(cards[model_id], model_dir)
    result = analysis.run(DRY)
    rates = result.values["audio_s_per_s"]
    assert list(rates) == ["decode alone", "analysis alone", "files to results"]
    assert result.values["share_of_slower_half"] > 0
    busy = result.values["device_s_per_minute"]
    assert busy.pop("all") == pytest.approx(sum(busy.values()))
    assert len(busy) == 11
    assert result.values["core_s_per_minute"] > 0
    agreed = result.values["agreement_with_cpu"]
    assert (agreed["tracks"], agreed["same_tempo"], agreed["same_key"]) == (1, 1, 1)
    assert agreed["embedding"] > 0.9999
    assert all(len(row) == len(result.columns) for row in result.rows)


def test_answers_that_differ_are_told() -> None:
    one = replace(
        simulated_features("x"),
        beats=[0.5, 1.0, 1.5],
        key=4,
        valence=0.5,
        mood_tags=[MoodTag("calm", 0.5), MoodTag("dark", 0.5)],
        embedding=[1.0, 0.0],
    )
    other = replace(
        one,
        tempo=one.tempo + 1.0,
        key=5,
        beats=[0.51, 1.03, 1.53],
        valence=0.75,
        mood_tags=[MoodTag("calm", 0.375)],
        embedding=[0.6, 0.8],
    )
    agreed = analysis.agreement([one, one], [one, other])
    assert (agreed.tracks, agreed.same_tempo, agreed.same_key) == (2, 1, 1)
    assert agreed.same_beats == pytest.approx(1 / 3)
    assert (agreed.attributes, agreed.tags) == pytest.approx((0.25, 0.125))
    assert agreed.embedding == pytest.approx(0.6)
    assert analysis.same_beats([], []) == 1.0
    assert analysis.same_beats([], [1.0]) == 0.0


def test_front_ends_are_told_in_shares_of_the_copy() -> None:
    result = frontends.run(DRY)
    assert len(result.values["by_front_end"]) == len(result.rows) > 10
    for found in result.values["by_front_end"].values():
        assert found["share_of_copy_bandwidth"] > 0


@pytest.mark.slow  # it starts a service
def test_a_service_answers_all_uploads_though_a_replica_is_killed() -> None:
    result = service.run(DRY)
    rounds = result.values["by_replicas"]["1"]
    assert [found["uploads"] for found in rounds.values()] == [1, 3, 3]
    assert [found["faults"] for found in rounds.values()] == [[], [], []]
    assert min(found["audio_s_per_s"] for found in rounds.values()) > 0
    assert all(len(row) == len(result.columns) for row in result.rows)


@pytest.mark.parametrize(("n", "share"), [(1, 0.5), (2, 0.25)])
def test_replicas_of_a_service_share_a_card(n: int, share: float) -> None:
    (application,) = service.profile(n, 16, Options())["applications"]
    args = AppArgs.model_validate(application["args"])
    assert args.spectral.batch_windows == 64
    options = {row["name"]: row for row in application["deployments"]}
    assert not {"Mood", "Embedding"} & set(options)
    for name in service.SHARED:
        assert options[name]["num_replicas"] == n
        assert options[name]["ray_actor_options"] == {"num_cpus": 4 // n, "num_gpus": share}
    n_cpus = sum(
        row["num_replicas"] * row["ray_actor_options"]["num_cpus"] for row in options.values()
    )
    assert n_cpus <= 16


def test_one_command_runs_them_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, Options]] = []
    monkeypatch.setattr(check, "main", lambda names, options: ran.append(("check", options)) or 1)
    monkeypatch.setattr(
        everything, "run_benchmark", lambda name, options: ran.append((name, options))
    )
    assert everything.main(["--dry"]) == 1
    assert [name for name, _ in ran] == ["check", *everything.BENCHMARKS]
    assert all(options.is_dry for _, options in ran)
    assert everything.main(["--wet"]) == 2


def test_a_dry_run_leaves_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(frontends, "front_ends", lambda is_small: [])
    run_benchmark("gpu-frontends", options=DRY, console=Console(quiet=True))
    assert not any(tmp_path.iterdir())
    run_benchmark("gpu-frontends", tmp_path / "x.json", DRY, Console(quiet=True))
    assert json.loads((tmp_path / "x.json").read_text())["benchmark"] == "gpu-frontends"


def test_without_a_gpu_nothing_is_measured_unless_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert device_for(Options()) is None
    modules = (analysis, embed, end_to_end, frontends, service)
    assert {module.run(Options()).skipped for module in modules} == {"there is no CUDA device here"}
    assert check.main([], Options()) == 0


def test_a_rate_is_told_in_shares_of_every_roof() -> None:
    with served("mert-95m", CPU, DRY) as of:
        roofs = Roofs(of.gflop * 1e9 * 100, of.window_s * 88_200 * 1000.0, of.window_s * 10)
        shares = roofs.shares(20.0, of)
    assert shares == pytest.approx({"matrix": 0.2, "copy": 0.02, "decode": 2.0})
    assert bound(shares) == "decode"
    assert bound({"matrix": 0.4, "copy": 0.1}) == "launches, host"
    assert copy_bytes_per_s(CPU, 1 << 12) > 1e5


def test_small_networks_stand_for_every_large_one() -> None:
    assert [one.name for one in networks(is_small=True)] == [one.name for one in networks()]


def test_a_file_is_read_as_it_is_where_there_is_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with track_file(24_000, DRY) as file:
        assert file.kind == "raw int16, no decoder"
        waveform = file.read(file.path)
    assert (waveform.sample_rate, waveform.samples.shape) == (24_000, (1, 6 * 24_000))
    assert 0.05 < float(abs(waveform.samples).max()) < 1
