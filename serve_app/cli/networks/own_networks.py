"""`afa models new` and `check`: your own network, from a template to a checked card."""

import keyword
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from string import Template
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from afa.cards import known_cards, read_cards
from configs.settings import Settings
from models.checkpoints.cards import CardError, ModelCard
from serve_app.cli.environment import console, fail, told

TEMPLATES = Path(__file__).parent
ID = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")


def new_command(
    name: Annotated[str, typer.Argument(help="Model id: lower-case letters, digits, dashes.")],
    into: Annotated[Path, typer.Option(help="Where to create its folder.")] = Path(),
) -> None:
    """Create a network of your own to start from: module, random weights, card and test."""
    if not ID.fullmatch(name):
        fail(f"{name!r} is not a model id; use lower-case letters, digits and dashes, as my-net")
    module = re.sub("[.-]", "_", name)
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        fail(f"{module} is a word of Python; choose another name, as my-{name}")
    folder = into.absolute() / name
    if folder.exists():
        fail(f"{folder} is there already; choose another name or --into")
    if find_spec(module) is not None:
        fail(f"a module {module} is installed already; choose another name, as my-{name}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        fail(f"{folder} cannot be made: {error.strerror}")
    write_network(name, module, folder)
    console.print(
        f"{folder}: {module}.py, model.safetensors, cards.yaml, test_{module}.py, pyproject.toml\n"
        f"next: pip install {quote(str(folder))} && "
        f"afa models check {quote(str(folder / 'cards.yaml'))}\n"
        "A running service sees it when it is installed so; with -e, after a restart.",
        highlight=False,
    )


def write_network(name: str, module: str, folder: Path) -> None:
    """Fill a folder with the template."""
    from models.checkpoints.sources import file_sha256
    from models.checkpoints.weight_files import write_tensors

    words = {
        "NAME": name,
        "MODULE": module,
        "CLASS": "".join(part.capitalize() for part in module.split("_")),
        "SOURCE": folder.as_uri(),
    }
    write(folder / f"{module}.py", "network.py", words)
    sys.path.insert(0, str(folder))
    try:
        weights = import_module(module).new_weights()
    finally:
        sys.path.remove(str(folder))
    write_tensors(weights, folder / "model.safetensors")
    words["DIGEST"] = file_sha256(folder / "model.safetensors")
    write(folder / "cards.yaml", "cards.yaml", words)
    write(folder / f"test_{module}.py", "test.py", words)
    write(folder / "pyproject.toml", "pyproject.toml", words)


def write(path: Path, template: str, words: Mapping[str, str]) -> None:
    """Write one file of the template."""
    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    path.write_text(Template(text).substitute(words), encoding="utf-8")


def check_command(
    card: Annotated[str, typer.Argument(help="Model id, or a file of cards.", metavar="CARD")],
) -> None:
    """Test a checkpoint before it serves: weights, windows, dimensions, batches, names of tags."""
    from afa.errors import MachineError
    from models.checkpoints.cache import CheckpointError

    settings = Settings()
    # A module in this folder is found, as by `python -m`.
    sys.path.insert(0, os.getcwd())
    with told(CardError, CheckpointError, MachineError):
        cards = named_cards(card, settings.resolved_model_dir())
        faults = sum(report(one, settings) for one in cards)
    if faults:
        sys.exit(1)


def named_cards(card: str, model_dir: Path) -> list[ModelCard]:
    """Return the card of a model id, or all cards of a file.

    Raises:
        CardError: There is no card, or one is malformed.
    """
    if card.endswith((".yaml", ".yml")):
        if not Path(card).is_file():
            fail(f"{card}: no such file")
        cards = list(read_cards(Path(card)).values())
        return cards or fail(f"{card} has no card")
    known = known_cards(model_dir)
    if card not in known:
        fail(f"no model is called {card!r}; see `afa models list`, or give a file of cards")
    return [known[card]]


def report(card: ModelCard, settings: Settings) -> int:
    """Check one card, print what is found, and return the number of faults.

    Files that the model folder lacks, or has differently, are fetched only for the check.

    Raises:
        CheckpointError: The checkpoint cannot be obtained.
        MachineError: The device in the settings does not exist here.
    """
    from afa.device import device_here
    from models.checkpoints.cache import CheckpointError, pull, verify
    from pipelines.analysis.networks.card_check import check_card

    console.print(card.model_id, style="bold", highlight=False)
    faults = 0
    with TemporaryDirectory() as scratch:
        model_dir = settings.resolved_model_dir()
        try:
            verify(card, model_dir)
        except CheckpointError:
            model_dir = Path(scratch)
            pull(card, model_dir, settings.model_mirror)
        for finding in check_card(card, model_dir, device_here(settings.device)):
            faults += bool(finding.fault)
            line = (
                f"no   {finding.what}: {finding.fault}" if finding.fault else f"yes  {finding.what}"
            )
            console.print(line, highlight=False)
    return faults
