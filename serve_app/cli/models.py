"""`afa models`: the checkpoints."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.box import SIMPLE
from rich.status import Status
from rich.table import Column, Table

from afa.cards import known_cards, usable_cards
from configs.settings import Settings
from models.checkpoints.cards import CardError, ModelCard, Role, choose_cards
from models.checkpoints.stored import is_stored
from serve_app.checkpoints.choices import ModelChoices
from serve_app.checkpoints.swap import ReplicaProgress, SwapError, swap
from serve_app.cli.environment import ConfigOption, console, fail, profile_of, told
from serve_app.cli.ledger_access import ledger_at_rest, with_ledger
from serve_app.cli.networks import own_networks
from serve_app.composition.files import LocalFiles, NotRunningError, checkpoint_mirror
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.store.client import connect

logger = logging.getLogger(__name__)
app = typer.Typer(
    help="Checkpoints: list, pull, verify, publish, check, swap, embed, new.", no_args_is_help=True
)

DEFAULT, PERMISSIVE = "default", "permissive"


def default_cards(settings: Settings) -> list[ModelCard]:
    """Return the cards that the service runs with; it leaves out malformed ones."""
    chosen = choose_cards(usable_cards(settings.resolved_model_dir()), settings.model_licences)
    return [card for cards in chosen.values() for card in cards]


def pull_cards(cards: list[ModelCard], settings: Settings) -> None:
    """Fetch, verify and convert checkpoints, showing each step.

    Raises:
        CheckpointError: A checkpoint cannot be obtained.
    """
    from models.checkpoints.cache import CheckpointError, pull

    for card in cards:
        with console.status(f"model {card.model_id}") as status:

            def show(step: str, model_id: str = card.model_id) -> None:
                status.update(f"model {model_id}: {step}")

            try:
                pull(card, settings.resolved_model_dir(), settings.model_mirror, show)
            except OSError as error:
                remedy = "Name a folder with AFA_MODEL_DIR that can be written to and has room."
                raise CheckpointError(card.model_id, card.source, str(error), remedy) from error
            console.print(f"model {card.model_id}: ready", highlight=False)


def pull_defaults(settings: Settings) -> None:
    """Pull what the service needs; quick if everything is there."""
    from models.checkpoints.cache import CheckpointError

    with told(CheckpointError, CardError):
        pull_cards(default_cards(settings), settings)


@app.command("pull")
def pull_command(
    model_ids: Annotated[
        list[str] | None, typer.Argument(help="Model ids; the default models if none is named.")
    ] = None,
) -> None:
    """Fetch checkpoints into the model folder and verify them."""
    from models.checkpoints.cache import CheckpointError

    settings = Settings()
    with told(CheckpointError, CardError):
        cards = known_cards(settings.resolved_model_dir())
        unknown = [model_id for model_id in model_ids or [] if model_id not in cards]
        if unknown:
            fail(f"no model is called {unknown[0]!r}; see `afa models list`")
        wanted = [cards[i] for i in model_ids] if model_ids else default_cards(settings)
        pull_cards(wanted, settings)


@app.command("list")
def list_command() -> None:
    """Show every card: role, licence, whether it is on this machine, and whether it is in use."""
    settings = Settings()
    with told(CardError):
        known = known_cards(settings.resolved_model_dir())
        defaults = {card.model_id for card in default_cards(settings)}
    with told(ValueError):
        serving = asyncio.run(serving_ids(settings))
    names = (Column(name, no_wrap=True) for name in ("id", "role"))
    table = Table(*names, "default", "licence", "here", "serves", box=SIMPLE, padding=(0, 1, 0, 0))
    for card in known.values():
        roles = sorted(role for role, ids in serving.items() if card.model_id in ids)
        table.add_row(
            card.model_id,
            card.role,
            "yes" if card.model_id in defaults else "",
            card.licence + (f" ({card.licence_class})" if card.licence_class != PERMISSIVE else ""),
            "yes" if is_stored(card, settings.resolved_model_dir()) else "",
            ", ".join(roles),
        )
    console.print(table, soft_wrap=False)
    if not serving:
        console.print("no service runs here, so none is in use")


async def serving_ids(settings: Settings) -> dict[str, set[str]]:
    """Return role to the ids that the running service uses; empty if none runs."""
    try:
        store = connect(LocalFiles(settings.data_dir).ledger_url(settings))
    except NotRunningError:
        return {}
    found: dict[str, set[str]] = {}
    try:
        for report in await ModelChoices(store).reports():
            for role, ids in report.serving.items():
                found.setdefault(role, set()).update(ids.split("+"))
    except ServiceUnavailableError:
        return {}
    finally:
        await store.close()
    return found


@app.command("swap")
def swap_command(
    role: Annotated[str, typer.Argument(help=f"{', '.join(get_args(Role))}.")],
    model_id: Annotated[str, typer.Argument(metavar="ID", help="Model id, or `default`.")],
) -> None:
    """Serve a role with another checkpoint from now on, without a failed request.

    Every replica loads and warms up the new checkpoint next to the old one; when all are ready, all
    switch. A service that is not running uses it from its next start.
    """
    from models.checkpoints.cache import CheckpointError, verify

    settings = Settings()
    with told(CheckpointError, CardError, SwapError):
        if role not in get_args(Role):
            fail(f"there is no role {role!r}; roles are {', '.join(get_args(Role))}")
        if model_id != DEFAULT:
            cards = known_cards(settings.resolved_model_dir())
            (card,) = choose_cards(cards, settings.model_licences, {role: model_id})[role]
            if not is_stored(card, settings.resolved_model_dir()):
                pull_cards([card], settings)
            verify(card, settings.resolved_model_dir())
        chosen = "" if model_id == DEFAULT else model_id
        with ledger_at_rest(), console.status(f"{role}: asking the replicas") as status:
            progress = SwapProgress(role, status)
            done = with_ledger(lambda ledger: swap(ledger.model_choices, role, chosen, progress))
    if not done.replicas:
        console.print(f"{role}: {model_id} from the next start on; no replica runs")
    elif done.before == done.after:
        console.print(
            f"{role}: {done.after} served already, with the weights that were loaded; changed ones "
            "need a card with another id",
            highlight=False,
        )
    else:
        back = done.before if done.before in known_cards(settings.resolved_model_dir()) else DEFAULT
        console.print(
            f"{role}: {done.before} → {done.after} on {done.replicas} replica(s); the cache starts "
            f"afresh under the new id. Back with `afa models swap {role} {back}`",
            highlight=False,
        )
    for name in done.silent:
        console.print(
            f"{name} fell silent: it has ended, or it answers with {done.before} until it reads "
            "the ledger again and has loaded the new one",
            highlight=False,
        )


class SwapProgress:
    """Prints a line whenever a replica makes progress."""

    def __init__(self, role: str, status: Status) -> None:
        self._role = role
        self._status = status
        self._seen: dict[str, str] = {}
        self._begun_s = time.monotonic()

    def __call__(self, progress: Sequence[ReplicaProgress]) -> None:
        """Show how far each replica is."""
        for step in progress:
            replica = step.replica
            if self._seen.get(replica.replica) != step.state:
                self._seen[replica.replica] = step.state
                after_s = time.monotonic() - self._begun_s
                console.print(
                    f"{replica.deployment} {replica.replica}: {step.state} after {after_s:.1f} s",
                    highlight=False,
                )
        states = Counter(step.state for step in progress)
        told_states = ", ".join(f"{n} {state}" for state, n in states.items())
        self._status.update(f"{self._role}: {told_states}")


@app.command("verify")
def verify_command(config: ConfigOption = None) -> None:
    """Check the digests of every checkpoint that is default, chosen, swapped in or pulled."""
    faults = []
    with told(CardError, ValueError):
        settings = Settings()
        for model_id, fault in digests(settings, config, asyncio.run(serving_ids(settings))):
            if fault:
                faults.append(fault)
            else:
                console.print(f"{model_id}: verified", highlight=False)
    if faults:
        fail("\n".join(faults))


def digests(
    settings: Settings, config: Path | None, serving: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, str]]:
    """Compare every checkpoint that is default, chosen, swapped in or pulled with its digest.

    Args:
        settings: Where checkpoints are.
        config: A Serve file that chooses some.
        serving: As returned by `serving_ids`.

    Yields:
        Model ids, each with what is wrong; "" if nothing is.

    Raises:
        CardError: A card is wrong, or the licence policy refuses one.
    """
    from models.checkpoints.cache import CheckpointError, verify

    model_dir = settings.resolved_model_dir()
    known = known_cards(model_dir)
    used = {card.model_id for card in default_cards(settings)}
    used |= set(profile_of(config).models.values())
    used |= {model_id for ids in serving.values() for model_id in ids}
    used |= {card.model_id for card in known.values() if is_stored(card, model_dir)}
    for model_id in sorted(used - known.keys()):
        yield model_id, f"no model is called {model_id!r}"
    for card in known.values():
        if card.model_id in used:
            try:
                verify(card, model_dir)
            except CheckpointError as error:
                yield card.model_id, str(error)
            else:
                yield card.model_id, ""


@app.command()
def publish() -> None:
    """Give the checkpoints of this machine's model folder to every node of a cluster (AFA_SHARED).

    This includes the operator's own cards, and what torch has compiled for the checkpoints on this
    machine. Running nodes get them within half a minute.
    """
    settings = Settings()
    url = LocalFiles(settings.data_dir.absolute()).checkpoints_url(settings)
    if url is None:
        fail("set AFA_SHARED to the storage that every node sees: s3://bucket/prefix or file://…")
    with told(ServiceUnavailableError):
        generation = checkpoint_mirror(url, settings.resolved_model_dir()).publish()
    console.print(f"published: generation {generation}")


app.command("new")(own_networks.new_command)
app.command("check")(own_networks.check_command)
