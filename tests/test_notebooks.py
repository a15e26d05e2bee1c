"""The notebooks of the pages run, and show what they produce."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from torch import Tensor

from tests.conftest import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb"))
FOLDERS = ("/root", "/home", "/tmp", "/work", ".venv")  # noqa: S108  looked for, not used
LIMIT_S = 300.0
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=None, iopub_timeout=120).execute()
nbformat.write(book, sys.argv[1])
"""
"""`LIMIT_S` is of processor time for all notebooks: a minute if nothing else shares the caches."""


def shown(path: Path) -> list[list[str]]:
    """Return what every code cell shows: the kinds of its outputs, with printed text as one."""
    book: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return [
        sorted({output.get("name") or ", ".join(output.data) for output in cell.outputs})
        for cell in book.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(path, marks=pytest.mark.slow) if path.stem == "own_checkpoint" else path
        for path in NOTEBOOKS
    ],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_and_shows_what_is_kept(
    notebook: Path, tmp_path: Path, checkpoint: Callable[[str], dict[str, Tensor]]
) -> None:
    for model_id in ("vibenet", "musicnn-mtt", "musicnn-msd-768"):
        checkpoint(model_id)
    copy = tmp_path / notebook.name
    copy.write_bytes(notebook.read_bytes())
    importlib.import_module("matplotlib.font_manager")  # it reports if it builds its cache slowly
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, copy.name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    after = os.times()
    used_s = after.children_user - before.children_user
    assert used_s + after.children_system - before.children_system < LIMIT_S / len(NOTEBOOKS) * 2
    assert shown(copy) == shown(notebook)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_executed_and_tells_nothing_of_a_machine(notebook: Path) -> None:
    text = notebook.read_text()
    assert any(shown(notebook))
    assert '"execution_count": null' not in text
    assert not any(trace in text for trace in FOLDERS)
    assert notebook.stat().st_size < 200_000


def cells(stem: str) -> list[str]:
    """Return the sources of a notebook's code."""
    path = REPOSITORY / "docs" / "notebooks" / f"{stem}.ipynb"
    book: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def test_neighbours_are_told_of_a_list_of_own_files(capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = [source for source in cells("similarity") if "nearest to" in source]
    paths = ["calm/a.flac", "calm/b.flac", "loud/c.flac", "loud/d.flac"]
    vectors = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    exec(told, {"np": np, "Path": Path, "paths": paths, "vectors": vectors})  # noqa: S102
    assert "4 of 4" in capsys.readouterr().out


def test_own_checkpoints_begin_where_none_were_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path / "none"))
    known: dict[str, Any] = {}
    exec(cells("own_checkpoint")[0], known)  # noqa: S102
    assert list(known["models"].iterdir()) == []


def test_all_three_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["analyse", "own_checkpoint", "similarity"]
