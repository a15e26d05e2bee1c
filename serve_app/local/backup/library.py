"""A library as it is at one moment: the files of one version of each of its datasets.

Invariant: a track in them refers only to analyses and vectors that are in them too. Files never
change under their names, and those of a pinned version stay when old versions are removed.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from serve_app.library.place import LibraryPlace
from serve_app.local.backup.manifest import BackupError
from serve_app.store.objects import ObjectStore

if TYPE_CHECKING:
    import lance

TRACKS = "tracks"
TAG = "backup"
"""Tag that keeps the versions of the newest backup."""

ATTEMPTS = 100
SUFFIX = ".lance/"


@dataclass(frozen=True, slots=True)
class LibraryFiles:
    """The files of a complete library; ``keys`` are below its place."""

    n_tracks: int
    keys: list[str]


async def pin(url: str) -> LibraryFiles:
    """Return the files of a library as it is now, and keep them until the next call.

    Args:
        url: See `LibraryPlace.parse`. If there is no library, there are no files.

    Raises:
        BackupError: Tracks were being removed at every attempt.
    """
    objects = ObjectStore(url)
    if TRACKS not in await _names(objects):
        return LibraryFiles(0, [])
    with TemporaryDirectory(prefix="afa-") as folder:
        return await _pin(objects, _by_plain_path(LibraryPlace.parse(url), Path(folder)))


def _by_plain_path(place: LibraryPlace, folder: Path) -> LibraryPlace:
    """Return a library by a path without spaces, signs and non-ASCII letters.

    For any other path, Lance makes the folder of tags next to it, with a percent-encoded name, and
    fails if it may not make one there.
    """
    if place.folder is None:
        return place
    link = folder / "library"
    link.symlink_to(place.folder)
    return LibraryPlace(str(link))


async def _pin(objects: ObjectStore, place: LibraryPlace) -> LibraryFiles:
    for _ in range(ATTEMPTS):
        # An analysis is stored before its track refers to it, and removed after the track: if no
        # track is removed while the others are opened, these have all that the tracks refer to.
        tracks = await asyncio.to_thread(_open, place, TRACKS)
        names = await _names(objects) - {TRACKS}
        datasets = {name: await asyncio.to_thread(_open, place, name) for name in sorted(names)}
        again = await asyncio.to_thread(_open, place, TRACKS)
        if await asyncio.to_thread(_n_removed, again) == await asyncio.to_thread(
            _n_removed, tracks
        ):
            datasets[TRACKS] = tracks
            keys = [await asyncio.to_thread(_keep, *pair) for pair in datasets.items()]
            n_tracks = tracks.count_rows() - _n_removed(tracks)
            return LibraryFiles(n_tracks, [key for some in keys for key in some])
    raise BackupError("tracks are removed all the time: back up when the library is at rest")


async def _names(objects: ObjectStore) -> set[str]:
    keys = [info.key async for info in objects.scan()]
    return {key.partition(SUFFIX)[0] for key in keys if SUFFIX in key}


def _open(place: LibraryPlace, name: str) -> "lance.LanceDataset":
    import lance

    return lance.dataset(place.dataset(name), storage_options=dict(place.options) or None)


def _n_removed(tracks: "lance.LanceDataset") -> int:
    return int(tracks.count_rows("record IS NULL"))


def _keep(name: str, dataset: "lance.LanceDataset") -> list[str]:
    tag = dataset.tags.update if TAG in dataset.tags.list() else dataset.tags.create
    tag(TAG, dataset.version)
    files = dataset.tracked_files(min_version=dataset.version).read_all().to_pylist()
    return [f"{name}{SUFFIX}{file['path']}" for file in files if file["version"] == dataset.version]
