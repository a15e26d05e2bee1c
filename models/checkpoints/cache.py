"""The model cache: checkpoints as safetensors, each in its own folder, always verified.

``<model_dir>/<model id>/model.safetensors`` holds the tensors under their original names,
``manifest.json`` says what they were made from; JSON files of the source are next to them. Weights
that are part of afa are read from where they are installed. Invariant: a folder is complete or
absent, and no tensor is returned whose digest is not the expected one. Only code that reads tensors
loads torch; checking what is stored does not.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from models.checkpoints.cards import SHIPPED, CardFile, ModelCard
from models.checkpoints.sources import (
    Progress,
    SourceError,
    WrongFileError,
    fetch,
    is_the_cards,
    scratch_folder,
)
from models.checkpoints.stored import WEIGHTS, weights_path

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"

TORCH_NAMES = {
    **{f"F{bits}": f"torch.float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"torch.int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"torch.uint{bits}" for bits in (8, 16, 32, 64)},
    "BF16": "torch.bfloat16",
    "BOOL": "torch.bool",
}
"""Torch's names for the types of safetensors; digests use them."""
_BLOCK_BYTES = 1 << 20


class CheckpointError(Exception):
    """A checkpoint is not available; the message says which, from where, and what to do.

    Attributes:
        remedy: What to do; "" if that is to pull the checkpoint, or to install afa again.
    """

    def __init__(self, model_id: str, source: str, reason: str, remedy: str = "") -> None:
        super().__init__(model_id, source, reason, remedy)
        self.model_id = model_id
        self.source = source
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        remedy = self.remedy or (
            "It is part of afa: install afa again."
            if self.source == SHIPPED
            else f"Run `afa models pull {self.model_id}`, or put it into the folder that "
            "AFA_MODEL_MIRROR names."
        )
        return f"checkpoint {self.model_id} ({self.source}): {self.reason}. {remedy}"


def pull(
    card: ModelCard,
    model_dir: Path,
    mirror: Path | None = None,
    progress: Progress = lambda _line: None,
) -> None:
    """Bring a checkpoint and its parts into the cache, unless they are there and intact.

    Args:
        card: The checkpoint's card.
        model_dir: The cache.
        mirror: Searched first, for ``<id>.safetensors``, ``<id>/model.safetensors`` (a copied
            cache) or the source's own files under ``<id>/``.
        progress: Called with each line of progress.

    Raises:
        CheckpointError: It is not available, or what was found does not match the card.
    """
    for part in card.parts:
        pull(part, model_dir, mirror, progress)
    if card.is_always_here:
        verify(card, model_dir)
        return
    try:
        verify(card, model_dir)
    except CheckpointError:
        pass
    else:
        progress(f"{card.model_id}: here already, verified")
        return
    with scratch_folder(model_dir) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        if not _copy_converted(card, mirror, made):
            fetched = Path(scratch) / "fetched"
            fetched.mkdir()
            _convert(card, fetched, made, mirror, progress)
        _check_folder(card, made)
        before, now = _noted_digest(model_dir / card.model_id), _noted_digest(made)
        _replace(made, model_dir / card.model_id)
    progress(f"{card.model_id}: verified")
    if before not in ("", now):
        progress(
            f"{card.model_id}: these weights differ from those that had this id here. Their "
            "results cannot be compared with earlier ones in libraries and caches: give them "
            f"another id, such as {card.model_id}-2, and pull that"
        )


def verify(card: ModelCard, model_dir: Path) -> None:
    """Check a cached checkpoint and its parts against their cards, byte for byte.

    Raises:
        CheckpointError: It is absent or does not match the card.
    """
    for part in card.parts:
        verify(part, model_dir)
    if card.format != "none":
        _check(card, model_dir)


def load_tensors(card: ModelCard, model_dir: Path) -> "dict[str, Tensor]":
    """Load and verify a checkpoint's tensors on the CPU, under their original names.

    Raises:
        CheckpointError: It is absent or does not match the card.
    """
    from safetensors.torch import load_file

    _check(card, model_dir)
    return load_file(weights_path(card, model_dir))


def stored_digest(card: ModelCard, model_dir: Path) -> str:
    """Return the digest of a checkpoint's tensors: the card's, or else the one noted on pulling.

    Raises:
        CheckpointError: It is absent or damaged.
    """
    if card.tensors_sha256:
        return card.tensors_sha256
    manifest = model_dir / card.model_id / MANIFEST
    if not manifest.is_file():
        raise CheckpointError(card.model_id, card.source, f"not in {model_dir}")
    try:
        return str(json.loads(manifest.read_text())["tensors_sha256"])
    except (ValueError, KeyError) as error:
        raise CheckpointError(card.model_id, card.source, f"damaged: {error}") from error


def load_json(card: ModelCard, model_dir: Path, name: str = "config.json") -> dict[str, Any]:
    """Load a JSON file that belongs to a checkpoint.

    Raises:
        CheckpointError: It is absent or does not match the card.
    """
    _check_json(card, model_dir / card.model_id)
    parsed: dict[str, Any] = json.loads((model_dir / card.model_id / name).read_text())
    return parsed


