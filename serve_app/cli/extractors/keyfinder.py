"""`keyfinder-cli FILE`: print the key of a file, like libKeyFinder's command of that name.

References:
    https://github.com/evanpurkhiser/keyfinder-cli: its arguments, output and statuses.
"""

import getopt
import sys
from pathlib import Path
from typing import NoReturn

import typer

from afa.cards import usable_cards
from afa.errors import MachineError
from configs.settings import Settings
from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import CardError, choose_cards
from pipelines.audio.decode import DecoderUnavailableError, decode
from pipelines.audio.waveform import AudioError
from serve_app.cli.analysis.loaded import LIMITS
from serve_app.services.export.key_names import KeyFormat, key_name

USAGE = "Usage: keyfinder-cli [-h] [-n key-notation] filename"
NOTATIONS = {
    "standard": KeyFormat.CLASSIC,
    "camelot": KeyFormat.CAMELOT,
    "openkey": KeyFormat.OPENKEY,
}


def main() -> None:
    """Print the key of the file on the command line; nothing for silence."""
    try:
        options, paths = getopt.getopt(sys.argv[1:], "n:h", ["notation=", "help"])
    except getopt.GetoptError:
        stop(USAGE)
    asked = dict(options)
    if asked.keys() & {"-h", "--help"}:
        typer.echo(USAGE)
        return
    notation = asked.get("-n", asked.get("--notation", "standard"))
    if notation not in NOTATIONS:
        stop("Invalid key notation")
    if not paths:
        stop(USAGE)
    of_machine = (DecoderUnavailableError, MachineError)
    try:
        key, mode = key_of(Path(paths[0]))
    except (AudioError, OSError, *of_machine, CardError, CheckpointError) as error:
        stop(str(error))
    name = key_name(key, mode, NOTATIONS[notation])
    if name:
        typer.echo(name.replace("F#", "Gb"))  # the command writes no sharps


def key_of(path: Path) -> tuple[int, int]:
    """Return pitch class and mode of a file, -1 without a key; raises errors of the steps."""
    from afa.device import device_here
    from pipelines.analysis import quick

    waveform = decode(path, LIMITS)
    settings = Settings()
    model_dir = settings.resolved_model_dir()
    cards = choose_cards(usable_cards(model_dir), settings.model_licences)
    analyzer = quick.build(cards, model_dir, device_here(settings.device))
    heard = analyzer.analyse(waveform, with_key=True)
    return heard.key, heard.mode


def stop(message: str) -> NoReturn:
    """Say what is wrong and exit with status 1."""
    typer.echo(message, err=True)
    sys.exit(1)
