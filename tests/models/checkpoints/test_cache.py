import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoints import cache, stored
from models.checkpoints.cache import (
    CheckpointError,
    load_json,
    load_tensors,
    pull,
    verify,
    weights_digest,
)
from models.checkpoints.cards import CardFile, ModelCard
from models.checkpoints.sources import file_sha256
from models.checkpoints.stored import is_stored, stored_bytes

TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)}
MakeCard = Callable[..., ModelCard]


@pytest.fixture
def make_card(tmp_path: Path, cards: dict[str, ModelCard]) -> MakeCard:
    """Return a card for files that are written to a source folder."""
    folder = tmp_path / "source"
    folder.mkdir()
    torch.save(dict(TENSORS), folder / "plain.pt")
    training = {"state": dict(TENSORS), "loss": np.float64(0.5), "epoch": 3}
    torch.save(training, folder / "training.pt")
    save_file(dict(TENSORS), folder / "model.safetensors")
    (folder / "config.json").write_text('{"hidden": 4}')

    def make(*names: str, **changes: object) -> ModelCard:
        files = tuple(CardFile(name, file_sha256(folder / name)) for name in names)
        made = replace(
            cards["vibenet"],
            model_id="thing",
            source=f"file://{folder}",
            format="torch",
            files=files,
            tensors_sha256="",
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    return make


def same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> bool:
    return got.keys() == want.keys() and all(torch.equal(got[k], want[k]) for k in want)


def test_a_pulled_checkpoint_loads_under_its_original_names(
    make_card: MakeCard, tmp_path: Path
) -> None:
    lines: list[str] = []
    card = make_card("plain.pt")
    pull(card, tmp_path / "cache", progress=lines.append)
    assert same(load_tensors(card, tmp_path / "cache"), TENSORS)
    assert [line.split(":")[0] for line in lines] == ["thing", "thing"]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["thing"]


def test_weights_are_found_inside_a_training_checkpoint(
    make_card: MakeCard, tmp_path: Path
) -> None:
    pull(make_card("training.pt", state_key="state"), tmp_path / "cache")
    assert same(load_file(tmp_path / "cache/thing/model.safetensors"), TENSORS)
    with pytest.raises(CheckpointError, match="a state key is missing"):
        pull(make_card("training.pt"), tmp_path / "other")


def test_weights_that_cannot_be_read_are_told_in_a_line(
    make_card: MakeCard, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    (folder / "empty.pt").touch()
    (folder / "half.pt").write_bytes((folder / "plain.pt").read_bytes()[:700])
    (folder / "garbage").write_bytes(b"garbage" * 9)
    faults = [
        (make_card("empty.pt"), "empty.pt is empty"),
        (make_card("half.pt"), "unreadable torch weights: PytorchStreamReader failed"),
        (make_card("garbage", format="onnx"), "unreadable onnx weights: "),
        (make_card("garbage", format="safetensors"), "unreadable safetensors weights: "),
        (make_card("garbage", format="tensorflow"), "an index and a data file, not 1 file"),
        (make_card("garbage", "garbage", format="tensorflow"), "not a checkpoint index"),
        (
            make_card("training.pt", state_key="nokey"),
            "training.pt has no state_key 'nokey'; it has state, loss, epoch",
        ),
    ]
    for card, told in faults:
        with pytest.raises(CheckpointError, match=told) as caught:
            pull(card, tmp_path / "cache")
        assert "Correct format, files or state_key" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_several_torch_files_are_numbered(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("plain.pt", "plain.pt")
    pull(card, tmp_path / "cache")
    assert sorted(load_tensors(card, tmp_path / "cache")) == [
        "1.a.weight",
        "1.b",
        "2.a.weight",
        "2.b",
    ]


def test_json_files_stand_beside_the_weights(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("config.json", "model.safetensors", format="safetensors")
    pull(card, tmp_path / "cache")
    assert load_json(card, tmp_path / "cache") == {"hidden": 4}
    (tmp_path / "cache/thing/config.json").write_text('{"hidden": 5}')
    with pytest.raises(CheckpointError, match=r"config\.json is not the card's"):
        load_json(card, tmp_path / "cache")
    with pytest.raises(CheckpointError, match=r"config\.json is not in .*elsewhere/thing"):
        load_json(card, tmp_path / "elsewhere")


def test_a_second_pull_fetches_nothing(
    make_card: MakeCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_card("plain.pt")
    pull(card, tmp_path / "cache")
    monkeypatch.setattr(cache, "fetch", None)
    pull(card, tmp_path / "cache")


def test_a_changed_byte_is_found_and_mended(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("plain.pt")
    pull(card, tmp_path / "cache")
    weights = tmp_path / "cache/thing/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="the tensors are not the card's"):
        load_tensors(card, tmp_path / "cache")
    pull(card, tmp_path / "cache")
    verify(card, tmp_path / "cache")


def test_a_truncated_file_is_damaged(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("plain.pt")
    pull(card, tmp_path / "cache")
    weights = tmp_path / "cache/thing/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="damaged"):
        verify(card, tmp_path / "cache")


def test_another_card_of_the_same_id_is_not_served_the_old_weights(
    make_card: MakeCard, tmp_path: Path
) -> None:
    pull(make_card("plain.pt"), tmp_path / "cache")
    with pytest.raises(CheckpointError, match="made from other files"):
        load_tensors(make_card("training.pt"), tmp_path / "cache")


def test_other_weights_under_the_same_id_are_told(make_card: MakeCard, tmp_path: Path) -> None:
    lines: list[str] = []
    pull(make_card("plain.pt"), tmp_path / "cache", progress=lines.append)
    pull(make_card("training.pt", state_key="state"), tmp_path / "cache", progress=lines.append)
    assert "weights differ" not in "".join(lines)  # another file, the same weights
    torch.save({**TENSORS, "b": torch.tensor(8)}, tmp_path / "source/plain.pt")
    pull(make_card("plain.pt"), tmp_path / "cache", progress=lines.append)
    assert "these weights differ from those that had this id here" in lines[-1]
    assert "another id, such as thing-2" in lines[-1]


def test_wrong_bytes_at_the_source_are_refused_and_leave_nothing(
    make_card: MakeCard, tmp_path: Path
) -> None:
    card = replace(make_card("plain.pt"), files=(CardFile("plain.pt", "0" * 64),))
    with pytest.raises(CheckpointError, match="another file than the card's, 000"):
        pull(card, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_card_of_other_tensors_is_told_from_damage(make_card: MakeCard, tmp_path: Path) -> None:
    def told(of: ModelCard) -> str:
        with pytest.raises(CheckpointError, match="the tensors are not the card's") as caught:
            verify(of, tmp_path / "cache")
        return str(caught.value)

    found, wrong = tensor_digest(TENSORS), make_card("plain.pt", tensors_sha256="0" * 64)
    to_card = f"if you want these, its tensors_sha256 has to be {found}."
    with pytest.raises(CheckpointError) as refused:
        pull(wrong, tmp_path / "cache")
    pull(make_card("plain.pt"), tmp_path / "cache")
    assert str(refused.value) == told(wrong)
    assert f"their digest is {found}, not {wrong.tensors_sha256}." in told(wrong)
    assert told(wrong).endswith(f"the card names others: {to_card}")
    assert "afa models pull" not in told(wrong)  # that would fetch the same tensors
    save_file({"a.weight": torch.zeros(2, 3)}, tmp_path / "cache/thing/model.safetensors")
    right = make_card("plain.pt", tensors_sha256=found)
    assert "Either they are damaged: `afa models pull thing` fetches them. Or" in told(right)
    assert told(make_card("plain.pt")).endswith("the folder that AFA_MODEL_MIRROR names.")


def test_an_absent_checkpoint_names_id_source_and_command(
    cards: dict[str, ModelCard], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_tensors(cards["vibenet"], tmp_path)
    message = str(caught.value)
    assert "vibenet" in message
    assert "pypi://vibenet==0.1.0" in message
    assert "afa models pull vibenet" in message
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(copy) == message


def test_an_unreachable_source_says_so(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("plain.pt", source="pypi://no-such-package-of-afa==9.9")
    with pytest.raises(CheckpointError, match="pip could not download no-such-package-of-afa"):
        pull(card, tmp_path / "cache")


def test_the_mirror_is_looked_in_first(make_card: MakeCard, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    save_file(dict(TENSORS), mirror / "thing.safetensors")
    card = make_card("plain.pt", tensors_sha256=tensor_digest(TENSORS), source="https://nowhere/")
    pull(card, tmp_path / "cache", mirror)
    assert same(load_tensors(card, tmp_path / "cache"), TENSORS)


def test_the_mirror_may_hold_the_sources_own_files(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("plain.pt", source="https://nowhere/")
    folder = tmp_path / "mirror" / "thing"
    folder.mkdir(parents=True)
    (folder / "plain.pt").write_bytes((tmp_path / "source/plain.pt").read_bytes())
    pull(card, tmp_path / "cache", tmp_path / "mirror")
    assert same(load_tensors(card, tmp_path / "cache"), TENSORS)


def test_the_mirror_is_not_believed(make_card: MakeCard, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    save_file({"a.weight": torch.zeros(2, 3)}, mirror / "thing.safetensors")
    card = make_card("plain.pt", tensors_sha256=tensor_digest(TENSORS))
    with pytest.raises(CheckpointError, match="the tensors are not the card's"):
        pull(card, tmp_path / "cache", mirror)


def test_code_in_a_pickle_never_runs(make_card: MakeCard, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (open, (str(tmp_path / "hit"), "w"))  # type: ignore[return-value]

    source = tmp_path / "source"
    torch.save({"a": Bomb()}, source / "bomb.pt")
    torch.save(torch.nn.Linear(2, 2), source / "module.pt")
    (source / "bare.pt").write_bytes(pickle.dumps(Bomb(), 2))
    for name in ("bomb.pt", "module.pt", "bare.pt"):
        with pytest.raises(CheckpointError) as told:
            pull(make_card(name), tmp_path / "cache")
        assert "does not hold tensors alone; save `module.state_dict()`" in told.value.reason
    assert not (tmp_path / "hit").exists()


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """The digest as cards have it, independent of the file."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def test_the_digest_sees_names_types_shapes_and_values(tmp_path: Path) -> None:
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool)
    kinds += (torch.int8, torch.int16, torch.int32, torch.int64)
    kinds += (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    some = [
        *({"a": torch.zeros(4)}, {"b": torch.zeros(4)}, {"a": torch.zeros(2, 2)}),
        *({"a": torch.tensor([0.0, 0, 0, 1e-30])}, {"a": torch.tensor(1.0)}, {}),
        *({"a": torch.zeros(0, 3)}, {"a": torch.arange(10**6), "é": torch.ones(3)}),
        {str(kind): torch.arange(7).to(kind) for kind in kinds},
    ]
    found = []
    for number, tensors in enumerate(some):
        save_file(tensors, tmp_path / str(number), {"of": "anything"})
        found.append(weights_digest(tmp_path / str(number)))
    assert found == list(map(tensor_digest, some))
    assert len(set(found)) == len(some)


def test_what_is_there_is_verified_without_torch(make_card: MakeCard, tmp_path: Path) -> None:
    card = make_card("plain.pt", tensors_sha256=tensor_digest(TENSORS))
    pull(card, tmp_path / "cache")
    (tmp_path / "card").write_bytes(pickle.dumps(card))
    code = f"""
import pathlib, pickle, sys
from models.checkpoints.cache import pull, verify
folder = pathlib.Path({str(tmp_path)!r})
card = pickle.loads((folder / "card").read_bytes())
verify(card, folder / "cache")
pull(card, folder / "cache", None, print)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "thing: here already, verified"), done


def test_a_builtin_needs_no_pull(cards: dict[str, ModelCard], tmp_path: Path) -> None:
    pull(cards["hpcp"], tmp_path)
    verify(cards["hpcp"], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model_id", ["beatnet", "vibenet", "musicnn-mtt", "musicnn-msd-768"])
def test_the_default_checkpoints_can_be_had(
    cards: dict[str, ModelCard], model_dir: Path, model_id: str
) -> None:
    card = cards[model_id]
    pull(card, model_dir)
    manifest = json.loads((model_dir / model_id / "manifest.json").read_text())
    assert tensor_digest(load_tensors(card, model_dir)) == card.tensors_sha256
    assert manifest["source"] == card.source


@pytest.fixture
def shipped(make_card: MakeCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelCard:
    """Return the card of weights that are part of afa."""
    monkeypatch.setattr(stored, "SHIPPED_FOLDER", tmp_path / "source")
    return make_card("model.safetensors", source="shipped://", format="safetensors")


def test_shipped_weights_load_without_being_pulled(shipped: ModelCard, tmp_path: Path) -> None:
    assert shipped.is_always_here
    assert same(load_tensors(shipped, tmp_path / "cache"), TENSORS)
    pull(shipped, tmp_path / "cache")
    verify(shipped, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_parts_are_pulled_verified_and_counted_with_the_whole(
    shipped: ModelCard, make_card: MakeCard, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    part = make_card("plain.pt")
    whole = replace(shipped, model_id="whole", parts=(part,))
    with pytest.raises(CheckpointError, match=f"checkpoint {part.model_id} .* not in"):
        verify(whole, folder)
    assert stored_bytes(whole, folder) == stored_bytes(shipped, folder)
    pull(whole, folder)
    verify(whole, folder)
    assert same(load_tensors(part, folder), TENSORS)
    both = stored_bytes(shipped, folder) + stored_bytes(part, folder)
    assert stored_bytes(whole, folder) == both > stored_bytes(shipped, folder)


def test_the_size_of_weights_is_known_where_they_lie(
    shipped: ModelCard, make_card: MakeCard, tmp_path: Path
) -> None:
    n_bytes = (tmp_path / "source" / "model.safetensors").stat().st_size
    assert stored_bytes(shipped, tmp_path / "cache") == n_bytes > 32
    card = make_card("plain.pt")
    assert stored_bytes(card, tmp_path / "cache") == 0
    assert not is_stored(card, tmp_path / "cache")
    assert not is_stored(replace(shipped, parts=(card,)), tmp_path / "cache")
    pull(card, tmp_path / "cache")
    assert stored_bytes(card, tmp_path / "cache") == n_bytes
    assert is_stored(replace(shipped, parts=(card,)), tmp_path / "cache")
    assert stored_bytes(replace(card, format="none"), tmp_path / "cache") == 0


def test_damaged_shipped_weights_are_refused(shipped: ModelCard, tmp_path: Path) -> None:
    save_file({"b": torch.tensor(8)}, tmp_path / "source" / "model.safetensors")
    for use in (load_tensors, verify, pull):
        with pytest.raises(CheckpointError, match=r"not the card's\. It is part of afa"):
            use(shipped, tmp_path / "cache")
    (tmp_path / "source" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        load_tensors(shipped, tmp_path / "cache")


def test_afas_own_weights_are_small_and_the_cards(cards: dict[str, ModelCard]) -> None:
    card = cards["afa-beats-3"]
    tensors = load_tensors(card, Path("/nowhere"))
    assert tensor_digest(tensors) == card.tensors_sha256
    path = stored.SHIPPED_FOLDER / card.files[0].path
    assert path.stat().st_size < 4_000_000
    assert sum(tensor.numel() for tensor in tensors.values()) < 1_000_000


def test_what_is_pulled_may_be_read_by_whom_the_umask_lets(
    make_card: MakeCard, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        pull(make_card("plain.pt", "config.json"), tmp_path / "cache")
    finally:
        os.umask(before)
    files = list((tmp_path / "cache" / "thing").iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o644}


def test_a_file_that_a_folder_lacks_is_told_with_what_to_do(
    make_card: MakeCard, tmp_path: Path
) -> None:
    card = make_card("plain.pt", source=f"file://{tmp_path}/away")
    with pytest.raises(CheckpointError, match=r"there is no .*/away/plain\.pt\. Put it there, or"):
        pull(card, tmp_path / "cache")
