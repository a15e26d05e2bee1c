"""Check that a checkpoint matches its card before the service uses it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.cache import CheckpointError, load_tensors, verify
from models.checkpoints.cards import CardError, ModelCard
from models.projection import Projection, evidence_of
from pipelines.analysis.networks.checkpoint_model import (
    CheckpointModel,
    load,
    noise,
    outputs_fault,
    reason_of,
)
from pipelines.analysis.rhythm.beats import load_beat_model
from pipelines.analysis.spectral import load_chord_model, load_key_networks
from pipelines.analysis.tags.tagging import vocabulary_of

N_WINDOWS = 3
TOLERANCE = 1e-4
"""Allowed difference between a row of a batch and the same window alone, relative to the largest
value (at least 1): kernels for other batch sizes sum in another order."""

WORDS = "slow piano"

OF_AFA = ("beats", "key", "chords")
"""Roles whose networks are part of afa."""

_PLACEHOLDER = re.compile(r"label_?\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked; ``fault`` is "" if it passed."""

    what: str
    fault: str = ""


def check_card(card: ModelCard, model_dir: Path, device: torch.device) -> Iterator[Finding]:
    """Check a pulled checkpoint against its card; stops when nothing more can be checked.

    Args:
        card: Card of a checkpoint that runs on windows: tags, attributes, embedding. The networks
            for beats, key and chords are part of afa: for these, only the weights are checked, and
            whether the network accepts them.
        model_dir: The model cache.
        device: Where it runs.
    """
    if card.parts:
        yield from _check_parts(card, model_dir, device)
        return
    try:
        verify(card, model_dir)
        yield Finding("the weights are the card's")
        if card.role in OF_AFA:
            yield Finding(f"{card.network} takes them", _of_afa_fault(card, model_dir, device))
            return
        model = load(card, model_dir, device)
        yield Finding(f"{card.network} takes them")
    except (CheckpointError, CardError) as error:
        yield Finding("weights and network", str(error))
        return
    try:
        windows = noise(N_WINDOWS, card.window_length)
        outputs = _run(model, windows)
    except Exception as error:  # noqa: BLE001  whatever a stranger's network raises
        yield Finding(f"it runs on windows of {card.window_length} samples", reason_of(error))
        return
    yield Finding(f"it runs on windows of {card.window_length} samples")
    yield Finding("its outputs are the card's", outputs_fault(card, outputs))
    looks: dict[str, Callable[[], str]] = {
        "it answers silence with numbers": lambda: _silence_fault(model, card),
        "a row of a batch equals the window alone": lambda: _batch_fault(model, windows, outputs),
    }
    if card.reads_text:
        looks["it reads words"] = lambda: _words_fault(card, model_dir)
    for what, look in looks.items():
        try:
            yield Finding(what, look())
        except Exception as error:  # noqa: BLE001  as above, of windows that are others
            yield Finding(what, reason_of(error))
    if "tags" in outputs.keys() & card.outputs.keys():
        yield Finding("its tags are probabilities", _range_fault(outputs["tags"]))
        yield Finding("its tags have names", _names_fault(card, model_dir))


def _check_parts(card: ModelCard, model_dir: Path, device: torch.device) -> Iterator[Finding]:
    """Check the networks of a projection, and whether it accepts their outputs."""
    for part in card.parts:
        for finding in check_card(part, model_dir, device):
            yield Finding(f"{part.model_id}: {finding.what}", finding.fault)
    try:
        projection = Projection(load_tensors(card, model_dir))
        yield Finding("the weights are the card's")
        names = ("embedding", "tags")
        rows = [{name: torch.rand(1, part.outputs[name]) for name in names} for part in card.parts]
        vector = projection([evidence_of(of_part) for of_part in rows])
    except (CheckpointError, KeyError, RuntimeError) as error:
        yield Finding("it projects what its parts say", reason_of(error))
        return
    yield Finding("it projects what its parts say")
    yield Finding("its outputs are the card's", outputs_fault(card, {"embedding": vector[None]}))


def _of_afa_fault(card: ModelCard, model_dir: Path, device: torch.device) -> str:
    try:
        match card.role:
            case "beats":
                load_beat_model(card, model_dir, device)
            case "chords":
                load_chord_model(card, model_dir, device)
            case _:
                load_key_networks([card], model_dir, device)
    except CardError as error:
        return str(error)
    except CheckpointError as error:
        return error.reason
    return ""


def _run(model: CheckpointModel, windows: Tensor) -> dict[str, Tensor]:
    # In TF32, which only some GPU kernels use, one window may differ from three by 1e-3.
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        return {name: rows.float().cpu() for name, rows in model.forward(windows).items()}


def _silence_fault(model: CheckpointModel, card: ModelCard) -> str:
    outputs = _run(model, torch.zeros(1, card.window_length))
    wrong = [name for name, rows in outputs.items() if not bool(rows.isfinite().all())]
    return f"{', '.join(wrong)}: not finite" if wrong else ""


def _batch_fault(model: CheckpointModel, windows: Tensor, batch: Mapping[str, Tensor]) -> str:
    for row, window in enumerate(windows):
        for name, alone in _run(model, window[None]).items():
            if alone.shape[1:] != batch[name].shape[1:] or len(batch[name]) != len(windows):
                shapes = f"{tuple(batch[name].shape)} of {len(windows)} windows"
                return f"{name}: {shapes}, {tuple(alone.shape)} of one"
            apart = float((alone[0] - batch[name][row]).abs().max())
            if apart > TOLERANCE * max(1.0, float(alone.abs().max())):
                return (
                    f"{name} of window {row} differs by {apart:.2g}: is something normalised over "
                    "the batch, or drawn at random?"
                )
    return ""


def _words_fault(card: ModelCard, model_dir: Path) -> str:
    from models.trunks.clap import build_clap_text  # transformers costs 200 MB

    vector = build_clap_text(card, model_dir)(WORDS)
    if vector.shape == (card.outputs["embedding"],):
        return ""
    return f"words become {len(vector)} numbers, the embedding has {card.outputs['embedding']}"


def _range_fault(tags: Tensor) -> str:
    low, high = float(tags.min()), float(tags.max())
    if low >= 0 and high <= 1:
        return ""
    return f"they reach from {low:.2g} to {high:.2g}: put a sigmoid behind them"


def _names_fault(card: ModelCard, model_dir: Path) -> str:
    try:
        names = vocabulary_of(card, model_dir).names
    except (CardError, CheckpointError) as error:
        return str(error)
    unnamed = [name for name in names if _PLACEHOLDER.fullmatch(name)]
    if unnamed:
        return f"{unnamed[0]!r} is not a name, and customers would see it; put names into id2label"
    return ""
