"""Restore an installation from a backup into an empty place.

Invariant: nothing is written before the backup and the place are checked; until the last step is
done, the ledger is marked as half restored, and no afa process accepts it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from obstore.exceptions import BaseError
from redis.exceptions import ResponseError

from configs.settings import Settings
from serve_app.composition.files import LocalFiles, make_private, write_private
from serve_app.domain.credits import AuditReport
from serve_app.ledger.archive.reconcile import Reconciled, Reconciler
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import Journal
from serve_app.local import embedded_redis
from serve_app.local.backup.contents import loaded, snapshot_path
from serve_app.local.backup.manifest import (
    JOURNAL,
    LEDGER,
    LIBRARY,
    OBJECTS,
    BackupError,
    Manifest,
    Say,
    Secrets,
    check_parts,
    digest_of,
    read_manifest,
    read_secrets,
)
from serve_app.local.backup.take import TIMEOUT_S
from serve_app.local.embedded_redis import is_alive
from serve_app.store.client import Store, connect
from serve_app.store.keys import FORMAT_KEY, HALF_RESTORED
from serve_app.store.objects import ObjectStore

KEYS_AT_ONCE = 500
PROBLEMS_TOLD = 5
FOREVER = -1
"""What ``PTTL`` returns for a key without time to live; for a deleted key it is -2."""


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """What was restored from a backup.

    Attributes:
        audit: Audit of the ledger as it is now.
        reconciled: What the archive added from the time after the backup, by account.
    """

    manifest: Manifest
    audit: AuditReport
    reconciled: list[Reconciled]


@dataclass(frozen=True, slots=True)
class Copies:
    """The objects of one kind that must be written."""

    source: ObjectStore
    folder: str
    target: ObjectStore
    keys: list[str]

    async def write(self, say: Say) -> None:
        """Write them."""
        for number, key in enumerate(self.keys, 1):
            say(f"restoring {self.folder[:-1]}: {number} of {len(self.keys)}")
            await self.target.put_stream(key, self.source.read(self.folder + key))


async def restore_backup(settings: Settings, place: str, say: Say) -> BroughtBack:
    """Restore a backup into the installation that the settings describe.

    Args:
        settings: Where everything goes.
        place: URL of the backup.
        say: Receives progress messages.

    Raises:
        BackupError: The backup is incomplete, or the place is not empty; nothing was written. Or
            the ledger did not pass its audit.
    """
    files = LocalFiles(settings.data_dir.absolute())
    try:
        source = ObjectStore(place)
        manifest = await read_manifest(source)
        await check_parts(source, manifest, say)
        secrets = await read_secrets(source)
        refuse_unless_free(settings, files, manifest, secrets)
        journal = files.journal_store_url(settings)
        copies = [
            await _to_write(source, OBJECTS, manifest, files.object_store_url(settings)),
            await _to_write(source, JOURNAL, manifest, journal),
            await _to_write(source, LIBRARY, manifest, files.library_url(settings)),
        ]
        with TemporaryDirectory(prefix="afa-") as scratch, _target(settings, files) as url:
            await Copies(source, "", ObjectStore(Path(scratch).as_uri()), [LEDGER]).write(say)
            (Path(scratch) / LEDGER).rename(snapshot_path(Path(scratch)))
            store = connect(url, shards=manifest.shards, timeout_s=TIMEOUT_S)
            try:
                await _begin(store)
                _write_secrets(files, settings, secrets)
                for copy in copies:
                    await copy.write(say)
                with loaded(Path(scratch)) as at_that_moment:
                    await _copy_keys(at_that_moment, store, say)
                say("looking for what the archive knows of the time since")
                reconciled = await Reconciler(store, Archive(journal)).reconcile()
                say("auditing the ledger")
                audit = await Journal(store).audit()
                _refuse_unless_clean(audit)
                await store.command("SET", FORMAT_KEY, manifest.ledger_format)
            finally:
                await store.close()
    except BaseError as error:
        raise BackupError(str(error).partition("\n")[0]) from error
    except ResponseError as error:
        raise BackupError(
            f"Redis did not take the ledger: {error}; it must be of the version that the backup "
            "was taken from, or a later one"
        ) from error
    return BroughtBack(manifest, audit, reconciled)


def refuse_unless_free(
    settings: Settings, files: LocalFiles, manifest: Manifest, secrets: Secrets
) -> None:
    """Raise a BackupError unless the installation's place is free and fits the backup."""
    session = files.read_session()
    if session is not None and is_alive(session["pids"]["service"]):
        raise BackupError(f"a service runs in {files.data_dir}: end it with `afa down`")
    if settings.redis_url is None and (files.data_dir / "redis-ledger").exists():
        raise BackupError(
            f"there is a ledger in {files.data_dir} already: set AFA_DATA_DIR to a new folder"
        )
    has_pepper = settings.key_pepper is not None or (files.data_dir / "pepper").exists()
    if has_pepper and files.key_pepper(settings) != secrets.pepper:
        raise BackupError(
            "AFA_KEY_PEPPER, or the file `pepper` in the data folder, is another than the "
            "backup's: with it no API key would work; unset it"
        )
    if settings.ledger_shards != manifest.shards:
        raise BackupError(
            f"this ledger has {manifest.shards} shards: set AFA_LEDGER_SHARDS={manifest.shards}"
        )


