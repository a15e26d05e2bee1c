"""A network that is not part of afa: the page's example, the template, and wrong cards."""

import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import Result
from torch import Tensor
from typer.testing import CliRunner

import afa
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import CheckpointError, load_tensors
from models.checkpoints.cards import ModelCard
from models.checkpoints.sources import file_sha256
from models.checkpoints.weight_files import write_tensors
from pipelines.analysis.networks.card_check import check_card
from serve_app.cli.library.vectors import step_of
from serve_app.cli.main import app
from tests.conftest import DEMO_TRACK, REPOSITORY

PAGE = REPOSITORY / "docs" / "own-networks.md"
FILE = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HELD = [
    "the weights are the card's",
    "band_gru:BandGru takes them",
    "it runs on windows of 48000 samples",
    "its outputs are the card's",
    "it answers silence with numbers",
    "a row of a batch equals the window alone",
    "its tags are probabilities",
    "its tags have names",
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["models", *arguments])


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put the page's package into the working folder, with its card."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path / "models"))
    monkeypatch.delitem(sys.modules, "band_gru", raising=False)
    (tmp_path / "models").mkdir()
    for name, content in FILE.findall(PAGE.read_text()):
        (tmp_path / name).write_text(content)
    runpy.run_path("make_weights.py")
    card: dict[str, Any] = yaml.safe_load(Path("cards.yaml").read_text())["band-gru"]
    assert card["source"] == "file:///the/folder"
    card["source"] = f"file://{tmp_path}"
    for file in card["files"]:
        assert file["sha256"] == f"of {file['path']}"
        file["sha256"] = file_sha256(Path(file["path"]))
    return card


def write(card: dict[str, Any], path: str = "cards.yaml") -> str:
    Path(path).write_text(yaml.safe_dump({"band-gru": card}))
    return path


def lines(done: Result) -> list[str]:
    return done.output.splitlines()[1:]


def test_the_example_of_the_page_is_checked_pulled_and_analyses_music(
    example: dict[str, Any],
    tmp_path: Path,
    model_dir: Path,
    checkpoint: Callable[[str], dict[str, Tensor]],
) -> None:
    done = run("check", write(example))
    assert done.exit_code == 0, done.output
    assert lines(done) == [f"yes  {what}" for what in HELD]
    for name in ("vibenet", "musicnn-mtt", "musicnn-msd-768"):
        checkpoint(name)
        (tmp_path / "models" / name).symlink_to(model_dir / name)
    write(example, "models/cards.yaml")
    assert run("pull", "band-gru").exit_code == 0
    assert "band-gru: verified" in run("verify").output
    analyzer = afa.Analyzer("cpu", {"embedding": "band-gru", "tags": "band-gru"})
    track = analyzer.analyze(DEMO_TRACK)
    assert track.models["embedding"] == track.models["tags"] == "band-gru"
    assert set(track.tags) <= {"calm", "driving", "acoustic", "electronic"} != set()
    assert track.embedding[:96].any()
    assert not track.embedding[96:].any()


UNUSABLE = {
    "embedding, tags: not finite": ("log1p(10 * bands)", "log(-bands)", {}),
    "cannot be run: ValueError: too loud": (
        "window = torch.hann",
        'if windows.any(): raise ValueError("too loud")\n        window = torch.hann',
        {},
    ),
    "needs an output 'embedding'": ("", "", {"outputs": {"tags": 4}}),
    "the card has 'embedding', the network gives tags": (
        'return {"embedding": embedding, ',
        "return {",
        {},
    ),
    "has the shape (96,), the card says 1024": ("", "", {"outputs": {"embedding": 1024}}),
}


