"""The sandbox keeps every charge, as a payment provider does."""

import asyncio
from pathlib import Path

from serve_app.domain.payments import PaymentOutcome
from serve_app.providers.payment_sandbox import SandboxPayments
from serve_app.store.objects import ObjectStore


async def test_charges_at_once_are_all_kept(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path.as_uri())
    await SandboxPayments(store=store).charge("earlier", "amy", 5)
    restarted, new = SandboxPayments(store=store), [f"new-{number}" for number in range(20)]
    await asyncio.gather(*(restarted.charge(intent_id, "amy", 5) for intent_id in new))
    again = SandboxPayments(store=store)
    for intent_id in ("earlier", *new):
        assert await again.look_up(intent_id) is PaymentOutcome.SUCCEEDED
