"""Failovers at random, and calls made before they are noticed: no credit is lost or made."""

import random
from collections.abc import Sequence
from functools import partial

import pytest

from serve_app.domain.credits import AccountPayer, HoldClosedError, HoldMismatchError
from serve_app.domain.errors import InsufficientCreditsError
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.reconcile import Reconciled, Reconciler
from serve_app.ledger.archive.restore import verify
from serve_app.ledger.jobs.types import NewJob
from serve_app.ledger.packed import unpack_account, unpack_whole_hold
from tests.ledger.export_cases import archive, copy_of, fail_over
from tests.ledger.restore_cases import comes_back, sums_are_balances
from tests.store.setting import Setting, some_work

pytestmark = pytest.mark.redis

NAMES = ("a1", "a2", "a3")
RUNS = 20


class Customers:
    """Accounts that are used at random, across a failover too."""

    def __init__(self, s: Setting, seed: int) -> None:
        self.s, self.random, self.number = s, random.Random(seed), 0
        self.begun: list[tuple[str, str]] = []

    async def use(self, times: int) -> None:
        """Do ``times`` operations, an instant apart."""
        for _ in range(times):
            await self.s.after(1)
            try:
                await self._once()
            except (InsufficientCreditsError, HoldClosedError, HoldMismatchError):
                continue

    async def _once(self) -> None:
        self.number += 1
        draw, ledger, new = self.random, self.s.ledger, f"id{self.number}"
        name = draw.choice(NAMES)
        mine = [hold_id for owner, hold_id in self.begun if owner == name]
        kinds = ["reserve"] * 2 + ["top up", "hit", "grant", "adjust"]
        match draw.choice(kinds + ["commit", "commit", "void"] * bool(mine)):
            case "reserve":
                payer = AccountPayer(name, "basic")
                await ledger.reserve(payer, new, draw.randint(0, 25), ttl_s=10**7)
                self.begun.append((name, new))
            case "commit":
                await ledger.commit(name, draw.choice(mine), draw.choice([None, None, None, 0]))
            case "void":
                await ledger.void(name, draw.choice(mine))
            case "top up":
                await ledger.topup(name, f"pay:{draw.randint(0, 5)}", 7)
            case "hit":
                await ledger.count_hit(name, "basic", draw.randint(1, 3), new)
            case "grant":
                await ledger.grant(name, new, 3)
            case "adjust":
                await ledger.adjust(name, new, draw.choice([-5, 4]), "ann", "typo")


@pytest.mark.parametrize("seed", range(RUNS))
async def test_credits_are_what_holds_and_payments_say(setting: Setting, seed: int) -> None:
    s, customers, draw = setting, Customers(setting, seed), random.Random(seed)
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await customers.use(12)
        await exporter.export()
        await customers.use(draw.choice([0, 4]))
        copy = await copy_of(s)
        await customers.use(10)
        await exporter.export()
        await fail_over(s, copy)
        await customers.use(draw.randint(0, 8))
        done = await Reconciler(s.store, kept).reconcile()
        await s.audit()
        await _are_as_recovered(s, done)
        assert await Reconciler(s.store, kept).reconcile() == []
        await comes_back(s, kept)
        await sums_are_balances(s, kept)


class Employers(Customers):
    """Accounts that have jobs too; their records are not in the archive."""

    async def _once(self) -> None:
        if self.random.random() < 0.6:
            return await super()._once()
        self.number += 1
        jobs, name = self.s.jobs, self.random.choice(NAMES)
        if self.random.random() < 0.5:
            job = NewJob(f"j{self.number}", name, "basic", some_work(), 10)
            await jobs.submit(job)
        elif (claim := await jobs.claim("w")) is not None:
            end = partial(jobs.finish, result=b"{}")
            if self.random.random() < 0.3:
                end = partial(jobs.fail, code="unprocessable_audio", message="no audio")
            await end(claim)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_backup_from_before_a_failover_comes_back_with_the_archive(
    setting: Setting, seed: int
) -> None:
    s, customers, draw = setting, Employers(setting, seed), random.Random(seed)
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await customers.use(8)
        await exporter.export()
        backup = await copy_of(s)
        await customers.use(8)
        await exporter.export()
        replica = await copy_of(s)
        await customers.use(10)
        await exporter.export()
        await fail_over(s, replica)
        await customers.use(draw.choice([0, 6]))
        done = await Reconciler(s.store, kept).reconcile()
        await s.audit()
        await customers.use(draw.choice([0, 6]))
        await Exporter(s.store, kept).export()
        await fail_over(s, backup)
        await customers.use(draw.choice([0, 0, 3]))
        done += await Reconciler(s.store, kept).reconcile()
        await s.audit()
        await _are_as_recovered(s, done)
        assert await Reconciler(s.store, kept).reconcile() == []
        await Exporter(s.store, kept).export()
        assert (await verify(kept)).problems == []
        await sums_are_balances(s, kept)


async def _are_as_recovered(s: Setting, done: Sequence[Reconciled]) -> None:
    refused = {one.account for one in done if one.outcome == "refused"}
    for name in NAMES:
        await _is_plausible(s, name)
        if name not in refused:
            await _is_exact(s, name)


async def _is_plausible(s: Setting, name: str) -> None:
    packed = await s.store.command("GET", s.store.keys.balance(name))
    if packed is not None:
        state = unpack_account(packed)
        assert min(state.held, state.lookups_used, state.floor - state.debt) >= 0


async def _is_exact(s: Setting, name: str) -> None:
    """Check that the ledger's payments and holds add up to the balance."""
    if await s.store.command("GET", s.store.keys.balance(name)) is None:
        return
    balance, held = await s.ledger.balance(name), 0
    left = balance.granted
    for key in await s.store.command("KEYS", s.store.keys.payment(name, "*")):
        kind, _, credits = (await s.store.command("GET", key.decode())).decode().partition(" ")
        left += int(credits) if kind in ("topup", "bonus", "adjust") else 0
    for key in await s.store.command("KEYS", s.store.keys.hold(name, "*")):
        hold = unpack_whole_hold(await s.store.command("GET", key.decode()))
        held += hold.cost if hold.state == "held" else 0
        left -= hold.cost if hold.state == "held" else hold.final
    assert (balance.remaining, balance.held) == (left, held)
