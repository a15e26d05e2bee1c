"""`afa models`: the checkpoints."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from configs.settings import Settings
from configs.tables import load_table
from models.cards import CardError, ModelCard, choose_cards, parse_cards
from serve_app.cli.environment import console, told

logger = logging.getLogger(__name__)
app = typer.Typer(help="Checkpoints: list, pull, verify.", no_args_is_help=True)


def default_cards(settings: Settings) -> list[ModelCard]:
    """Give the cards that the service runs with."""
    chosen = choose_cards(parse_cards(load_table("models")), settings.model_licences)
    return [card for cards in chosen.values() for card in cards]


def pull_cards(cards: list[ModelCard], settings: Settings) -> None:
    """Fetch, verify and convert checkpoints, showing each step.

    Raises:
        CheckpointError: One that is not optional cannot be had.
    """
    from models.checkpoints import CheckpointError, pull

    for card in cards:
        with console.status(f"model {card.model_id}") as status:

            def show(step: str, model_id: str = card.model_id) -> None:
                status.update(f"model {model_id}: {step}")

            try:
                pull(card, settings.resolved_model_dir(), settings.model_mirror, show)
            except CheckpointError as error:
                if not card.optional:
                    raise
                console.print(f"model {card.model_id}: left out, it is optional", highlight=False)
                logger.info("%s", error)
            else:
                console.print(f"model {card.model_id}: ready", highlight=False)


def pull_defaults(settings: Settings) -> None:
    """Pull what the service needs; quick when everything is there."""
    from models.checkpoints import CheckpointError

    with told(CheckpointError, CardError):
        pull_cards(default_cards(settings), settings)


@app.command("pull")
def pull_command(
    model_ids: Annotated[
        list[str] | None, typer.Argument(help="Model ids; the defaults when none.")
    ] = None,
) -> None:
    """Fetch checkpoints into the model folder and verify them."""
    from models.checkpoints import CheckpointError

    settings = Settings()
    cards = parse_cards(load_table("models"))
    with told(CheckpointError, CardError, KeyError):
        wanted = [cards[i] for i in model_ids] if model_ids else default_cards(settings)
        pull_cards(wanted, settings)


@app.command("list")
def list_command() -> None:
    """Show every card: role, licence, and whether it is here."""
    settings = Settings()
    defaults = {card.model_id for card in default_cards(settings)}
    table = Table("id", "role", "default", "licence", "commercial", "here")
    for card in parse_cards(load_table("models")).values():
        table.add_row(
            card.model_id,
            card.role,
            "yes" if card.model_id in defaults else "",
            f"{card.licence} ({card.licence_class})",
            "yes" if card.commercial_use else "no",
            "yes" if is_here(card, settings.resolved_model_dir()) else "",
        )
    console.print(table)


@app.command("verify")
def verify_command() -> None:
    """Check the digests of the default checkpoints."""
    from models.checkpoints import CheckpointError, verify

    settings = Settings()
    with told(CheckpointError):
        for card in default_cards(settings):
            if card.optional and not is_here(card, settings.resolved_model_dir()):
                continue
            verify(card, settings.resolved_model_dir())
            console.print(f"{card.model_id}: verified", highlight=False)


def is_here(card: ModelCard, model_dir: Path) -> bool:
    """Whether the checkpoint has been pulled."""
    return card.is_always_here or (model_dir / card.model_id).is_dir()
