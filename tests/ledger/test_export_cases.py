"""The directed cases of export and reconciliation on the real scripts; audits under load."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serve_app.domain.credits import AccountPayer
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.store.client import Store
from tests.ledger.export_cases import EXPORT_CASES
from tests.ledger.opening_cases import OPENING_CASES
from tests.ledger.race_cases import RACE_CASES
from tests.ledger.restore_cases import RESTORE_CASES
from tests.store.setting import Setting, rich_tiers

pytestmark = pytest.mark.redis


@pytest.mark.parametrize(
    "case",
    EXPORT_CASES + RESTORE_CASES + OPENING_CASES + RACE_CASES,
    ids=lambda case: case.__name__,
)
async def test_case(setting: Setting, case: Callable[[Setting], Awaitable[None]]) -> None:
    await case(setting)


async def test_audits_are_clean_while_the_ledger_is_used_and_exported(
    live_store: Store, tmp_path: Path
) -> None:
    ledger, journal = Ledger(live_store, rich_tiers()), Journal(live_store)
    exporter = Exporter(live_store, Archive(tmp_path.as_uri()))
    is_over = asyncio.Event()
    exported = 0

    async def use(name: str) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            await ledger.reserve(AccountPayer(name, "pro"), f"h{number}", 3)
            await ledger.commit(name, f"h{number}", 2)
            await asyncio.sleep(0.01)

    async def export() -> None:
        nonlocal exported
        while not is_over.is_set():
            exported += await exporter.export()
            await asyncio.sleep(0.1)

    users = [asyncio.create_task(use(f"owner{number}")) for number in range(12)]
    users.append(asyncio.create_task(export()))
    await asyncio.sleep(0.1)
    for _ in range(10):
        assert (await journal.audit()).mismatches == ()
        await asyncio.sleep(0.02)
    is_over.set()
    await asyncio.gather(*users)
    exported += await exporter.export()
    report = await journal.audit()
    assert (report.accounts, report.entries, report.is_clean) == (12, exported, True)
