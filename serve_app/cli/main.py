"""Assembles the commands; every one takes `--data-dir`."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from serve_app.cli import (
    INTERRUPTED,
    backup,
    bench,
    catalog,
    credits,
    doctor,
    identify,
    keys,
    ledger,
    models,
    service,
    status,
)
from serve_app.cli.analysis import analyze, embed
from serve_app.cli.environment import (
    check_settings,
    console,
    damaged_view_told,
    fail,
    full_disk_told,
    in_closed_folder,
    refuse_root,
)
from serve_app.cli.library import backfill, export, link, scan, similar, tag, vectors
from serve_app.cli.mcp import command as mcp
from serve_app.cli.training import beats
from serve_app.domain.redaction import redact_logs
from serve_app.local.ending import end

app = typer.Typer(
    name="afa",
    help="Audio intelligence: tempo, key, beats, mood, embeddings. `afa up` starts the service.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def tell_version(is_asked: bool) -> None:
    """Print the version and exit, if requested."""
    if is_asked:
        console.print(f"afa {version('afa')}", highlight=False)
        raise typer.Exit


@app.callback()
def afa(
    _: Annotated[
        bool,
        typer.Option("--version", callback=tell_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Have options that belong to no command."""


app.command()(service.up)
app.command()(service.down)
app.command()(status.status)
app.command()(doctor.doctor)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(analyze.analyze)
app.command("analyse", hidden=True)(analyze.analyze)
app.command()(embed.embed)
app.command()(scan.scan)
app.command()(backfill.backfill)
app.command()(link.link)
app.command()(export.export)
app.command()(tag.tag)
app.command()(similar.similar)
app.command()(identify.identify)
app.command()(mcp.mcp)
app.command(cls=bench.ListingCommand)(bench.bench)
catalog.app.command("fingerprint")(identify.fingerprint)
models.app.command("embed")(vectors.embed)
app.add_typer(keys.app, name="keys")
app.add_typer(credits.app, name="credits")
app.add_typer(ledger.app, name="ledger")
app.add_typer(catalog.app, name="catalog")
app.add_typer(models.app, name="models")
app.add_typer(beats.app, name="train")

LEAVE_NO_FILE = (
    *(status.status, doctor.doctor, service.down),
    *(keys.local, keys.list_command, credits.show, models.list_command),
)
"""Commands that root may use on the data folder of another user."""


def named_folder(written: str) -> Path:
    """Return a folder as an absolute path; "" would otherwise mean the current folder."""
    if not written:
        raise typer.BadParameter("empty; name a folder, or leave the option out")
    return Path(written).absolute()


DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=named_folder,
        metavar="PATH",
        help="Folder of the installation: Redis, uploads, library, logs. Default: AFA_DATA_DIR, "
        "or .afa if that is not set.",
    ),
]


def in_folder(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the option `--data-dir`, for its settings and what it starts."""

    @wraps(command)
    def run(*args: Any, data_dir: Path | None, **options: Any) -> Any:
        if data_dir is not None:
            os.environ["AFA_DATA_DIR"] = str(data_dir)
        with in_closed_folder(), damaged_view_told():
            check_settings()
            if command not in LEAVE_NO_FILE:
                refuse_root()
            return command(*args, **options)

    own = inspect.signature(command)
    option = inspect.Parameter(
        "data_dir", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=DataDir
    )
    run.__signature__ = own.replace(  # type: ignore[attr-defined]  # what typer reads
        parameters=[*own.parameters.values(), option]
    )
    run.__annotations__ = command.__annotations__ | {"data_dir": DataDir}
    return run


def give_folder(group: typer.Typer) -> None:
    """Let every command below a group take `--data-dir`."""
    for command in group.registered_commands:
        command.callback = command.callback and in_folder(command.callback)
    for below in group.registered_groups:
        if below.typer_instance is not None:
            give_folder(below.typer_instance)


give_folder(app)


def check_here() -> None:
    """Refuse to run in a deleted folder: paths lead nowhere there, and torch crashes."""
    try:
        os.getcwd()
    except FileNotFoundError:
        fail("the folder that this runs in was deleted; go to another one first")


def main() -> None:
    """Run the command line."""
    redact_logs()
    try:
        check_here()
        with full_disk_told():
            app()
    except SystemExit as ended:
        end(int(ended.code or 0))
    except KeyboardInterrupt:  # before the command had begun
        end(INTERRUPTED)
