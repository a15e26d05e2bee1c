"""What the commands share: settings, cards, and how failures are told."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from configs.settings import Settings
from configs.tables import load_table
from models.cards import ModelCard, choose_cards, parse_cards

if TYPE_CHECKING:
    import torch

console = Console()
errors = Console(stderr=True)


def fail(message: str) -> NoReturn:
    """Tell what went wrong and what to do, and exit with status 1."""
    errors.print(f"[bold red]afa:[/] {message}", highlight=False)
    sys.exit(1)


@contextmanager
def told(*kinds: type[Exception]) -> Iterator[None]:
    """Turn expected exceptions into a message and status 1."""
    try:
        yield
    except kinds as error:
        fail(str(error))


def chosen_cards(settings: Settings) -> dict[str, tuple[ModelCard, ...]]:
    """Give the cards of each role under the licence policy."""
    return choose_cards(parse_cards(load_table("models")), settings.model_licences)


def torch_device(settings: Settings) -> "torch.device":
    """Give the device that ``AFA_DEVICE`` names; ``auto`` takes a GPU when there is one."""
    import torch

    if settings.device != "auto":
        return torch.device(settings.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def is_url(text: str) -> bool:
    """Whether an argument is a web address rather than a path."""
    return text.startswith(("http://", "https://"))


def existing(path: str) -> Path:
    """Give the path of a file that is there."""
    found = Path(path)
    if not found.is_file():
        fail(f"no such file: {path}")
    return found
