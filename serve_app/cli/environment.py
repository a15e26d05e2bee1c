"""What the commands share: settings, cards, and how failures are told."""

import asyncio
import os
import pwd
import re
import signal
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
from serve_app.domain.errors import AfaError, ServiceUnavailableError

T = TypeVar("T")

WHOLE = 10_000
"""Columns of what is no terminal: a table in a pipe or a file is as wide as what stands in it."""

SOURCE_LINE = re.compile(r", \S+\.rs:\d+:\d+$")
"""Where in Lance's source an error arose, which it tells at the end."""

_CONTROLS = {n: f"\\x{n:02x}" for n in (*range(9), *range(11, 32), *range(127, 160))}


class Printed(Console):
    """Spells out control characters, with which a name or a title could command a terminal."""

    def render_str(self, text: str, **how: Any) -> Text:
        """See `Console`; tabs and ends of lines stay."""
        return super().render_str(text.translate(_CONTROLS), **how)


console = Printed(
    soft_wrap=True,
    markup=False,
    emoji=False,
    width=None if sys.stdout is not None and sys.stdout.isatty() else WHOLE,
)
errors = Printed(stderr=True, soft_wrap=True, markup=False, emoji=False)
"""Lines are broken by the terminal alone, so that commands and paths can be copied whole. What
stands in brackets in a name or a title is part of it."""

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Serve file to take checkpoints, batches and execution from, as `configs/serve.*`.",
    ),
]

TempoRangeOption = Annotated[
    str | None,
    typer.Option("--tempo-range", help="Look for the tempo between these BPM.", metavar="80-160"),
]


def tell_of(file: object, message: str) -> None:
    """Tell what is wrong with a file, in a line of its own; a name may hold ends of lines."""
    name = str(file).replace("\n", r"\x0a")
    errors.print(f"{name}: {message}", highlight=False)


def fail(message: str) -> NoReturn:
    """Tell what went wrong and what to do, and exit with status 1."""
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


def until_stopped(work: Coroutine[Any, Any, T], stopped: str) -> T:
    """Run work to its end; Ctrl-C, SIGTERM and a terminal that is closed end it in order.

    Args:
        work: What is cancelled then.
        stopped: What is said then.
    """

    async def run() -> T:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
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
    """Say which of afa's extras to install where a package of it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: install afa[{extra}]")


def reason(error: Exception) -> str:
    """Say in one line what went wrong; operators hear the cause, which customers are not told."""
    told = error.message if isinstance(error, AfaError) else str(error)
    if isinstance(error, ServiceUnavailableError) and error.__cause__ is not None:
        cause = SOURCE_LINE.sub("", str(error.__cause__).partition("\n")[0])
        return f"{told} ({cause})" if cause else told
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return told


def check_settings() -> None:
    """Tell which setting of the environment is not as it must be, before a command reads them."""
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
    """Fail where root would leave files in the data folder that its service could not read.

    The service runs as whoever started it there first, before that as the folder's owner.
    """
    data_dir = Settings().data_dir.absolute()
    if os.geteuid() != 0 or not data_dir.is_dir():
        return
    lock = LocalFiles(data_dir).lock_path
    owner = (lock if lock.exists() else data_dir).stat().st_uid
    if owner == 0:
        return
    # On a file system that knows no root what is written is the owner's, or cannot be written.
    with suppress(OSError), tempfile.TemporaryFile(dir=data_dir) as probe:
        if os.fstat(probe.fileno()).st_uid != owner:
            fail(
                f"{data_dir} belongs to {named_user(owner)}, whose service could not read what "
                "root writes there: run this as that user (`sudo -u USER …`), or make the folder "
                "root's"
            )


def named_user(uid: int) -> str:
    """Return a user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def in_closed_folder() -> Iterator[None]:
    """Tell a user who may not enter the data folder, which is closed to all but its owner."""
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


def profile_of(config: Path | None) -> AppArgs:
    """Return what the Serve file says; what comes with afa where none is given."""
    with told(ProfileError):
        return AppArgs() if config is None else read_profile(config)


def tell_to_publish() -> None:
    """Say, where the service reads what is published, that nothing has changed for it yet."""
    if Settings().shared is not None:
        console.print("AFA_SHARED is set: `afa catalog publish` gives this to the service")


def is_url(text: str) -> bool:
    """Whether an argument is a web address rather than a path."""
    return text.startswith(("http://", "https://"))


def writable(path: Path | None) -> Path | None:
    """Refuse a file that could not be written, before any work is done for it."""
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
    """As `writable`, of what a whole file takes the place of: no pipe and no device."""
    path = writable(path)
    if path is not None and is_device(path):
        fail(f"cannot write {path}: name a file, which takes its place when it is whole")
    return path


def written(path: Path | None) -> Path | None:
    """As `writable`, of what is written in place; ``-`` is standard output."""
    return Path("/dev/stdout") if path == Path("-") else writable(path)


def is_device(path: Path) -> bool:
    """Return whether a path is a pipe, a device or a link among the devices, as ``/dev/stdout``."""
    return path.exists() and (not path.is_file() or path.absolute().is_relative_to("/dev"))
