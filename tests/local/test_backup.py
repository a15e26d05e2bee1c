"""A backup of a busy installation restores the state of one moment."""

import asyncio
import hashlib
import json
import random
import shutil
import stat
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from configs.settings import Settings
from serve_app.composition.stores import Stores
from serve_app.domain.credits import AccountPayer
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.archive.restore import verify
from serve_app.ledger.jobs.types import JobState, ObjectSource
from serve_app.library import dataset
from serve_app.library.edit import Edit, removed
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR
from serve_app.local.backup.library import pin
from serve_app.local.backup.restore import restore_backup
from serve_app.local.backup.take import take_backup
from tests.library.library_setting import adding, heard, track
from tests.local.installation import (
    BUSY,
    QUIET,
    RESULT,
    Installation,
    Kept,
    check_library,
    check_quiet,
    finish,
    furnish,
    furnish_library,
    keep_asset,
    quiet,
    submit,
)

pytestmark = [pytest.mark.redis, pytest.mark.timeout(900)]


REST_LIMIT_S = 120.0
"""Long enough for the leases of the workers at the moment of the backup to expire."""


@dataclass
class Load:
    """Customers and a worker, busy until they are told to stop; they record when things happened.

    Attributes:
        spent: For each hold, the owner, the cost, and the seconds between which it was charged.
        jobs: For each job, the owner and the second in which it was acknowledged.
        assets: For each asset, the owner, the digest and the second in which it was acknowledged.
        tracks: For each track, the second in which it was acknowledged.
    """

    stores: Stores
    spent: dict[str, tuple[str, int, float, float]] = field(default_factory=dict)
    jobs: dict[str, tuple[str, float]] = field(default_factory=dict)
    assets: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    tracks: dict[str, float] = field(default_factory=dict)
    is_over: bool = False

    async def spend(self, owner: str) -> None:
        payer = AccountPayer(owner, "pro")
        while not self.is_over:
            hold_id, cost, began = f"h{new_ulid()}", random.randint(1, 5), time.monotonic()
            await self.stores.ledger.reserve(payer, hold_id, cost)
            await self.stores.ledger.commit(owner, hold_id)
            self.spent[hold_id] = (owner, cost, began, time.monotonic())

    async def upload(self, owner: str) -> None:
        while not self.is_over:
            job_id = await submit(self.stores, owner)
            self.jobs[job_id] = (owner, time.monotonic())
            body = random.randbytes(20_000)
            asset_id = await keep_asset(self.stores, owner, body)
            digest = hashlib.sha256(body).hexdigest()
            self.assets[asset_id] = (owner, digest, time.monotonic())
            await asyncio.sleep(0.02)

    async def work(self) -> None:
        while not self.is_over:
            claim = await self.stores.jobs.claim("worker")
            if claim is None or claim.account == QUIET:
                await asyncio.sleep(0.01)
                continue
            await asyncio.sleep(random.uniform(0, 0.1))
            await finish(self.stores, claim)

    async def scan(self, library: Library) -> None:
        while not self.is_over:
            one = track(f"Song {len(self.tracks)}")
            await asyncio.to_thread(library.write, [adding(one, heard(one.track_id, model="m"))])
            self.tracks[one.track_id] = time.monotonic()

    async def export(self, installation: Installation) -> None:
        exporter = installation.exporter(self.stores)
        while not self.is_over:
            await exporter.export()
            await asyncio.sleep(0.1)

    @asynccontextmanager
    async def going_on(self, installation: Installation) -> AsyncIterator[None]:
        """Keep them busy while the block runs."""
        library = installation.library()
        loops = [
            *(self.spend(owner) for owner in BUSY),
            *(self.upload(owner) for owner in BUSY[:3]),
            *(self.work(), self.work(), self.export(installation), self.scan(library)),
        ]
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            yield
        finally:
            # Not cancelled: a write to the object store that is ending would swallow it.
            self.is_over = True
            await asyncio.gather(*tasks)
            library.close()


