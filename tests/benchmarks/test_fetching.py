"""Modules that download benchmark audio download nothing when their arguments are wrong."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["generated", "accuracy.charts", "accuracy.metres", "accuracy.modules", "identify.music"]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("folder", 2)])
def test_arguments_are_answered_before_anything_is_fetched(
    name: str,
    argument: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fetched(*_: object, **__: object) -> None:
        pytest.fail("it fetches")

    monkeypatch.setattr(subprocess, "run", fetched)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, argument])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert ended.value.code == status
    said = capsys.readouterr()
    assert f"usage: python -m benchmarks.{name}" in (said.out if status == 0 else said.err)
    assert list(tmp_path.iterdir()) == []
