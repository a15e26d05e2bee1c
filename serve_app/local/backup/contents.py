"""What a snapshot of the ledger Redis holds, found by loading it."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serve_app.domain.assets import asset_object_key
from serve_app.ledger.jobs.types import AnalysisJob, JobState, ObjectSource, SimulatedSource
from serve_app.ledger.journal import Journal
from serve_app.local import embedded_redis
from serve_app.local.backup.manifest import BackupError, Counts
from serve_app.local.embedded_redis import LocalRedisError
from serve_app.store.client import Store
from serve_app.store.keys import FORMAT_KEY

LOAD_LIMIT_S = 3600.0
SCAN_BATCH = 1000
JOB, ASSET, WEBHOOK, API_KEY = "job", "as r", "wh a", "key"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a backup is based on.

    Attributes:
        ledger_format: Format of the data in Redis; release 0.1 did not note it.
        objects: Keys of the audio that jobs and assets name.
        problems: What the audit found.
    """

    ledger_format: int
    counts: Counts
    objects: frozenset[str]
    problems: list[str]


def snapshot_path(folder: Path) -> Path:
    """Return the path below a folder where `loaded` looks for the RDB file."""
    path = folder / "redis-ledger" / "dump.rdb"
    path.parent.mkdir(exist_ok=True)
    return path


@contextmanager
def loaded(folder: Path) -> Iterator[str]:
    """Run a separate server with the snapshot loaded during the block; yield its address.

    Raises:
        BackupError: The snapshot could not be loaded.
    """
    try:
        server = embedded_redis.start(folder, extra=("--appendonly", "no"), limit_s=LOAD_LIMIT_S)
    except LocalRedisError as error:
        log = folder / "redis-ledger" / "redis.log"
        last = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
        raise BackupError(
            f"{embedded_redis.find_binary()} cannot load the snapshot: {' '.join(last) or error}; "
            "have a redis-server of at least the ledger's version on PATH"
        ) from error
    try:
        yield server.url
    finally:
        server.stop()


async def contents_of(store: Store) -> Contents:
    """Count and audit what the store holds, and name the objects.

    Raises:
        BackupError: The ledger was only partly restored.
    """
    try:
        await store.refuse_half_restored()
    except ValueError as error:
        raise BackupError(f"{error} before you back it up") from error
    noted = await store.command("GET", FORMAT_KEY)
    report = await Journal(store).audit()
    found: Counter[str] = Counter()
    objects: set[str] = set()
    cursor = 0
    while True:
        cursor, names = await store.command("SCAN", cursor, "COUNT", SCAN_BATCH)
        keys = [raw.decode() for raw in names]
        found.update(map(kind_of, keys))
        objects.update(asset_object(key) for key in keys if kind_of(key) == ASSET)
        objects |= await _uploads(store, [key for key in keys if kind_of(key) == JOB])
        if not int(cursor):
            break
    counts = Counts(
        accounts=report.accounts,
        entries=report.entries,
        open_holds=report.open_holds,
        api_keys=found[API_KEY],
        webhooks=found[WEBHOOK],
        jobs=found[JOB],
        assets=found[ASSET],
    )
    problems = [f"{m.account}: {m.rule}: {m.detail}" for m in report.mismatches]
    return Contents(int(noted) if noted is not None else 1, counts, frozenset(objects), problems)


def kind_of(key: str) -> str:
    """Return what a key of `serve_app/store/keys.py` holds, as far as a backup needs to know."""
    kind, *rest = key.split(":")
    if kind == JOB:
        return JOB if len(rest) > 2 else ""  # otherwise an index
    return kind if kind == API_KEY else f"{kind} {rest[1] if len(rest) > 1 else ''}"


def asset_object(key: str) -> str:
    """Return the object key of the audio of an asset's record."""
    owner, _, asset_id = key.split(":", 3)[3].rpartition(":")
    return asset_object_key(owner, asset_id)


async def _uploads(store: Store, keys: list[str]) -> set[str]:
    """Return the uploads of those jobs that have not ended."""
    rows = await store.batch([("HMGET", key, "state", "payload") for key in keys])
    sources = [
        AnalysisJob.from_json(json.loads(payload)).source
        for state, payload in rows
        if state is not None and not JobState(state.decode()).is_terminal
    ]
    return {
        source.key for source in sources if isinstance(source, ObjectSource | SimulatedSource)
    } - {""}
