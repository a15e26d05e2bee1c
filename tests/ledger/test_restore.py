"""Three months of 200 accounts, kills, two failovers: the archive alone restores them."""

import random

import pytest

from serve_app.domain.credits import AccountPayer
from serve_app.domain.errors import InsufficientCreditsError, ServiceUnavailableError
from serve_app.ledger.archive.export import Exporter, LostEntriesError
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.restore import restore, verify
from tests.ledger.export_cases import archive, copy_of, fail_over
from tests.ledger.ledger_model import ModelAccount
from tests.ledger.restore_cases import ledger_state, sums_are_balances
from tests.store.setting import Setting, stamp_ms

pytestmark = [pytest.mark.redis, pytest.mark.timeout(900)]

NAMES = [f"owner{number:03d}" for number in range(200)]
MONTHS = [(2026, 11), (2026, 12), (2027, 1)]
FAILOVERS = {(2026, 12): False, (2027, 1): True}
"""Months in which the primary is lost, and whether the month had changed in what was lost."""


class Town:
    """Accounts that are used at random, and an oracle that gets the same operations."""

    def __init__(self, s: Setting, seed: int) -> None:
        self.s, self.random, self.number = s, random.Random(seed), 0
        row = s.tiers["basic"]
        terms = (row.monthly_credits, row.grace_credits, row.cache_lookups)
        self.oracle = {name: ModelAccount(*terms) for name in NAMES}

    async def one(self, name: str) -> None:
        """Do one operation."""
        self.number += 1
        model, ledger, now = self.oracle[name], self.s.ledger, self.s.now_ms
        payer, new = AccountPayer(name, "basic"), f"id{self.number}"
        open_holds = [key for key, hold in model.holds.items() if hold.state == "held"]
        kinds = ["reserve", "reserve", "hit", "topup"] + ["commit", "commit", "void"] * bool(
            open_holds
        )
        match self.random.choice(kinds):
            case "reserve":
                cost = self.random.randint(1, 30)
                try:
                    await ledger.reserve(payer, new, cost, 10**8)
                    answer = "OK"
                except InsufficientCreditsError:
                    answer = "NOFUNDS"
                assert model.reserve(now, new, cost, 10**11, "") == answer
            case "hit":
                try:
                    await ledger.count_hit(name, "basic", 2, new)
                    answer = "OK"
                except InsufficientCreditsError:
                    answer = "NOFUNDS"
                assert model.hit(now, 2)[0] == answer
            case "topup":
                await ledger.topup(name, new, 5)
                model.credit(now, new, "topup", 5)
            case "commit":
                hold = self.random.choice(open_holds)
                final = self.random.randint(0, model.holds[hold].cost)
                await ledger.commit(name, hold, final)
                assert model.commit(now, hold, final) == "OK"
            case "void":
                hold = self.random.choice(open_holds)
                await ledger.void(name, hold)
                assert model.end(now, hold, "voided") == "OK"

    async def some(self, n: int, names: list[str] = NAMES) -> None:
        """Do ``n`` operations, an instant apart."""
        for _ in range(n):
            await self.s.after(1)
            await self.one(self.random.choice(names))

    async def compare(self) -> None:
        """Check that the oracle agrees on every account."""
        for name, model in self.oracle.items():
            balance = await self.s.ledger.balance(name, "basic")
            model.roll(self.s.now_ms)
            assert (balance.grant, balance.packs, balance.debt, balance.held) == (
                *(model.grant, model.packs, model.debt, model.held),
            ), name
            assert (balance.lookups_used, balance.granted) == (model.lookups, model.granted), name


async def test_the_archive_alone_makes_the_ledger_again(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, town = setting, Town(setting, 15)
    await s.store.claim_shards()
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for month in MONTHS:
            await s.at(stamp_ms(*month, 20))
            for name in NAMES:
                await s.ledger.balance(name, "basic")
                town.oracle[name].roll(s.now_ms)
            await town.some(150)
            await exporter.export()
            await exporter_dies(s, exporter, town, monkeypatch)
            exporter = Exporter(s.store, kept)
            await exporter.export()
            if month in FAILOVERS:
                copy = await copy_of(s)
                if FAILOVERS[month]:
                    await s.at(stamp_ms(2027, 2, 1))
                await town.some(120)
                await exporter.export()
                await fail_over(s, copy)
                with pytest.raises(LostEntriesError):
                    await exporter.export()
                done = await Reconciler(s.store, kept).reconcile()
                assert {one.outcome for one in done} == {"exact"}
                assert len(done) > 50
                exporter = Exporter(s.store, kept)
            await town.compare()
            await s.audit()
        await town.some(100)
        await exporter.export()
        before = await ledger_state(s.store)
        seen = await verify(kept)
        assert (seen.problems, seen.accounts) == ([], len(NAMES))
        await fail_over(s, {})
        done = await restore(s.store, kept)
        assert done.accounts == len(NAMES)
        assert await ledger_state(s.store) == before
        await town.compare()
        await s.audit()
        await sums_are_balances(s, kept)
        await town.some(100)
        await town.compare()
        await exporter.export()
        assert (await verify(kept)).problems == []


async def exporter_dies(
    s: Setting, exporter: Exporter, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill an export between writing and trimming, and let more calls come in."""
    await town.some(50)
    run = s.store.run

    async def fail_to_trim(name: str, *given: object) -> object:
        if name == "journal_trim":
            raise ServiceUnavailableError("gone")
        return await run(name, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(s.store, "run", fail_to_trim)
        with pytest.raises(ServiceUnavailableError):
            await exporter.export()
    await town.some(50)
