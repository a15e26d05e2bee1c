"""Customers that carry out a plan, and a keeper: processes that are meant to be killed.

``python -m tests.soak.town_worker URL PLAN LOG`` carries out a plan, each account's operations in
order and all accounts at once. The log has a line before each sending and one for each answer, so
that a successor continues where a killed process stopped, and repeats what was in flight. With
``URL ARCHIVE`` it is the keeper, and exports without end.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from serve_app.domain.credits import AccountPayer, HoldClosedError
from serve_app.domain.errors import InsufficientCreditsError, ServiceUnavailableError
from serve_app.domain.payments import PaymentIntent, TopupSettings
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.store.accounts import Accounts
from serve_app.store.client import Store, connect
from tests.store.setting import CLOCK, SHARDS, small_tiers

PAUSE_S = 0.02
EXPORT_S = 0.02
PEPPER = "pepper-of-the-soak-pepper-of-the-soak"


class Clerk:
    """Sends the operations of a plan to the product."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tiers = small_tiers()
        self._ledger = Ledger(store, self._tiers)
        self._topups = Topups(store, self._ledger)
        self._accounts = Accounts(store, PEPPER, self._tiers)

    async def send(self, account: str, tier: str, kind: str, words: list[Any]) -> Any:
        """Send one operation once."""
        ledger, payer = self._ledger, AccountPayer(account, tier)
        match kind:
            case "reserve":
                await ledger.reserve(payer, words[0], words[1], words[2] / 1000)
            case "hit":
                charge = await ledger.count_hit(account, tier, words[1], words[0])
                return [charge.credits, charge.balance.lookups_used]
            case "adjust":
                await ledger.adjust(account, *words, "ann", "soak")
            case "plan":
                await self._accounts.set_tier(account, tier)
            case "autobuy":
                await self._topups.enable(account, TopupSettings(*words))
            case "paid" | "declined":
                return await self._charge(account, is_paid=kind == "paid")
            case "commit" | "void" | "topup" | "grant":
                await getattr(ledger, kind)(account, *words)
        return "OK"

    async def _charge(self, account: str, *, is_paid: bool) -> str:
        found = await self._store.command(
            "HMGET", self._store.keys.topup(account), "intent", "ipack", "iprice"
        )
        if found[0] is None:
            return "NONE"
        intent = PaymentIntent(found[0].decode(), account, int(found[1]), int(found[2]), False)
        if is_paid:
            await self._topups.succeed(intent)
        else:
            await self._topups.decline(intent)
        return "OK"

    async def insist(self, account: str, tier: str, kind: str, words: list[Any]) -> Any:
        """Send one operation once; return its answer, or None if there is none yet."""
        try:
            return await self.send(account, tier, kind, words)
        except ServiceUnavailableError:
            await asyncio.sleep(PAUSE_S)
            return None
        except InsufficientCreditsError:
            return "NOFUNDS"
        except HoldClosedError as error:
            return f"CLOSED:{error.state}"


def read_log(path: Path) -> tuple[Counter[str], dict[str, Any]]:
    """Return how often each operation was sent, and the answers.

    An incomplete last line counts as sent, but not as an answer.
    """
    sent: Counter[str] = Counter()
    answers: dict[str, Any] = {}
    for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
        place, _, answer = line.rstrip("\n").partition(" ")
        if not answer:
            sent[place] += 1
        elif line.endswith("\n"):
            answers[place] = json.loads(answer)
    return sent, answers


async def carry_out(url: str, plan: dict[str, list[list[Any]]], log: Path) -> None:
    store = connect(url, shards=SHARDS, timeout_s=2, clock=CLOCK)
    clerk = Clerk(store)
    _, answers = read_log(log)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def serve(account: str, operations: list[list[Any]]) -> None:
        for number, (tier, kind, *words) in enumerate(operations):
            place = f"{account}/{number}"
            while place not in answers:
                os.write(descriptor, f"{place}\n".encode())
                answer = await clerk.insist(account, tier, kind, words)
                if answer is not None:
                    os.write(descriptor, f"{place} {json.dumps(answer)}\n".encode())
                    answers[place] = answer

    await asyncio.gather(*(serve(account, operations) for account, operations in plan.items()))
    await store.close()
    os.close(descriptor)


async def keep(url: str, archive: Path) -> None:
    store = connect(url, shards=SHARDS, timeout_s=2, clock=CLOCK)
    exporter = Exporter(store, Archive(archive.as_uri()))
    while True:
        with contextlib.suppress(ServiceUnavailableError):
            await exporter.export()
        await asyncio.sleep(EXPORT_S)


if __name__ == "__main__":
    if sys.argv[3:]:
        plan = json.loads(Path(sys.argv[2]).read_text())
        asyncio.run(carry_out(sys.argv[1], plan, Path(sys.argv[3])))
    else:
        asyncio.run(keep(sys.argv[1], Path(sys.argv[2])))
