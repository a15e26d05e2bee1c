"""Commands that analyse in their own process report a device that is missing or breaks."""

import asyncio
import os
import signal
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from afa.errors import MachineError
from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard
from pipelines.local import LocalAnalyzer
from serve_app.cli.analysis import analyze, loaded
from serve_app.cli.extractors import keyfinder
from serve_app.cli.library import workers
from serve_app.cli.library.workers import WorkersEngine
from serve_app.cli.main import app
from serve_app.domain.errors import InternalError
from tests.data.audio_files import click_track, encode

TOLD = "no device 'cuda:9' here: "
CANCELLED = "cancelled"


@pytest.fixture(autouse=True)
def clip(
    cards: dict[str, ModelCard], model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    for model_id in ("vibenet", "musicnn-mtt", "afa-embed-1", "afa-beats-3"):
        pull(cards[model_id], model_dir)
    monkeypatch.setenv("AFA_MODEL_DIR", str(model_dir))
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AFA_DEVICE", "cuda:9")
    path = tmp_path / "clip.ogg"
    encode(path, click_track(120, 4), "ogg", "vorbis")
    return path


@pytest.mark.parametrize("words", [["analyze", "--here"], ["embed"]])
def test_a_command_tells_of_a_device_that_is_not_there(words: list[str], clip: Path) -> None:
    told = CliRunner().invoke(app, [*words, str(clip)])
    assert told.exit_code == 1
    (line,) = told.stderr.splitlines()
    assert line.startswith(f"afa: {TOLD}")


@pytest.mark.parametrize("words", [["analyze", "--here", "--jobs", "1"], ["embed"]])
def test_a_command_tells_of_a_device_without_memory_for_the_networks(
    words: list[str], clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DEVICE", "cpu")

    def full(*_args: object, **_options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    told = CliRunner().invoke(app, [*words, str(clip)])
    assert told.exit_code == 1
    assert told.stderr == "afa: the device has no memory for the networks\n"


def test_so_does_the_check_of_a_network() -> None:
    told = CliRunner().invoke(app, ["models", "check", "afa-beats-3"])
    assert told.exit_code == 1
    assert f"afa: {TOLD}" in told.stderr


def test_so_does_keyfinder(
    clip: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["keyfinder-cli", str(clip)])
    with pytest.raises(SystemExit) as end:
        keyfinder.main()
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(TOLD)


class Broken:
    """Can no longer analyse."""

    def hear(self, *_args: Any) -> Any:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with")

    analyze = hear


def test_a_device_that_breaks_ends_an_analysis_at_the_first_file(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DEVICE", "cpu")
    monkeypatch.setattr(LocalAnalyzer, "analyze", Broken.analyze)
    told = CliRunner().invoke(app, ["analyze", "--here", "--jobs", "1", str(clip), str(clip)])
    assert told.exit_code == 1
    assert told.stderr == "afa: the device broke: CUDA error: unspecified launch failure\n"


def test_a_device_that_breaks_in_a_worker_is_not_tried_with_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(future: "Future[Any]") -> bool:
        (tmp_path / CANCELLED).touch()
        return cancel(future)

    cancel = Future.cancel
    monkeypatch.setattr(Future, "cancel", cancelled)
    monkeypatch.setenv("AFA_DEVICE", "cpu")
    monkeypatch.setattr(analyze, "analyse_one", breaks_once)
    files = [tmp_path / f"{n}.ogg" for n in range(50)]
    for file in files:
        file.touch()
    told = CliRunner().invoke(app, ["analyze", "--here", "--jobs", "2", *map(str, files)])
    assert told.exit_code == 1
    assert told.stderr == "afa: the device broke\n"
    assert sum(file.stat().st_size > 0 for file in files) < 10


def breaks_once(name: str, _within: Any) -> None:
    """Break at the first file; the others take longer than it takes to report that."""
    path = Path(name)
    path.write_text("heard")
    until_s = time.monotonic() + (0.0 if path.stem == "0" else 10.0)
    while time.monotonic() < until_s and not path.with_name(CANCELLED).exists():
        time.sleep(0.01)
    raise MachineError("the device broke")


def test_a_worker_of_a_scan_tells_that_its_device_broke(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "_analyzer", Broken())
    with pytest.raises(MachineError, match=r"^the device broke: CUDA error: unspec.* failure$"):
        workers._hear(None, clip)


async def test_a_file_that_is_too_long_for_the_device_ends_no_scan(clip: Path) -> None:
    engine = WorkersEngine(1, None, is_partial=False)
    try:
        with pytest.raises(InternalError, match="no memory for it"):
            await engine.run(too_long, clip)
    finally:
        engine.close()


async def test_ctrl_c_is_not_for_a_worker_that_starts(clip: Path) -> None:
    engine = WorkersEngine(1, None, is_partial=False)
    try:
        name = asyncio.create_task(engine.run(name_of, clip))
        await asyncio.sleep(0)  # the task starts the worker, and waits
        os.kill(next(iter(engine._pool._processes)), signal.SIGINT)
        assert await name == clip.name
    finally:
        engine.close()


def name_of(path: Path) -> str:
    return path.name


def too_long(_path: Path) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
