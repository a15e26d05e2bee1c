"""An account that fails the audit takes nothing away but the word that the ledger is well."""

from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.deployments.handles import probe, probe_audit
from serve_app.deployments.keeper import Keeper
from serve_app.ledger.journal import AuditReport, Mismatch
from serve_app.services.readiness import AuditMismatchError

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
