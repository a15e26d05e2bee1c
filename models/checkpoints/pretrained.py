"""Load pulled checkpoints into transformers classes: local files, no remote code, no gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from models.checkpoints.cache import CheckpointError, load_json, verify
from models.checkpoints.cards import ModelCard

M = TypeVar("M", bound=PreTrainedModel)


def load_pretrained(kind: type[M], config: PretrainedConfig, card: ModelCard, model_dir: Path) -> M:
    """Load verified weights, in float32, with scaled-dot-product attention if the class has it.

    Raises:
        CheckpointError: It is not in the cache, does not match the card, or lacks a tensor of the
            network (which transformers would fill with random numbers).
    """
    verify(card, model_dir)
    try:
        with _quietly():
            loaded: tuple[M, dict[str, Any]] = kind.from_pretrained(  # type: ignore[assignment]
                str(model_dir / card.model_id),
                config=config,
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(card.model_id, card.source, f"does not fit: {reason}") from error
    model, report = loaded
    absent = sorted(report["missing_keys"])
    if absent:
        raise CheckpointError(card.model_id, card.source, f"lacks {', '.join(absent[:3])}")
    return model


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep transformers from printing unneeded tensors and a progress bar."""
    verbosity, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def read_config(card: ModelCard, model_dir: Path) -> dict[str, Any]:
    """Return the checkpoint's ``config.json``; empty if its card names none.

    Raises:
        CheckpointError: It is not in the cache, or does not match the card.
    """
    if not any(file.path.endswith("config.json") for file in card.files):
        return {}
    return load_json(card, model_dir)


def known_fields(config: dict[str, Any], kind: type[PretrainedConfig]) -> dict[str, Any]:
    """Keep the fields of ``config`` that a configuration class has; drop those a fork added."""
    bookkeeping = {"model_type", "architectures", "dtype", "transformers_version", "_name_or_path"}
    known = kind().to_dict().keys() - bookkeeping
    return {name: value for name, value in config.items() if name in known}