def weights_digest(path: Path) -> str:
    """Hash a file's tensors, SHA-256 in hex: names, dtypes, shapes and values, ordered by name.

    Raises:
        SafetensorError: It is damaged.
        OSError: It cannot be read.
    """
    with safe_open(path, framework="numpy"):
        pass  # checks that the header fits the file
    digest = hashlib.sha256()
    with path.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(n_bytes))
        head.pop("__metadata__", None)
        for name, one in sorted(head.items()):
            kind, (first, last) = TORCH_NAMES.get(one["dtype"], one["dtype"]), one["data_offsets"]
            digest.update(f"{name}\0{kind}\0{tuple(one['shape'])}\0".encode())
            file.seek(8 + n_bytes + first)
            for begin in range(first, last, _BLOCK_BYTES):
                digest.update(file.read(min(_BLOCK_BYTES, last - begin)))
    return digest.hexdigest()


def _copy_converted(card: ModelCard, mirror: Path | None, made: Path) -> bool:
    """Copy converted tensors from the mirror, if the card has their digest."""
    if mirror is None or not card.tensors_sha256:
        return False
    for path in (mirror / f"{card.model_id}.safetensors", mirror / card.model_id / WEIGHTS):
        if path.is_file():
            shutil.copyfile(path, made / WEIGHTS)
            _write_manifest(card, made, card.tensors_sha256)
            return not any(_is_json(file) for file in card.files)
    return False


def _convert(
    card: ModelCard, fetched: Path, made: Path, mirror: Path | None, progress: Progress
) -> None:
    from models.checkpoints.weight_files import ConversionError, read_tensors, write_tensors

    try:
        paths = fetch(card, fetched, mirror, progress)
        weights = []
        for file, path in zip(card.files, paths, strict=True):
            if _is_json(file):
                shutil.copyfile(path, made / Path(file.path).name)
            else:
                weights.append(path)
        tensors = read_tensors(card.format, weights, card.state_key)
    except WrongFileError as error:
        remedy = "If that is the file that you want, put its digest into the card."
        raise CheckpointError(card.model_id, card.source, str(error), remedy) from error
    except ConversionError as error:
        remedy = "Correct format, files or state_key of the card, or write the file again."
        raise CheckpointError(card.model_id, card.source, str(error), remedy) from error
    except SourceError as error:
        is_folder = card.source.startswith("file://")
        remedy = "Put it there, or correct source and files of the card." if is_folder else ""
        raise CheckpointError(card.model_id, card.source, str(error), remedy) from error
    write_tensors(tensors, made / WEIGHTS)
    _write_manifest(card, made, weights_digest(made / WEIGHTS))


def _write_manifest(card: ModelCard, made: Path, digest: str) -> None:
    files = {file.path: file.sha256 or file.git_sha1 for file in card.files}
    manifest = {"source": card.source, "files": files, "tensors_sha256": digest}
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _noted_digest(folder: Path) -> str:
    """Return the noted digest of a folder's tensors; "" if there is none."""
    try:
        return str(json.loads((folder / MANIFEST).read_text())["tensors_sha256"])
    except (OSError, ValueError, KeyError):
        return ""


def _check(card: ModelCard, model_dir: Path) -> None:
    if card.source == SHIPPED:
        _check_shipped(card)
    else:
        _check_folder(card, model_dir / card.model_id)


def _check_folder(card: ModelCard, folder: Path) -> None:
    if not (folder / WEIGHTS).is_file():
        raise CheckpointError(card.model_id, card.source, f"not in {folder.parent}")
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        found = weights_digest(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(card.model_id, card.source, f"damaged: {error}") from error
    expected = card.tensors_sha256 or manifest["tensors_sha256"]
    if manifest["files"] != {file.path: file.sha256 or file.git_sha1 for file in card.files}:
        raise CheckpointError(card.model_id, card.source, "made from other files than the card's")
    if found != expected:
        reason = f"the tensors are not the card's: their digest is {found}, not {expected}"
        remedy = _remedy_of_others(card, found, is_as_made=found == manifest["tensors_sha256"])
        raise CheckpointError(card.model_id, card.source, reason, remedy)
    _check_json(card, folder)


def _remedy_of_others(card: ModelCard, found: str, *, is_as_made: bool) -> str:
    if not card.tensors_sha256:
        return ""
    names = f"the card names others: if you want these, its tensors_sha256 has to be {found}"
    if is_as_made:
        return f"They are what its files hold, and a pull brings the same; {names}."
    return f"Either they are damaged: `afa models pull {card.model_id}` fetches them. Or {names}."


def _check_shipped(card: ModelCard) -> None:
    path = weights_path(card, Path())
    if not path.is_file():
        raise CheckpointError(card.model_id, card.source, f"{path} is missing")
    if not is_the_cards(card.files[0], path):
        raise CheckpointError(card.model_id, card.source, f"{path} is not the card's")


def _check_json(card: ModelCard, folder: Path) -> None:
    for file in card.files:
        path = folder / Path(file.path).name
        if not _is_json(file):
            continue
        if not path.is_file():
            raise CheckpointError(card.model_id, card.source, f"{path.name} is not in {folder}")
        if not is_the_cards(file, path):
            raise CheckpointError(card.model_id, card.source, f"{path.name} is not the card's")


def _is_json(file: CardFile) -> bool:
    return file.path.endswith(".json")


def _replace(made: Path, folder: Path) -> None:
    """Put a complete folder in place; a reader sees the old one or the new one."""
    if folder.exists():
        folder.rename(made.parent / "old")
    try:
        made.rename(folder)
    except OSError:
        # Another process has pulled the same checkpoint; both are verified copies.
        if not (folder / WEIGHTS).is_file():
            raise
