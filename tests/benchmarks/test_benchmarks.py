"""The measuring code, and the checks that need neither GPU nor Ray."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from benchmarks import registry
from benchmarks.gpu.agreement import (
    forward_alone,
    forward_served,
    largest_difference,
    lowest_cosine,
)
from benchmarks.gpu.check import DRY, Effort, Found, check_all, line, main
from benchmarks.gpu.subjects import Subject
from benchmarks.lookup import catalog_report
from benchmarks.report import Options, Result, Target, interleave, median_ratio, show, write
from benchmarks.serving.batch import ratios

CPU = torch.device("cpu")


def test_rounds_are_interleaved() -> None:
    log: list[str] = []

    def contender(name: str) -> float:
        log.append(name)
        return float(len(log))

    found = interleave({"a": lambda: contender("a"), "b": lambda: contender("b")}, 3)
    assert log == ["a", "b"] * 3
    assert found == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_the_ratio_is_the_median_of_paired_ratios() -> None:
    assert median_ratio([1, 10, 3], [2, 2, 3]) == 1.0


def test_the_three_ratios_of_a_batcher() -> None:
    figures = {
        "saturated": [95.0, 100.0, 90.0],
        "bare": [100.0, 100.0, 100.0],
        "low_p50_s": [0.05, 0.06, 0.055],
        "middle_p99_s": [0.1, 0.12, 0.11],
    }
    assert ratios(figures) == {
        "saturated_ratio": 0.95,
        "low_load_p50_ratio": 1.1,
        "p99_62_ratio": 2.2,
    }


def test_results_are_shown_and_written(tmp_path: Path) -> None:
    result = Result(
        "example",
        values={"ratio": 0.5},
        columns=("what", "value"),
        rows=[("x", 0.123456)],
        targets=(Target("ratio", 0.5, 0.9), Target("delay", 1.0, 2.0, at_least=False)),
        draw=lambda axes: axes.plot([1, 2]),
    )
    console = Console(record=True, width=80)
    show(result, console)
    text = console.export_text()
    assert "0.1235" in text
    assert "ratio 0.5 (≥ 0.9): MISSED" in text
    assert "delay 1 (≤ 2): met" in text
    write(result, tmp_path / "results" / "example.json")
    content = json.loads((tmp_path / "results" / "example.json").read_text())
    assert content["ratio"] == 0.5
    assert content["machine"]["n_cores"] >= 1
    assert [target["met"] for target in content["targets"]] == [False, True]
    assert (tmp_path / "results" / "example.png").read_bytes().startswith(b"\x89PNG")


def test_run_benchmark_dispatches_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    console = Console(record=True, width=80)
    result = registry.run_benchmark("decode", tmp_path / "d.json", Options(), console)
    assert "no ffmpeg" in result.skipped
    assert "skipped" in json.loads((tmp_path / "d.json").read_text())
    with pytest.raises(KeyError):
        registry.run_benchmark("nonsense")


def test_a_skipped_run_keeps_the_figures_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(registry, "RESULTS", tmp_path)
    registry.run_benchmark("decode", console=Console(quiet=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_catalog_benchmark_reports_what_was_found() -> None:
    result = catalog_report.run(Options(is_quick=True))
    assert result.values["n_tracks"] == catalog_report.QUICK_TRACKS
    assert {"by_spotify_id", "by_name"} <= {row[0] for row in result.rows}
    assert all(len(row) == len(result.columns) for row in result.rows)


def test_every_registered_module_has_the_name_it_is_listed_under() -> None:
    import importlib

    for name, module in registry.MODULES.items():
        assert name == importlib.import_module(module).NAME


class Leaky(nn.Module):
    """Its rows depend on each other, as padding or batch statistics would cause."""

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        return {"vector": windows - windows.mean(dim=0, keepdim=True) + windows[:1]}


def test_a_leaky_batch_is_noticed() -> None:
    windows = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    alone = forward_alone(Leaky(), windows, CPU)
    assert lowest_cosine(alone, forward_served(Leaky(), windows, CPU, 4)) < 0.99
    assert largest_difference(alone, {"vector": alone["vector"] * 1.1}) == pytest.approx(0.1)
    assert lowest_cosine({"x": torch.zeros(2, 3)}, {"x": torch.zeros(2, 3)}) == 1.0


def test_failed_checks_are_named() -> None:
    found = Found("x", 0.99, False, 0.99, 0.9, 100.0, 1.0, 1.0)
    assert found.failures == ["parity", "determinism", "invariance", "bfloat16", "memory"]
    assert "FAILED: parity, determinism" in line(found)


def test_a_subject_that_raises_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class Sum(nn.Module):
        def forward(self, windows: Tensor) -> dict[str, Tensor]:
            return {"vector": windows.reshape(-1, 8, 32).sum(dim=1)}

    class Broken(nn.Module):
        def forward(self, windows: Tensor) -> dict[str, Tensor]:
            raise RuntimeError("no kernel fits\nCompile with more to see.")

    def unbuilt(device: torch.device) -> nn.Module:
        raise KeyError

    chosen = [
        Subject("broken", lambda device: Broken(), 256, 16_000),
        Subject("unbuilt", unbuilt, 256, 16_000),
        Subject("sum", lambda device: Sum(), 256, 16_000),
    ]
    assert check_all(chosen, CPU, DRY) == 2
    head, *rows = capsys.readouterr().out.splitlines()
    names, verdicts = zip(
        *((row.split()[0], row[head.index("verdict") :]) for row in rows), strict=True
    )
    assert names == ("broken", "unbuilt", "sum")
    assert verdicts == ("FAILED: RuntimeError: no kernel fits", "FAILED: KeyError", "ok")


@pytest.mark.parametrize(("n_failed", "status"), [(0, 0), (1, 1), (2, 1)])
def test_the_status_tells_of_failures(
    n_failed: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def check_none(chosen: list[Subject], device: torch.device, effort: Effort) -> int:
        checked.extend(subject.name for subject in chosen)
        return n_failed

    monkeypatch.setattr("benchmarks.gpu.check.check_all", check_none)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a card")
    assert main(["ast", "clap"], Options()) == status
    assert checked == ["ast", "clap"]


@pytest.mark.gpu
def test_all_subjects_pass_on_the_gpu() -> None:
    assert main([], Options()) == 0


def test_models_and_pipelines_import_with_torch_and_numpy_alone() -> None:
    """GPU nodes have no Ray, Redis, PyAV, pydantic or SciPy."""
    script = """
import importlib, pkgutil, sys
absent = ("ray", "redis", "av", "soxr", "onnx", "scipy", "pydantic", "fastapi", "lmdb", "pyarrow",
          "matplotlib", "librosa", "rich")
sys.modules.update(dict.fromkeys(absent))  # None: importing it fails
import models, pipelines
for package in (models, pipelines):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
import benchmarks.gpu.check
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
