"""`afa backup` and `afa restore`: save and restore a whole installation."""

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import unquote, urlsplit

import typer

from configs.settings import Settings
from serve_app.cli.environment import console, fail, told, until_stopped
from serve_app.cli.ledger import show_reconciled
from serve_app.composition.files import NotRunningError, make_private
from serve_app.domain.errors import AfaError
from serve_app.local.backup.manifest import BackupError, Say
from serve_app.local.backup.restore import restore_backup
from serve_app.local.backup.take import take_backup
from serve_app.local.embedded_redis import LocalRedisError
from serve_app.store.snapshot import SnapshotError

T = TypeVar("T")

GONE = "stopped; what it had written is gone"
BEGUN = "stopped; take an empty data folder and an empty Redis to begin again"

EXPECTED = (
    *(BackupError, SnapshotError, NotRunningError, LocalRedisError),
    *(AfaError, OSError, ValueError),
)


def backup(
    place: Annotated[
        str, typer.Argument(metavar="DEST", help="A new folder, or s3://bucket/prefix.")
    ],
) -> None:
    """Back up credits, jobs, API keys, webhooks, audio, library and archive as of one moment.

    The service keeps running. The backup holds the secret that API keys are derived with, and the
    local service's own keys. A folder is closed to other users; you must keep a bucket private.
    Left out are checkpoints, the catalog, the fingerprint index, and settings that are secrets. A
    backup without manifest.json is unfinished and cannot be restored.
    """
    started, url = time.monotonic(), url_of(place)
    with prepared(url, Settings().data_dir.absolute()):
        done = run(lambda say: take_backup(Settings(), url, say), "backing up", GONE)
    counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in done.counts)
    console.print(f"{counts}, {len(done.parts)} parts")
    if done.missing:
        console.print(
            f"{len(done.missing)} objects that the ledger names were gone, the first is "
            f"{done.missing[0]}: unfinished jobs of them will fail and be refunded",
            style="yellow",
        )
    took = f"{done.size_bytes / 1e6:.1f} MB in {time.monotonic() - started:.1f} s"
    console.print(f"{place} holds {done.taken_at:%Y-%m-%d %H:%M:%S} UTC; {took}", style="green")
    if done.problems:
        fail(f"the ledger itself does not pass its audit: {done.problems[0]}")


def restore(
    place: Annotated[
        str, typer.Argument(metavar="SRC", help="The backup: a folder, or s3://bucket/prefix.")
    ],
) -> None:
    """Restore a backup into the empty data folder and Redis that the settings name.

    Every part is checked before anything is written. An object store or an archive that survived
    may stay where it is; what an archive has from the time after the backup is restored too. At the
    end the ledger is audited. Then start the service.
    """
    started, url = time.monotonic(), url_of(place)
    if url == place or Path(place).is_dir():
        done = run(lambda say: restore_backup(Settings(), url, say), "restoring", BEGUN)
    else:
        fail(f"there is no folder {place}")
    audit = done.audit
    console.print(
        f"{audit.accounts} accounts, {audit.entries} entries, {audit.open_holds} open holds; "
        f"journal = balance, all invariants hold"
    )
    console.print(
        f"restored {done.manifest.taken_at:%Y-%m-%d %H:%M:%S} UTC in "
        f"{time.monotonic() - started:.1f} s",
        style="green",
    )
    for name, value in done.manifest.settings.items():
        console.print(f"the service ran with AFA_{name.upper()}={value}", highlight=False)
    for name in done.manifest.secret_settings:
        console.print(f"the service ran with AFA_{name.upper()}, which is not in the backup")
    if done.reconciled:
        console.print("the archive went on after the backup; brought back:")
        show_reconciled(done.reconciled)


def url_of(place: str) -> str:
    """Return the URL of a folder or prefix."""
    if not place:
        fail("name a folder, or s3://bucket/prefix")
    return place if "://" in place else Path(place).absolute().as_uri()


@contextmanager
def prepared(url: str, data_dir: Path) -> Iterator[None]:
    """Make the folder of a backup, closed to others; a failure leaves no empty folder."""
    if not url.startswith("file:"):
        yield
        return
    folder = Path(unquote(urlsplit(url).path))
    if folder.is_relative_to(data_dir):
        fail(f"{folder} is inside the data folder: name another place, preferably on another disk")
    with told(OSError):
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        is_ours = folder in made or not any(folder.iterdir())
        make_private(folder)
    try:
        yield
    except BaseException:
        inside = sorted(folder.rglob("*"), reverse=True) if is_ours else []
        for path in (*inside, *made):
            with suppress(OSError):  # it is not a folder, or not empty
                path.rmdir()
        raise


def run(work: Callable[[Say], Awaitable[T]], what: str, stopped: str) -> T:
    """Run the work and show its progress; expected errors, and a stop, end the command."""
    os.umask(0o077)  # the files hold secrets and customers' audio
    with (
        told(*EXPECTED),
        console.status(what) as status,
    ):

        async def go() -> T:
            return await work(lambda text: status.update(f"{what}: {text}"))

        return until_stopped(go(), stopped)
