"""An installation without its Ray: a data folder, a Redis in it, and the stores on both."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from configs.settings import Settings
from serve_app.composition.files import LocalFiles, make_private, write_private
from serve_app.composition.options import StoreOptions
from serve_app.composition.stores import Stores, open_stores
from serve_app.domain.assets import NewAsset, asset_object_key
from serve_app.domain.credits import AccountPayer
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.jobs.types import AnalysisJob, Claim, JobState, NewJob, ObjectSource
from serve_app.library.edit import Edit, removed
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR
from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedis, is_alive
from tests.library.library_setting import adding, heard, track

REPOSITORY = Path(__file__).parents[2]
QUIET, BUSY = "quiet", [f"busy{number}" for number in range(6)]
RESULT = b'{"tempo": 120}'


@dataclass
class Installation:
    """A folder as `afa up` prepares it, as far as it is kept."""

    data_dir: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    server: LocalRedis | None = None

    @property
    def files(self) -> LocalFiles:
        return LocalFiles(self.data_dir)

    @property
    def journal(self) -> Archive:
        place = self.settings.get("AFA_JOURNAL_STORE") or str(self.data_dir / "journal")
        return Archive(Path(place).as_uri())

    def start(self) -> None:
        """Start Redis, as the service does."""
        make_private(self.data_dir)
        self.server = embedded_redis.start(self.data_dir)
        write_private(self.data_dir / "redis.url", self.server.url)
        self.files.key_pepper(Settings())

    def kill(self) -> None:
        """Kill Redis."""
        assert self.server is not None
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()
        assert not is_alive(self.server.pid)

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[Stores]:
        """Open the stores as a replica does."""
        assert self.server is not None
        opened = open_stores(
            StoreOptions(
                ledger_url=self.server.url,
                cache_url=self.server.url,
                object_store=(self.data_dir / "objects").as_uri(),
                key_pepper=self.files.key_pepper(Settings()),
            ),
            in_background=True,
        )
        try:
            await opened.ledger_store.claim_shards()
            yield opened
        finally:
            await opened.close()

    def library(self) -> Library:
        """Open the library as a replica does."""
        found = Library(self.files.library_url(Settings()), self.files.library_view_dir)
        found.follow()
        return found

    def exporter(self, stores: Stores) -> Exporter:
        return Exporter(stores.ledger_store, self.journal)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", "from serve_app.cli.main import main; main()", *words]

    def environment(self) -> dict[str, str]:
        own = {"AFA_DATA_DIR": str(self.data_dir), "COLUMNS": "400"} | dict(self.settings)
        return os.environ | {"PYTHONPATH": str(REPOSITORY)} | own

    def afa(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run an `afa` command on it."""
        return subprocess.run(
            self.command(*words),
            env=self.environment(),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )


async def whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def keep_asset(stores: Stores, owner: str, body: bytes) -> str:
    """Do what an asset upload does, without checking the audio."""
    asset_id = f"afa_{new_ulid()}"
    stored = await stores.objects.put_stream(asset_object_key(owner, asset_id), whole(body))
    new = NewAsset(asset_id, owner, stored.sha256, stored.size_bytes, "audio/wav", 86_400, 10**9)
    return (await stores.assets.put(new)).asset_id


async def submit(stores: Stores, owner: str) -> str:
    """Do what an upload does."""
    job_id, key = f"job_{new_ulid()}", f"uploads/{new_ulid()}"
    await stores.objects.put_stream(key, whole(random.randbytes(2000)))
    work = AnalysisJob(ObjectSource(key), max_audio_s=60, max_bytes=10**6)
    await stores.jobs.submit(NewJob(job_id, owner, "pro", work, 10))
    return job_id


async def finish(stores: Stores, claim: Claim) -> None:
    """Do what a worker does once it has the result."""
    assert isinstance(claim.work.source, ObjectSource)
    async with stores.objects.at_hand(claim.work.source.key) as path:
        assert path.stat().st_size == 2000
    assert await stores.jobs.finish(claim, RESULT)
    await stores.objects.delete(claim.work.source.key)


@dataclass(frozen=True)
class Before:
    """What nobody changes while the backup is made."""

    key: str
    secret: str
    done_job: str
    waiting_job: str
    asset: str


async def furnish(stores: Stores) -> Before:
    """Give the quiet account some of everything."""
    for owner in BUSY:
        await stores.accounts.issue(owner, "pro")
    key = (await stores.accounts.issue(QUIET, "pro")).key
    secret = (await stores.webhooks.register(QUIET, "https://example.com/hook")).secret
    await stores.ledger.topup(QUIET, "pay:1", 1234)
    await stores.ledger.reserve(AccountPayer(QUIET, "pro"), "open", 77, ttl_s=3600)
    done = await submit(stores, QUIET)
    claim = await stores.jobs.claim("worker")
    assert claim is not None
    await finish(stores, claim)
    asset = await keep_asset(stores, QUIET, b"sound" * 1000)
    return Before(key, secret, done, await submit(stores, QUIET), asset)


def furnish_library(library: Library) -> str:
    """Add one track that stays and one that is removed; return the id of the first."""
    kept, gone = track("Kept"), track("Gone")
    library.write([adding(one, heard(one.track_id, model="m")) for one in (kept, gone)])
    library.write([Edit(gone.track_id, removed)])
    return kept.track_id


def check_library(library: Library, kept: str) -> None:
    """Check that only the track that stayed is there, with its complete analysis."""
    assert library.count([OPERATOR]) == 1
    whole = library.whole(kept)
    assert whole is not None
    assert library.vectors("m").get([kept])[kept] == pytest.approx(heard(kept).features.embedding)


async def check_quiet(stores: Stores, before: Before) -> None:
    """Check that the quiet account is as it was and still works."""
    caller = await stores.accounts.authenticate(before.key)
    assert caller is not None
    assert (caller.owner, caller.tier) == (QUIET, "pro")
    hook = await stores.webhooks.get(QUIET)
    assert hook is not None
    assert hook.secret == before.secret
    balance = await stores.ledger.balance(QUIET)
    assert (balance.grant, balance.packs, balance.held) == (60_000 - 10 - 10 - 77, 1234, 87)
    assert (await stores.ledger.commit(QUIET, "open", 70)).held == 10
    done = await stores.jobs.get(QUIET, before.done_job)
    assert done is not None
    assert (done.state, done.result) == (JobState.COMPLETE, RESULT)
    asset = await stores.assets.get(QUIET, before.asset)
    assert asset is not None
    body = b"".join([chunk async for chunk in stores.objects.read(asset.object_key)])
    assert body == b"sound" * 1000


@dataclass(frozen=True)
class Kept:
    """An installation at rest, what its quiet account had, and the id of its library's track."""

    installation: Installation
    before: Before
    track: str

    def settings(self, data_dir: Path) -> Settings:
        return Settings(data_dir=data_dir, **self.places())

    def places(self) -> dict[str, str]:
        return {"journal_store": self.installation.settings["AFA_JOURNAL_STORE"]}


def quiet(_: str) -> None:
    """Say nothing."""
