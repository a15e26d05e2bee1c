"""Back up an installation as it is at one moment, while it runs.

Invariant: the moment is that of Redis's own snapshot, and everything else follows from it. Objects
never change under their names and are copied before the moment and after it: what the snapshot
names is in the backup, unless its job has ended since. The archive is copied as far as the snapshot
knows it, and the library in the versions that are the newest right after the snapshot.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from obstore.exceptions import BaseError

from configs.settings import Settings
from serve_app.composition.files import LocalFiles, NotRunningError
from serve_app.domain.objects import ObjectNotFoundError
from serve_app.ledger.archive.export import states, until_marks
from serve_app.ledger.archive.segments import Archive
from serve_app.local import embedded_redis
from serve_app.local.backup.contents import contents_of, loaded, snapshot_path
from serve_app.local.backup.library import pin
from serve_app.local.backup.manifest import (
    FORMAT,
    JOURNAL,
    LEDGER,
    LIBRARY,
    MANIFEST,
    OBJECTS,
    SECRETS,
    BackupError,
    Manifest,
    Part,
    Say,
    Secrets,
)
from serve_app.store.client import Store, connect
from serve_app.store.keys import SHARDS_KEY
from serve_app.store.objects import ObjectStore
from serve_app.store.snapshot import Snapshot, open_snapshot

AT_ONCE = 8
READ_BYTES = 1 << 20
TIMEOUT_S = 60.0
SECRET_SETTINGS = frozenset({"key_pepper", "redis_url", "cache_url", "providers", "recognisers"})


class Parts:
    """Writes the parts of a backup, and can delete them if it is not finished."""

    def __init__(self, target: ObjectStore, say: Say) -> None:
        self._target = target
        self._say = say
        self.written: dict[str, Part] = {}

    async def put(self, name: str, chunks: AsyncIterator[bytes]) -> None:
        """Write one part."""
        stored = await self._target.put_stream(name, chunks)
        self.written[name] = Part(size_bytes=stored.size_bytes, sha256=stored.sha256)

    async def put_whole(self, name: str, content: bytes) -> None:
        """Write a small part."""
        await self.put(name, _whole(content))

    async def copy(self, source: ObjectStore, folder: str, keys: Collection[str]) -> None:
        """Copy objects that are not here yet; those that are deleted meanwhile are left out."""
        new = self.lacking(folder, keys)
        for start in range(0, len(new), AT_ONCE):
            self._say(f"copying {folder[:-1]}: {start} of {len(new)}")
            some = new[start : start + AT_ONCE]
            await asyncio.gather(*(self._copy(source, folder, key) for key in some))

    def lacking(self, folder: str, keys: Collection[str]) -> list[str]:
        """Return the keys that are not here."""
        return [key for key in keys if folder + key not in self.written]

    async def _copy(self, source: ObjectStore, folder: str, key: str) -> None:
        try:
            await self.put(folder + key, source.read(key))
        except ObjectNotFoundError:
            return

    async def remove(self) -> None:
        """Delete what was written."""
        keys = [info.key async for info in self._target.scan()]
        for key in keys:
            await self._target.delete(key)


async def take_backup(settings: Settings, place: str, say: Say) -> Manifest:
    """Back up the installation that the settings describe.

    Args:
        settings: Where everything is.
        place: URL of an empty folder or prefix.
        say: Receives progress messages.

    Raises:
        BackupError: It cannot be done; nothing is left at ``place``.
        SnapshotError: Redis provides no snapshot.
        NotRunningError: There is no installation.
    """
    files = LocalFiles(settings.data_dir.absolute())
    secrets = secrets_of(settings, files)
    try:
        target = ObjectStore(place)
        async for info in target.scan():
            raise BackupError(f"{place} is not empty ({info.key}): give each backup its own place")
        parts = Parts(target, say)
        with ledger_of(settings, files) as url:
            try:
                return await _take(settings, files, secrets, url, parts)
            except BaseException:
                say("removing what was written")
                await parts.remove()
                raise
    except BaseError as error:
        raise BackupError(f"{place}: {str(error).partition(chr(10))[0]}") from error


async def _take(
    settings: Settings, files: LocalFiles, secrets: Secrets, url: str, parts: Parts
) -> Manifest:
    objects = ObjectStore(files.object_store_url(settings))
    library = files.library_url(settings)
    with TemporaryDirectory(prefix="afa-") as scratch:
        folder = Path(scratch)
        await parts.copy(objects, OBJECTS, [info.key async for info in objects.scan()])
        async with open_snapshot(url) as snapshot:
            taken_at = datetime.now(UTC)
            saving = asyncio.create_task(_save(snapshot, snapshot_path(folder)))
            try:
                tracks = await pin(library)
                await parts.copy(objects, OBJECTS, [info.key async for info in objects.scan()])
                await saving
            finally:
                saving.cancel()
        await parts.put(LEDGER, _content(snapshot_path(folder)))
        await parts.copy(ObjectStore(library), LIBRARY, tracks.keys)
        for key in parts.lacking(LIBRARY, tracks.keys):
            raise BackupError(f"{key} of the library went: let one backup end before the next")
        with loaded(folder) as at_that_moment:
            store = await connect_as_written(at_that_moment, settings.ledger_shards)
            try:
                contents = await contents_of(store)
                await _copy_archive(files.journal_store_url(settings), store, parts)
            finally:
                await store.close()
    await parts.put_whole(SECRETS, secrets.model_dump_json().encode())
    told = settings.model_dump(mode="json", exclude_defaults=True, exclude={"data_dir"})
    manifest = Manifest(
        format=FORMAT,
        afa=version("afa"),
        taken_at=taken_at,
        ledger_format=contents.ledger_format,
        shards=store.keys.shards,
        settings={k: json.dumps(v) for k, v in told.items() if k not in SECRET_SETTINGS},
        secret_settings=sorted(told.keys() & SECRET_SETTINGS),
        counts=contents.counts.model_copy(update={"tracks": tracks.n_tracks}),
        missing=sorted(parts.lacking(OBJECTS, contents.objects)),
        problems=contents.problems,
        parts=dict(parts.written),
    )
    await parts.put_whole(MANIFEST, manifest.model_dump_json(indent=1).encode())
    return manifest


async def _copy_archive(place: str, store: Store, parts: Parts) -> None:
    """Copy the segments that the ledger knows as exported."""
    known = await Archive(place).segments()
    tags = [store.keys.shard_tag(shard) for shard in range(store.keys.shards)]
    keys = []
    for tag, (_, marks) in zip(tags, await states(store, tags), strict=True):
        keys += [segment.key for segment in until_marks(known.get(tag[1:-1], []), marks)]
    await parts.copy(ObjectStore(place), JOURNAL, keys)


async def connect_as_written(url: str, shards: int) -> Store:
    """Connect with the number of shards that the ledger was written with."""
    store = connect(url, shards=shards, timeout_s=TIMEOUT_S)
    written = await store.command("GET", SHARDS_KEY)
    if written is None or int(written) == shards:
        return store
    await store.close()
    return connect(url, shards=int(written), timeout_s=TIMEOUT_S)


def secrets_of(settings: Settings, files: LocalFiles) -> Secrets:
    """Read the secrets of an installation.

    Raises:
        NotRunningError: Nothing was ever started here.
    """
    if settings.key_pepper is None and not (files.data_dir / "pepper").exists():
        raise NotRunningError(
            f"there is no installation in {files.data_dir}: set AFA_DATA_DIR to its folder"
        )
    keys = files.data_dir / "keys.json"
    return Secrets(
        pepper=files.key_pepper(settings),
        keys=json.loads(keys.read_text(encoding="utf-8")) if keys.exists() else {},
    )


@contextmanager
def ledger_of(settings: Settings, files: LocalFiles) -> Iterator[str]:
    """Yield the ledger's address; an embedded Redis that is stopped runs during the block.

    Raises:
        NotRunningError: There is no ledger.
    """
    if settings.redis_url is not None:
        yield settings.redis_url
        return
    files.ledger_url(settings)
    server = embedded_redis.start(files.data_dir)
    try:
        yield server.url
    finally:
        if server.is_new:
            server.stop()


async def _save(snapshot: Snapshot, path: Path) -> None:
    with path.open("wb") as file:
        async for chunk in snapshot.chunks:
            await asyncio.to_thread(file.write, chunk)


async def _content(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, READ_BYTES):
            yield chunk


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