@pytest.mark.parametrize("told", UNUSABLE)
def test_what_hears_in_this_process_refuses_a_network_that_it_cannot_use(
    told: str, example: dict[str, Any], tmp_path: Path, model_dir: Path
) -> None:
    old, new, change = UNUSABLE[told]
    if old:
        code = Path("band_gru.py").read_text()
        assert code.count(old) == 1
        Path("band_gru.py").write_text(code.replace(old, new))
        sys.modules.pop("band_gru")
    for name in ("vibenet", "musicnn-mtt"):
        (tmp_path / "models" / name).symlink_to(model_dir / name)
    write(example | change, "models/cards.yaml")
    assert run("pull", "band-gru").exit_code == 0
    with pytest.raises(afa.ModelError, match=re.escape(told)):
        afa.Analyzer("cpu", {"embedding": "band-gru"})
    with pytest.raises(CheckpointError, match=re.escape(told)):
        step_of("band-gru", Settings(), torch.device("cpu"))
    args = {"args": {"models": {"embedding": "band-gru"}}}
    Path("serve.yaml").write_text(yaml.safe_dump({"applications": [args]}))
    done = CliRunner().invoke(app, ["analyze", "--config", "serve.yaml", str(DEMO_TRACK)])
    assert (done.exit_code, told in done.stderr) == (1, True), done.stderr


def test_an_entry_point_names_a_network_too(example: dict[str, Any], tmp_path: Path) -> None:
    about = tmp_path / "band-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: band\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[afa.networks]\nband = band_gru:BandGru\n")
    done = run("check", write(example | {"network": "band"}))
    assert done.exit_code == 0, done.output
    assert lines(done)[1] == "yes  band takes them"


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "dimensions": ({"outputs": {"embedding": 512}}, "has the shape (96,), the card says 512"),
    "outputs": ({"outputs": {"embedding": 96, "beats": 2}}, "gives embedding, tags"),
    "role": ({"role": "attributes"}, "a checkpoint for attributes needs an output 'attributes'"),
    "window": (
        {"window": {"length": 300, "hop": 300}},
        "it runs on windows of 300 samples: Runtime",
    ),
    "memory": (
        {"window": {"length": 10**18, "hop": 10**18}},
        f"it runs on windows of {10**18} samples: Runtime",
    ),
    "class": ({"network": "band_gru:Nobody"}, "band_gru:Nobody cannot be built: AttributeError"),
    "module": (
        {"network": "no_such_module:It"},
        "cannot be built: ModuleNotFoundError: No module named 'no_such_module'; install its pack",
    ),
    "network": ({"network": "conformer"}, "nothing runs a 'conformer' network"),
    "beats": ({"role": "beats"}, "nothing tracks beats with a 'band_gru:BandGru'"),
    "chords": ({"role": "chords"}, "band_gru:BandGru takes them: "),
    "key": ({"role": "key"}, "band_gru:BandGru takes them: "),
    "module-level": ({"network": "band_gru:torch"}, "cannot be built: TypeError"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_card_that_is_wrong_is_told_what_is(name: str, example: dict[str, Any]) -> None:
    change, told = CHANGES[name]
    done = run("check", write(example | change))
    assert done.exit_code == 1
    (fault,) = [line for line in lines(done) if line.startswith("no")]
    assert told in fault


NETWORKS = {
    "drawn at random": (
        "embedding = states.mean(dim=1)",
        "embedding = states.mean(dim=1) + torch.rand(1)",
    ),
    "normalised over": ("log1p(10 * bands)", "log1p(10 * bands / bands.amax())"),
    "put a sigmoid": ("self.head(embedding).sigmoid()", "self.head(embedding) - 9"),
    "not finite": ("log1p(10 * bands)", "log(bands)"),
    "it answers silence with numbers: IndexError: ": (
        "window = torch.hann",
        "windows[windows.any(dim=1)][0]\n        window = torch.hann",
    ),
    "equals the window alone: IndexError: ": (
        "window = torch.hann",
        "windows[1]\n        window = torch.hann",
    ),
    "embedding: (3, 96) of 3 windows, (1,) of one": (
        '"embedding": embedding,',
        '"embedding": embedding.squeeze(),',
    ),
}


@pytest.mark.parametrize("told", NETWORKS)
def test_a_network_that_a_service_cannot_rely_on_is_found(
    told: str, example: dict[str, Any]
) -> None:
    code = Path("band_gru.py").read_text()
    assert code.count(NETWORKS[told][0]) == 1
    Path("band_gru.py").write_text(code.replace(*NETWORKS[told]))
    sys.modules.pop("band_gru")
    done = run("check", write(example))
    assert done.exit_code == 1
    assert any(told in line for line in lines(done) if line.startswith("no"))


def test_a_network_is_checked_in_float32_on_any_device(example: dict[str, Any]) -> None:
    """On a GPU some kernels would use TF32 and others would not."""
    code = Path("band_gru.py").read_text()
    exact = "10 * bands / (not torch.backends.cudnn.allow_tf32)"
    Path("band_gru.py").write_text(code.replace("10 * bands", exact))
    sys.modules.pop("band_gru")
    assert torch.backends.cudnn.allow_tf32
    done = run("check", write(example))
    assert done.exit_code == 0, done.output
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ('"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"', "'label_0' is not a name"),
        ('"Calm", "calm", "loud", "soft"', "two of its tags are called 'calm'"),
        (None, "no tag vocabulary: let config.json have id2label"),
    ],
)
def test_tags_without_names_are_found(
    labels: str | None, told: str, example: dict[str, Any]
) -> None:
    if labels is None:
        example["files"] = example["files"][1:]
        code = Path("band_gru.py").read_text().replace('n_bands"]', 'n_bands", 64]')
        code = re.sub(
            r'config\["(\w+)"(?:, \d+)?\]',
            r'{"n_bands": 64, "hidden_size": 96, "id2label": "abcd"}["\1"]',
            code,
        )
        Path("band_gru.py").write_text(code)
        sys.modules.pop("band_gru")
    else:
        text = Path("make_weights.py").read_text()
        Path("make_weights.py").write_text(re.sub(r"labels = .*", f"labels = [{labels}]", text))
        runpy.run_path("make_weights.py")
        example["files"][0]["sha256"] = file_sha256(Path("config.json"))
    done = run("check", write(example))
    assert done.exit_code == 1
    assert any(told in line for line in lines(done) if line.startswith("no")), done.output


