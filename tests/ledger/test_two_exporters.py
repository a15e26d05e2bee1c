"""Two processes export one ledger to one archive and are killed again and again."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from serve_app.domain.credits import AccountPayer
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.restore import verify
from serve_app.ledger.archive.segments import Archive, Segment
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import Store, connect
from tests.store.setting import rich_tiers

pytestmark = [pytest.mark.redis, pytest.mark.timeout(900)]

KILLS = 4


def begin(url: str, archive: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.ledger.exporting", url, archive]
    return subprocess.Popen(command)


async def test_two_exporters_that_are_killed_write_one_chain(
    redis_server: LocalRedis, tmp_path: Path
) -> None:
    store, archive = connect(redis_server.url, timeout_s=30, shards=2), tmp_path.as_uri()
    await store.command("FLUSHALL")
    ledger, journal, is_over = Ledger(store, rich_tiers()), Journal(store), False

    async def use(name: str) -> None:
        number = 0
        while not is_over:
            number += 1
            await ledger.reserve(AccountPayer(name, "pro"), f"h{number}", 3)
            await ledger.commit(name, f"h{number}", 2)

    users = [asyncio.create_task(use(f"owner{number}")) for number in range(4)]
    exporters = [begin(redis_server.url, archive) for _ in range(2)]
    try:
        for _ in range(KILLS):
            await _segments_grow(tmp_path, 20, exporters)
            killed = exporters.pop(0)
            killed.kill()
            killed.wait()
            exporters.append(begin(redis_server.url, archive))
    finally:
        is_over = True
        for exporter in exporters:
            exporter.kill()
            exporter.wait()
    await asyncio.gather(*users)
    await Exporter(store, Archive(archive)).export()
    seen = await verify(Archive(archive))
    report = await journal.audit()
    assert seen.problems == []
    assert (report.mismatches, report.entries) == ((), seen.entries)
    await store.close()


class LateList(Archive):
    """An archive that is listed only after another exporter has exported."""

    other: Exporter

    async def segments(self) -> dict[str, list[Segment]]:
        await self.other.export()
        return await super().segments()


async def test_what_another_exporter_drops_meanwhile_is_not_lost(
    live_store: Store, tmp_path: Path
) -> None:
    ledger, payer = Ledger(live_store, rich_tiers()), AccountPayer("owner", "pro")
    first, late = Exporter(live_store, Archive(tmp_path.as_uri())), LateList(tmp_path.as_uri())
    late.other = Exporter(live_store, Archive(tmp_path.as_uri()))
    await ledger.reserve(payer, "h1", 3)
    await first.export()
    await ledger.commit("owner", "h1", 2)
    assert await Exporter(live_store, late).export() == 0
    assert await first.export() == 0
    assert (await verify(Archive(tmp_path.as_uri()))).problems == []


async def _segments_grow(
    folder: Path, by: int, exporters: Sequence[subprocess.Popen[bytes]]
) -> None:
    """Wait until two exporters have written ``by`` more segments."""
    before = _n_segments(folder)
    while _n_segments(folder) < before + by:
        assert [exporter.poll() for exporter in exporters] == [None, None]
        await asyncio.sleep(0.02)


def _n_segments(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.jsonl"))