@contextmanager
def _target(settings: Settings, files: LocalFiles) -> Iterator[str]:
    """Yield the address of the Redis to restore into; an embedded one runs during the block."""
    make_private(files.data_dir)
    server = embedded_redis.start(files.data_dir, url=settings.redis_url)
    try:
        write_private(files.data_dir / "redis.url", server.url)
        yield server.url
    finally:
        if server.is_new:
            server.stop()


async def _begin(store: Store) -> None:
    n_keys = int(await store.command("DBSIZE"))
    if n_keys:
        raise BackupError(
            f"this Redis is not empty, it has {n_keys} keys: restore into an empty one"
        )
    await store.command("SET", FORMAT_KEY, HALF_RESTORED)


async def _to_write(source: ObjectStore, folder: str, manifest: Manifest, place: str) -> Copies:
    """Return what is not there yet; an object store or archive that survived is kept.

    Raises:
        BackupError: Something else is there, an archive has gaps, or there is a library.
    """
    target, wanted = ObjectStore(place), manifest.named(folder)
    there = {info.key async for info in target.scan()}
    if folder == LIBRARY and wanted and there:
        raise BackupError(
            f"there is a library in {place} already: give AFA_LIBRARY an empty place; one that "
            "survived may be named again afterwards"
        )
    for key in there & wanted.keys():
        if await digest_of(target, key) != wanted[key].sha256:
            raise BackupError(f"{place} has another {key} than the backup: give it an empty place")
    absent = sorted(wanted.keys() - there)
    if folder == JOURNAL and there and absent:
        raise BackupError(f"the archive in {place} lacks {absent[0]}: give it an empty place")
    return Copies(source, folder, target, absent)


def _write_secrets(files: LocalFiles, settings: Settings, secrets: Secrets) -> None:
    if settings.key_pepper is None:
        write_private(files.data_dir / "pepper", secrets.pepper)
    if secrets.keys:
        write_private(files.data_dir / "keys.json", json.dumps(secrets.keys))


async def _copy_keys(url: str, target: Store, say: Say) -> None:
    """Copy all keys with their times to live, except the format."""
    source = connect(url, timeout_s=TIMEOUT_S)
    try:
        n_keys, n_copied, cursor = int(await source.command("DBSIZE")), 0, 0
        while True:
            say(f"restoring the ledger: {n_copied} of {n_keys} keys")
            cursor, names = await source.command("SCAN", cursor, "COUNT", KEYS_AT_ONCE)
            keys = [name for name in names if name != FORMAT_KEY.encode()]
            rows = await source.batch(
                [command for key in keys for command in (("DUMP", key), ("PTTL", key))]
            )
            now_ms = await source.now_ms()
            await target.batch(
                [
                    ("RESTORE", key, now_ms + left if left > 0 else 0, dump, "REPLACE", "ABSTTL")
                    for key, dump, left in zip(keys, rows[::2], rows[1::2], strict=True)
                    if dump is not None and (left > 0 or left == FOREVER)
                ]
            )
            n_copied += len(keys)
            if not int(cursor):
                return
    finally:
        await source.close()


def _refuse_unless_clean(audit: AuditReport) -> None:
    if not audit.is_clean:
        told = "; ".join(f"{m.account}: {m.rule}" for m in audit.mismatches[:PROBLEMS_TOLD])
        raise BackupError(f"the restored ledger does not pass its audit ({told}); it stays marked")
