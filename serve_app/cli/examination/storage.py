"""Storage of audio, journal and library, and what is published for all nodes."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from configs.settings import Settings
from serve_app.cli.examination.finding import Finding, attempt, fault
from serve_app.cli.examination.machine import standing
from serve_app.composition.files import LocalFiles, checkpoint_mirror, tracks_mirror
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.store.mirror import Mirror
from serve_app.store.objects import ObjectStore

ADDRESS = (
    "set {} to s3://bucket/prefix, with ?endpoint=https://host&region=name where it is not "
    "Amazon's, or to file:///folder"
)
NOT_MOUNTED = "is it mounted on this machine?"
NO_FOLDER = "make room there, and let afa's user write to it"
NO_BUCKET = "is the bucket there, and are the AWS_* credentials?"


def of_storage(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Check the shared storage, every object store, and what is published."""
    wrong = list(attempt("shared", partial(of_shared, settings), ADDRESS.format("AFA_SHARED")))
    yield from wrong
    for name, setting, place, url in (
        ("objects", "AFA_OBJECT_STORE", settings.object_store, files.object_store_url(settings)),
        ("journal", "AFA_JOURNAL_STORE", settings.journal_store, files.journal_store_url(settings)),
        ("library", "AFA_LIBRARY", settings.library, files.library_url(settings)),
    ):
        is_mounted = settings.redis_url is not None and place is not None and "://" in place
        if place is not None or not wrong:
            look = partial(of_place, name, url, is_mounted=is_mounted)
            yield from attempt(name, look, ADDRESS.format(setting))
    if not wrong:
        yield from of_publications(settings, files)


def of_shared(settings: Settings) -> Iterator[Finding]:
    """Check the storage that every node can reach."""
    if settings.shared is None or (settings.redis_url is None and "://" not in settings.shared):
        return
    folder = folder_of(settings.shared)
    if folder is None:
        ObjectStore(settings.shared)
    elif settings.redis_url is not None and not folder.exists():
        yield fault("shared", f"{settings.shared} is not there", NOT_MOUNTED)


def folder_of(url: str) -> Path | None:
    """Return the folder that an address names, if it is one."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def of_place(name: str, url: str, *, is_mounted: bool) -> Iterator[Finding]:
    """Check one object store.

    Args:
        name: What it keeps.
        url: Address of the store.
        is_mounted: Whether it must already exist for every node; otherwise afa makes a folder.
    """
    place = urlsplit(url)._replace(query="").geturl()
    folder = folder_of(url)
    if folder is not None and not folder.is_dir():
        above = standing(folder)
        if not above.is_dir():
            yield fault(name, f"{above} is not a folder", "name another, or move what is there")
        elif is_mounted:
            yield fault(name, f"{place} is not there", NOT_MOUNTED)
        else:
            yield Finding(name, f"{place} is not there yet")
        return
    try:
        asyncio.run(ObjectStore(url).ping())
    except ServiceUnavailableError as error:
        why = str(error.__cause__).partition("\n")[0]
        yield fault(name, f"{place}: {why}", NO_BUCKET if folder is None else NO_FOLDER)
    else:
        yield Finding(name, f"{place} can be written to")


def of_publications(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Compare what is published for all nodes with what this node has."""
    tracks, checkpoints = files.published_url(settings), files.checkpoints_url(settings)
    if tracks is None or checkpoints is None:
        return
    for make, command in (
        (partial(tracks_mirror, tracks, files.served(settings).data_dir), "catalog"),
        (partial(checkpoint_mirror, checkpoints, settings.resolved_model_dir()), "models"),
    ):
        publish = f"`afa {command} publish`"
        look = partial(of_publication, make, publish)
        yield from attempt("published", look, f"{publish} writes it again")


def of_publication(make: Callable[[], Mirror], publish: str) -> Iterator[Finding]:
    """Compare what one mirror publishes with what is here."""
    try:
        mirror = make()
        published, here = mirror.generations()
    except ServiceUnavailableError:
        return  # reported for the other stores
    if not published:
        yield Finding("published", f"no {mirror.name}", publish)
    elif published == here:
        yield Finding("published", f"{mirror.name}: generation {published}, here too")
    else:
        yield Finding(
            "published",
            f"{mirror.name}: generation {published}; here {here or 'none'}",
            "a node fetches it when its first replica starts, and follows every half minute",
        )