async def afa(installation: Installation, *words: str) -> tuple[int, str]:
    """Run a command while this process goes on; return its exit status and its output."""
    process = await asyncio.create_subprocess_exec(
        *installation.command(*words),
        env=installation.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def check_busy(stores: Stores, load: Load, began: float, ended: float) -> dict[str, JobState]:
    """Check that all acknowledged before is there, nothing begun after is, no charge is half."""
    keys, store = stores.ledger_store.keys, stores.ledger_store
    for hold_id, (owner, _, at_first, at_last) in load.spent.items():
        is_there = await store.command("EXISTS", keys.hold(owner, hold_id))
        assert is_there or at_last > began
        assert not is_there or at_first < ended
    states = {}
    for job_id, (owner, told) in load.jobs.items():
        record = await stores.jobs.get(owner, job_id)
        assert record is not None or told > began
        if record is not None:
            assert record.state is not JobState.FAILED
            states[job_id] = record.state
    for asset_id, (owner, digest, told) in load.assets.items():
        asset = await stores.assets.get(owner, asset_id)
        assert asset is not None or told > began
        if asset is not None:
            parts = [chunk async for chunk in stores.objects.read(asset.object_key)]
            assert hashlib.sha256(b"".join(parts)).hexdigest() == digest == asset.sha256
    return states


async def run_rest(stores: Stores, n_open: int) -> tuple[int, int]:
    """Finish jobs, at most ``n_open``; return how many ended and how many had no audio."""
    done = lacking = 0
    deadline = time.monotonic() + REST_LIMIT_S
    while done < n_open and time.monotonic() < deadline:
        await stores.jobs.recover()
        claim = await stores.jobs.claim("successor")
        if claim is None:
            await asyncio.sleep(0.05)
            continue
        assert isinstance(claim.work.source, ObjectSource)
        try:
            await finish(stores, claim)
        except Exception:  # noqa: BLE001  whatever is wrong with its audio
            lacking += 1
            await stores.jobs.fail(claim, "unprocessable_audio", "it is gone")
        done += 1
    return done, lacking


@pytest.mark.slow
async def test_a_backup_under_load_comes_back_as_one_moment(folder: Path) -> None:
    first, second = Installation(folder / "one"), Installation(folder / "two")
    place = folder / "backup"
    first.start()
    try:
        async with first.stores() as stores:
            before, load = await furnish(stores), Load(stores)
            async with load.going_on(first):
                await asyncio.sleep(0.5)
                began = time.monotonic()
                status, said = await afa(first, "backup", str(place))
                ended = time.monotonic()
                assert status == 0, said
                await asyncio.sleep(0.5)
    finally:
        first.kill()
    shutil.rmtree(first.data_dir)
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest["problems"] == []
    assert all(key.startswith("uploads/") for key in manifest["missing"])
    for path in place.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    done = second.afa("restore", str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all invariants hold" in done.stdout
    second.start()
    try:
        async with second.stores() as stores:
            await check_quiet(stores, before)
            states = await check_busy(stores, load, began, ended)
            assert JobState.COMPLETE in states.values()
            n_open = sum(not state.is_terminal for state in states.values())
            n_done, n_lacking = await run_rest(stores, n_open + 1)
            assert (n_done, n_lacking) == (n_open + 1, len(manifest["missing"]))
            assert await stores.jobs.claim("successor") is None
            waiting = await stores.jobs.get(QUIET, before.waiting_job)
            assert waiting is not None
            assert (waiting.state, waiting.result) == (JobState.COMPLETE, RESULT)
            exporter = second.exporter(stores)
            await exporter.export()
        assert (await verify(second.journal)).problems == []
    finally:
        second.kill()
    library = second.library()
    for track_id, told in load.tracks.items():
        assert library.whole(track_id) is not None or told > began
    assert 0 < library.count([OPERATOR]) == manifest["counts"]["tracks"]
    library.close()


@pytest.mark.parametrize("name", ["my música", "a#1", "100%25"])
def test_a_library_is_kept_in_a_folder_of_any_name(folder: Path, name: str) -> None:
    installation = Installation(folder / name / "one")
    library = installation.library()
    furnish_library(library)
    pinned = asyncio.run(pin(installation.files.library_url(Settings())))
    library.close()
    assert pinned.n_tracks == 1
    assert all((installation.data_dir / "library" / key).is_file() for key in pinned.keys)
    tags = installation.data_dir / "library" / "tracks.lance" / "_refs" / "tags"
    assert [tag.name for tag in tags.iterdir()] == ["backup.json"]
    assert [place.name for place in folder.iterdir()] == [name]


async def test_the_library_is_copied_as_it_was_while_others_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation, place = Installation(folder / "one"), folder / "copy"
    library = installation.library()
    kept = furnish_library(library)
    url = installation.files.library_url(Settings())
    pinned = await pin(url)
    monkeypatch.setattr(dataset, "KEPT_VERSIONS", timedelta(0))
    for number in range(dataset.SMALL_FRAGMENTS):
        library.write([adding(track(f"Song {number}"), heard(str(number), model="n"))])
    library.write([Edit(kept, removed)])
    library.maintain()
    assert (pinned.n_tracks, library.count([OPERATOR])) == (1, dataset.SMALL_FRAGMENTS)
    for key in pinned.keys:
        (place / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "one" / "library" / key, place / key)
    copy = Library(place.as_uri(), folder / "view")
    copy.follow()
    check_library(copy, kept)
    library.close()
    copy.close()


async def test_what_the_archive_has_of_the_time_since_comes_back_too(
    folder: Path, place: str, kept: Kept
) -> None:
    settings = kept.settings(kept.installation.data_dir)
    manifest = await take_backup(settings, place, quiet)
    counts = manifest.counts
    assert (counts.accounts, counts.jobs, counts.tracks, manifest.missing) == (7, 2, 1, [])
    kept.installation.start()
    async with kept.installation.stores() as stores:
        await stores.ledger.reserve(AccountPayer("busy0", "pro"), "later", 100)
        await stores.ledger.commit("busy0", "later", 60)
        await stores.ledger.topup("busy1", "pay:2", 500)
        await stores.ledger.reserve(AccountPayer("busy2", "pro"), "still-open", 30)
        await kept.installation.exporter(stores).export()
        await stores.ledger.topup("busy1", "pay:3", 999)  # neither in the backup nor in the archive
    kept.installation.kill()
    second = Installation(folder / "two", kept.installation.settings)
    done = await restore_backup(kept.settings(second.data_dir), place, quiet)
    assert {one.account: one.outcome for one in done.reconciled} == {
        f"busy{number}": "exact" for number in range(3)
    }
    assert done.audit.is_clean
    second.start()
    async with second.stores() as stores:
        balances = [await stores.ledger.balance(f"busy{number}") for number in range(3)]
        assert [one.remaining for one in balances] == [59_940, 60_500, 59_970]
        assert balances[2].held == 30
        await check_quiet(stores, kept.before)
        await second.exporter(stores).export()
    assert (await verify(second.journal)).problems == []
    second.kill()
    library = second.library()
    check_library(library, kept.track)
    library.close()
