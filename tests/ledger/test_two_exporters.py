"""Two processes export one ledger to one archive and are killed again and again."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.domain.credits import AccountPayer
from serve_app.ledger.archive import Archive
from serve_app.ledger.export import Exporter
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.restore import verify
from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import connect
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
            await _segments_grow(tmp_path, by=20)
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


async def _segments_grow(folder: Path, by: int) -> None:
    """Wait until two that take turns have written more."""
    before = _n_segments(folder)
    while _n_segments(folder) < before + by:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _n_segments(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.jsonl"))
