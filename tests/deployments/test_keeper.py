"""A fault that needs an operator affects only the report that the ledger is in order."""

from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.deployments.handles import probe, probe_audit, probe_journal
from serve_app.deployments.keeper import Keeper
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.archive.export import LostEntriesError, OtherArchiveError
from serve_app.ledger.journal import AuditReport, Mismatch
from serve_app.services.readiness import AuditMismatchError, JournalStoppedError

BROKEN = Mismatch("bob", "journal = balance", "7, not 8")


async def test_a_broken_rule_is_told_apart_from_a_keeper_that_is_away() -> None:
    found = [BROKEN]

    async def audit() -> AuditReport:
        return AuditReport(1, 1, 0, tuple(found))

    keeper: Any = object.__new__(Keeper.func_or_class)  # type: ignore[attr-defined]
    keeper._journal = SimpleNamespace(audit=audit)
    handle: Any = SimpleNamespace(
        **{name: SimpleNamespace(remote=getattr(keeper, name)) for name in ("ready", "audited")}
    )
    with pytest.raises(RuntimeError, match="bob: journal = balance"):
        await keeper._audit()
    await probe(handle)
    with pytest.raises(AuditMismatchError):
        await probe_audit(handle)
    found.clear()
    await keeper._audit()
    await probe_audit(handle)


@pytest.mark.parametrize("fault", [LostEntriesError, OtherArchiveError])
async def test_a_journal_that_waits_for_somebody_is_told(fault: type[Exception]) -> None:
    faults: list[Exception] = []

    async def export() -> int:
        if faults:
            raise faults.pop()
        return 0

    keeper: Any = object.__new__(Keeper.func_or_class)  # type: ignore[attr-defined]
    keeper._exporter, keeper._is_stopped = SimpleNamespace(export=export), False
    handle: Any = SimpleNamespace(archives=SimpleNamespace(remote=keeper.archives))
    faults.append(ServiceUnavailableError("the archive is away"))
    with pytest.raises(ServiceUnavailableError):
        await keeper._export()
    await probe_journal(handle)
    faults.append(fault("run `afa ledger reconcile`"))
    with pytest.raises(fault):
        await keeper._export()
    with pytest.raises(JournalStoppedError):
        await probe_journal(handle)
    await keeper._export()
    await probe_journal(handle)
