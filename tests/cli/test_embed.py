"""`afa embed` with an operator's own small checkpoint, chosen in a Serve file."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor
from typer.testing import CliRunner

from afa.cards import known_cards
from models.checkpoints.cache import pull
from models.checkpoints.cards import choose_cards
from pipelines.analysis import mood_and_embedding
from pipelines.analysis.excerpt import Excerpt
from pipelines.analysis.networks.checkpoint_model import CheckpointModel
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.batching.steps import run_local
from serve_app.cli.main import app
from serve_app.composition.profile import AppArgs, ProfileError, read_profile
from tests.data.audio_files import click_track, encode
from tests.data.small_checkpoints import add_own_ast

REPOSITORY = Path(__file__).parents[2]
OWN = "own-ast"
SECONDS = (3, 45, 8, 5)
BATCH = 8
runner = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder: tracks (one broken), a model folder with its own cards, a Serve file."""
    folder = tmp_path_factory.mktemp("embed")
    for seconds in SECONDS:
        track = click_track(60 + 2 * seconds, seconds)
        encode(folder / f"{seconds}.mp3", track, "mp3", "libmp3lame")
    (folder / "broken.mp3").write_bytes(b"nothing to hear")
    models = folder / "models"
    models.mkdir()
    add_own_ast(models, folder / "source", OWN)
    pull(known_cards(models)[OWN], models)
    args = {
        "models": {"embedding": OWN, "tags": OWN},
        "shared_trunk": True,
        "embedding": {"batch_windows": BATCH, "execution": {"dtype": "bfloat16"}},
    }
    serve_file = {"applications": [{"import_path": "serve_app.app:build_app", "args": args}]}
    (folder / "serve.yaml").write_text(yaml.safe_dump(serve_file))
    return folder


@pytest.fixture
def settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    settings = {
        "AFA_MODEL_DIR": str(folder / "models"),
        "AFA_MODEL_LICENCES": "permissive",
        "AFA_DEVICE": "cpu",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of windows of each forward."""
    counted: list[int] = []
    forward = CheckpointModel.forward

    def count(model: CheckpointModel, windows: Tensor) -> Mapping[str, Tensor]:
        counted.append(len(windows))
        return forward(model, windows)

    monkeypatch.setattr(CheckpointModel, "forward", count)
    return counted


def alone(folder: Path, seconds: int) -> tuple[dict[str, Any], list[float]]:
    """Return the attributes and the embedding of a whole track that is analysed by itself."""
    chosen = read_profile(folder / "serve.yaml").models
    model_dir = folder / "models"
    cards = choose_cards(known_cards(model_dir), "permissive", chosen)
    step = mood_and_embedding.build(cards, model_dir, torch.device("cpu"))
    mood, vector = run_local(step, decode(folder / f"{seconds}.mp3", DecodeLimits()))
    return {"energy": mood.energy, "valence": mood.valence}, vector.vector


def test_every_file_gets_the_line_that_it_gets_alone(
    folder: Path, settings: dict[str, str], forwards: list[int]
) -> None:
    files = [str(folder / f"{seconds}.mp3") for seconds in SECONDS]
    files.insert(1, str(folder / "broken.mp3"))
    config = str(folder / "serve.yaml")
    command = ["embed", "--whole", "--config", config, "-", *files[2:]]
    done = runner.invoke(app, command, input="\n".join(files[:2]))
    assert done.exit_code == 1
    assert "broken.mp3: " in done.stderr
    assert "1 of 5 files failed" in done.stderr
    batched = list(forwards)
    records = {record["file"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert sorted(records) == sorted(files)
    assert records.pop(files[1])["error"] == "unprocessable_audio"
    for seconds in SECONDS:
        record = records[str(folder / f"{seconds}.mp3")]
        assert record["models"] == {
            "attributes": "musicnn-attributes",
            "tags": OWN,
            "embedding": OWN,
        }
        values, vector = alone(folder, seconds)
        assert {name: record[name] for name in values} == pytest.approx(values, abs=1e-4)
        assert np.dot(record["embedding"], vector) >= 0.9999
    by_themselves = forwards[len(batched) :]
    warm_up = 1
    assert sum(batched) - warm_up == sum(by_themselves)
    assert max(batched) == BATCH


def test_parts_of_a_long_track_are_enough(folder: Path, settings: dict[str, str]) -> None:
    config = str(folder / "serve.yaml")
    done = runner.invoke(app, ["embed", "--config", config, str(folder / "45.mp3")])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["models"]["excerpt"] == str(Excerpt())
    assert len(record["embedding"]) == 768


def test_what_cannot_be_run_is_told(folder: Path, settings: dict[str, str]) -> None:
    track = str(folder / "3.mp3")
    done = runner.invoke(app, ["embed", "--config", track, track])
    assert done.exit_code == 1
    assert "is not a Serve file" in " ".join(done.stderr.split())
    missing = folder / "missing.yaml"
    args = {"models": {"embedding": "absent"}}
    missing.write_text(yaml.safe_dump({"applications": [{"args": args}]}))
    done = runner.invoke(app, ["embed", "--config", str(missing), track])
    assert done.exit_code == 1
    assert "no model is called 'absent'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("text", ["", "applications: []", "applications: [{args: {modles: {}}}]"])
def test_a_file_that_says_nothing_of_afa_is_no_profile(tmp_path: Path, text: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError, match="is not a Serve file of afa"):
        read_profile(path)


def test_a_serve_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ProfileError, match=r"^cannot read .*/none.yaml: No such file or directory$"
    ):
        read_profile(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["serve.local.yaml", "serve.gpu.yaml"])
def test_our_serve_files_are_profiles(name: str) -> None:
    assert read_profile(REPOSITORY / "configs" / name) != AppArgs()


def test_ctrl_c_leaves_whole_lines(folder: Path, settings: dict[str, str]) -> None:
    # When the tests run in the background, SIGINT may be ignored; child processes inherit that.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    main = f"{heard}; from serve_app.cli.main import main; main()"
    command = [sys.executable, "-W", "ignore", "-c", main]
    files = [str(folder / "8.mp3")] * 2000
    process = subprocess.Popen(
        [*command, "embed", "--whole", "--config", str(folder / "serve.yaml"), *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | settings,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    rest, told = process.communicate(timeout=280)
    assert process.returncode != 0
    assert "Traceback" not in told
    assert (first + rest).endswith("\n")
    records = [json.loads(line) for line in (first + rest).splitlines()]
    assert 1 <= len(records) < 2000
    assert not any("error" in record for record in records)