def test_a_wrong_digest_is_answered_with_the_one_that_was_found(example: dict[str, Any]) -> None:
    found = example["files"][1]["sha256"]
    example["files"][1]["sha256"] = "0" * 64
    done = run("check", write(example))
    assert done.exit_code == 1
    assert f"its digest is {found}" in done.output
    assert "put its digest into the card" in done.output
    assert "afa models pull" not in done.output


def test_a_field_that_is_missing_is_named(example: dict[str, Any]) -> None:
    for name, told in (
        ("licence_class", "licence_class is missing; it is one of permissive, copyleft"),
        ("attribution", "attribution is missing; it is a str"),
    ):
        card = {key: value for key, value in example.items() if key != name}
        assert told in run("check", write(card)).output


def test_verify_looks_at_what_was_pulled_too(
    example: dict[str, Any], tmp_path: Path, model_dir: Path
) -> None:
    for name in ("vibenet", "musicnn-mtt", "musicnn-msd-768"):
        (tmp_path / "models" / name).symlink_to(model_dir / name)
    write(example, "models/cards.yaml")
    assert run("pull", "band-gru").exit_code == 0
    weights = tmp_path / "models" / "band-gru" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    done = run("verify")
    assert done.exit_code == 1
    assert "musicnn-mtt: verified" in done.output
    assert "checkpoint band-gru" in done.output
    assert "the tensors are not the card's: their digest is" in done.output


def test_the_template_holds_and_its_own_test_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path / "models"))
    made = run("new", "loud-net")
    assert made.exit_code == 0, made.output
    monkeypatch.chdir(tmp_path / "loud-net")
    done = run("check", "cards.yaml")
    assert done.exit_code == 0, done.output
    test = runpy.run_path("test_loud_net.py")
    (tmp_path / "pulled").mkdir()
    test["test_the_card_says_what_the_network_does"](tmp_path / "pulled")
    again = run("new", "loud-net", "--into", str(tmp_path))
    assert again.exit_code == 1
    assert "is there already" in again.output
    for name in ("Loud", "../x", "torch net"):
        assert "is not a model id" in run("new", name).output
    assert "word of Python" in run("new", "json").output
    for name in ("torch", "afa", "configs"):
        assert f"a module {name} is installed already" in run("new", name).output
        assert not Path(name).exists()


