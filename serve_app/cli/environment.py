"""What the commands share: settings, cards, and how they report failures."""

import asyncio
import errno
import os
import pwd
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console
from rich.text import Text

from configs.settings import Settings
from serve_app.composition.files import LocalFiles
from serve_app.composition.profile import AppArgs, ProfileError, read_profile
from serve_app.domain.errors import with_cause

T = TypeVar("T")

WHOLE = 10_000
"""Columns without a terminal: a table in a pipe or a file is as wide as its contents."""

_CONTROLS = {n: f"\\x{n:02x}" for n in (*range(9), *range(11, 32), *range(127, 160))}


class Printed(Console):
    """Escapes control characters, with which a name or a title could control a terminal."""

    def render_str(self, text: str, **how: Any) -> Text:
        """See `Console`; tabs and line breaks stay."""
        return super().render_str(text.translate(_CONTROLS), **how)


console = Printed(
    soft_wrap=True,
    markup=False,
    emoji=False,
    width=None if sys.stdout is not None and sys.stdout.isatty() else WHOLE,
)
errors = Printed(stderr=True, soft_wrap=True, markup=False, emoji=False)
"""Only the terminal breaks lines, so that commands and paths can be copied whole. Text in brackets
is part of a name or a title, not markup."""

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Serve file to take checkpoints, batches and execution from, as `configs/serve.*`.",
    ),
]

HereOption = Annotated[
    bool, typer.Option("--here", help="Analyse in this process even if a service runs.")
]

PartialOption = Annotated[
    bool,
    typer.Option("--partial", help="Mood and embedding from 3 x 10 s; the service is not used."),
]

TempoRangeOption = Annotated[
    str | None,
    typer.Option("--tempo-range", help="Look for the tempo between these BPM.", metavar="80-160"),
]


def tell_of(file: object, message: str) -> None:
    """Report what is wrong with a file on one line; a name may contain line breaks."""
    name = str(file).replace("\n", r"\x0a")
    errors.print(f"{name}: {message}", highlight=False)


def fail(message: str) -> NoReturn:
    """Say what went wrong and what to do, and exit with status 1."""
    shown = errors.render_str(f" {message}", highlight=False)
    errors.print(Text.assemble(("afa:", "bold red"), shown), highlight=False)
    sys.exit(1)


@contextmanager
def told(*kinds: type[Exception]) -> Iterator[None]:
    """Turn expected exceptions into a message and status 1."""
    try:
        yield
    except kinds as error:
        fail(reason(error))


@contextmanager
def full_disk_told() -> Iterator[None]:
    """Report a full disk in one line, even that of standard output."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fail(reason(error))


def until_stopped(work: Coroutine[Any, Any, T], stopped: str) -> T:
    """Run work to its end; Ctrl-C, SIGTERM and a closed terminal end it cleanly.

    Args:
        work: The work, which is cancelled in that case.
        stopped: Message that is printed in that case.
    """

    async def run() -> T:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        console.print(stopped)
        raise typer.Exit(130) from None
    except asyncio.CancelledError:
        console.print(stopped)
        raise typer.Exit(-signal.SIGTERM) from None


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """If a package of one of afa's extras is missing, say which extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: install afa[{extra}]")


def reason(error: Exception) -> str:
    """Say in one line what went wrong, including the cause, which customers do not see."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return with_cause(error)


def check_settings() -> None:
    """Report a setting of the environment that is not valid, before a command reads them."""
    try:
        data_dir = Settings().data_dir
    except ValidationError as error:
        fault = error.errors()[0]
        fail(f"AFA_{str(fault['loc'][0]).upper()}: {fault['msg']}")
    except SettingsError as error:
        field = str(error).split('"')[1]
        fail(f'AFA_{field.upper()} must be JSON, such as ["one", "other"] for a list')
    if data_dir.exists() and not data_dir.is_dir():
        fail(f"{data_dir} is not a folder; name one with --data-dir or AFA_DATA_DIR")


def refuse_root() -> None:
    """Fail if root would leave files in the data folder that its service could not read.

    The service runs as the user who started it there first, or before that as the folder's owner.
    """
    data_dir = Settings().data_dir.absolute()
    if os.geteuid() != 0 or not data_dir.is_dir():
        return
    lock = LocalFiles(data_dir).lock_path
    owner = (lock if lock.exists() else data_dir).stat().st_uid
    if owner == 0:
        return
    # On a file system without root rights, new files are the owner's, or cannot be written.
    with suppress(OSError), tempfile.TemporaryFile(dir=data_dir) as probe:
        if os.fstat(probe.fileno()).st_uid != owner:
            fail(
                f"{data_dir} belongs to {named_user(owner)}, whose service could not read what "
                "root writes there: run this as that user (`sudo -u USER …`), or make the folder "
                "root's"
            )


def named_user(uid: int) -> str:
    """Return a user's name, or the number if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def in_closed_folder() -> Iterator[None]:
    """Report a data folder that this user may not enter; it is closed to all but its owner."""
    try:
        yield
    except PermissionError as error:
        folder = Settings().data_dir.absolute()
        if not Path(error.filename or "").absolute().is_relative_to(folder):
            raise
        fail(
            f"{error.filename}: {error.strerror}; the data folder is closed to all users but its "
            "own: run this as that user (`sudo -u USER …`), or name another folder with --data-dir"
        )


@contextmanager
def damaged_view_told() -> Iterator[None]:
    """Report a damaged view of the library in one line: it has no data of its own."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.ProgrammingError):
        raise  # neither a disk that fails or is full nor a fault of ours damages anything
    except sqlite3.DatabaseError as error:
        folder = LocalFiles(Settings().data_dir.absolute()).library_view_dir
        fail(f"{folder}: {error}; end what uses it and remove it: the library's view is made again")


def profile_of(config: Path | None) -> AppArgs:
    """Return what the Serve file says; without one, the default of afa."""
    with told(ProfileError):
        return AppArgs() if config is None else read_profile(config)


def tell_to_publish() -> None:
    """If the service reads what is published, say that nothing has changed for it yet."""
    if Settings().shared is not None:
        console.print("AFA_SHARED is set: `afa catalog publish` gives this to the service")


def is_url(text: str) -> bool:
    """Return whether an argument is a web address rather than a path."""
    return text.startswith(("http://", "https://"))


def writable(path: Path | None) -> Path | None:
    """Refuse a file that could not be written, before any work is done."""
    if path is None:
        return None
    if path.is_dir():
        fail(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        fail(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        fail(f"cannot write {path}: permission denied")
    return path


def replaceable(path: Path | None) -> Path | None:
    """As `writable`, for a file that is replaced as a whole: no pipe or device."""
    path = writable(path)
    if path is not None and is_device(path):
        fail(f"cannot write {path}: name a file, which takes its place when it is whole")
    return path


def written(path: Path | None) -> Path | None:
    """As `writable`, for a file that is written in place; ``-`` is standard output."""
    return Path("/dev/stdout") if path == Path("-") else writable(path)


def is_device(path: Path) -> bool:
    """Return whether a path is a pipe, a device or a link such as ``/dev/stdout``."""
    return path.exists() and (not path.is_file() or path.absolute().is_relative_to("/dev"))
