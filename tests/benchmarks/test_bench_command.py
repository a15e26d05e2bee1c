"""`afa bench`: what it lists, what it writes, and which errors it survives."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import registry
from benchmarks.lookup import catalog
from benchmarks.report import Options, Result, Target
from serve_app.cli.main import app

QUIET = Console(quiet=True)
runner = CliRunner()


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, result: Result | Exception) -> None:
    module = ModuleType(f"stand_in_{name}")

    def run(options: Options) -> Result:
        if isinstance(result, Exception):
            raise result
        return result

    vars(module).update(NAME=name, run=run)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.MODULES, name, module.__name__)


def test_every_benchmark_has_a_line_in_the_help() -> None:
    shown = runner.invoke(app, ["bench", "--help"]).stdout
    for name in registry.MODULES:
        assert f"{name}:" in shown
        assert 20 < len(registry.summary_of(name)) < 120, name


def test_a_result_of_another_size_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RESULTS", tmp_path)
    stand_in(monkeypatch, "sized", Result("sized", values={"n": 5}, variant="5"))
    registry.run_benchmark("sized", console=QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["sized-5.json"]
    assert catalog.variant_of(10_000_000) == ""
    assert catalog.variant_of(1_000_000) == "1000000"


def test_a_quick_run_writes_only_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RESULTS", tmp_path / "results")
    stand_in(monkeypatch, "short", Result("short", values={"n": 5}))
    registry.run_benchmark("short", options=Options(is_quick=True), console=QUIET)
    assert not list(tmp_path.iterdir())
    registry.run_benchmark("short", tmp_path / "a.json", Options(is_quick=True), QUIET)
    assert json.loads((tmp_path / "a.json").read_text())["n"] == 5


def test_one_failure_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RESULTS", tmp_path)
    stand_in(monkeypatch, "broken", RuntimeError("no such port"))
    stand_in(monkeypatch, "fine", Result("fine", targets=(Target("speed", 1.0, 2.0),)))
    done = runner.invoke(app, ["bench", "broken", "fine"])
    assert done.exit_code == 1
    assert (tmp_path / "fine.json").exists()
    assert "missed: speed" in done.output
    assert "no such port" in done.output
    assert runner.invoke(app, ["bench", "nonsense"]).exit_code == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "name", ["gpu-analysis", "gpu-embed", "gpu-e2e", "gpu-frontends", "gpu-serve"]
)
def test_gpu_benchmarks_say_that_there_is_no_gpu(name: str, tmp_path: Path) -> None:
    done = runner.invoke(app, ["bench", name, "--json", str(tmp_path / "a.json")])
    assert done.exit_code == 0, done.output
    assert "no CUDA device" in json.loads((tmp_path / "a.json").read_text())["skipped"]