def test_a_template_below_a_folder_with_spaces_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path / "models"))
    into = tmp_path / "my # 100% nets"
    made = run("new", "calm-net", "--into", str(into))
    assert made.exit_code == 0, made.output
    folder = into / "calm-net"
    assert f"next: pip install '{folder}' && afa models check '{folder}/cards.yaml'" in made.output
    assert "with -e, after a restart" in made.output
    monkeypatch.chdir(folder)
    done = run("check", "cards.yaml")
    assert done.exit_code == 0, done.output


def test_a_file_of_cards_is_read_beside_those_of_afa(example: dict[str, Any]) -> None:
    Path("taken.yaml").write_text(yaml.safe_dump({"vibenet": example}))
    assert "vibenet is the id of another card" in run("check", "taken.yaml").output
    projection = example | {"network": "projection", "parts": ["efficientat-mn04"]}
    done = run("check", write(projection))
    assert "yes  efficientat-mn04: its outputs are the card's" in lines(done)


def test_a_card_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "none.yaml: no such file" in run("check", "none.yaml").output
    assert "no model is called 'nobodys'" in run("check", "nobodys").output
    (tmp_path / "empty.yaml").touch()
    assert "empty.yaml has no card" in run("check", str(tmp_path / "empty.yaml")).output


def test_a_projection_is_checked_with_its_parts(
    checkpoint: Callable[[str], dict[str, Tensor]],
) -> None:
    checkpoint("afa-embed-1")
    done = run("check", "afa-embed-1")
    assert done.exit_code == 0, done.output
    found = lines(done)
    for part in ("musicnn-msd-768", "efficientat-mn04"):
        assert f"yes  {part}: a row of a batch equals the window alone" in found
    assert found[-2:] == ["yes  it projects what its parts say", "yes  its outputs are the card's"]


def test_a_projection_of_other_networks_is_a_fault(
    cards: dict[str, ModelCard], model_dir: Path
) -> None:
    card = replace(cards["afa-embed-1"], parts=(cards["efficientat-mn04"],))
    *_, last = check_card(card, model_dir, torch.device("cpu"))
    assert last.what == "it projects what its parts say"
    assert last.fault.startswith("RuntimeError")


@pytest.mark.parametrize("role", ["key", "chords", "beats"])
@pytest.mark.parametrize("fault", ["not finite", "does not take the weights: RuntimeError: Error"])
def test_weights_for_a_network_of_afas_own_are_looked_at(
    role: str,
    fault: str,
    cards: dict[str, ModelCard],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = {"key": "afa-key-2", "chords": "afa-chords-2", "beats": "afa-beats-3"}
    shipped = cards[ids[role]]
    of_another = {"key": "afa-chords-2", "chords": "afa-beats-3", "beats": "afa-key-2"}[role]
    if fault == "not finite":
        tensors = load_tensors(shipped, tmp_path)
        tensors[min(tensors)].view(-1)[0] = torch.nan
    else:
        tensors = load_tensors(cards[of_another], tmp_path)
    write_tensors(tensors, tmp_path / "own.safetensors")
    own = load_table("models")[shipped.model_id]
    own = {name: own[name] for name in own if name not in ("default", "tensors_sha256")}
    digest = file_sha256(tmp_path / "own.safetensors")
    own |= {
        "source": f"file://{tmp_path}",
        "files": [{"path": "own.safetensors", "sha256": digest}],
    }
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump({"own": own}))
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))
    checked = run("check", str(tmp_path / "cards.yaml"))
    assert checked.exit_code == 1
    assert re.search(f"no   {own['network']} takes them: .*{fault}", checked.output)
    assert run("pull", "own").exit_code == 0
    with pytest.raises(afa.ModelError, match=f"own .*{fault}"):
        afa.Analyzer("cpu", {role: "own"})
