"""Directed cases of failover, reconciliation and restoring; run like the others."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from serve_app.domain.payments import TopupSettings
from serve_app.ledger.archive import Archive
from serve_app.ledger.export import Exporter, LostEntriesError
from serve_app.ledger.jobs.types import NewJob
from serve_app.ledger.parquet import write_parquet
from serve_app.ledger.reconcile import Reconciled, Reconciler, ReconcileRefusedError
from serve_app.ledger.restore import RestoreRefusedError, restore, verify
from tests.ledger.export_cases import BERT, archive, archived, copy_of, fail_over
from tests.store.setting import ACCOUNT, PAYER, Setting, buckets, some_work, stamp_ms

DECEMBER = stamp_ms(2026, 12, 1)


async def ledger_state(s: Setting) -> dict[bytes, object]:
    """Read every balance, hold, deadline, payment and top-up."""
    found: dict[bytes, object] = {}
    for key in await s.store.command("KEYS", "cr:{*"):
        place = key.decode().split(":")[2]
        if place in ("a", "r", "p"):
            found[key] = await s.store.command("GET", key.decode())
        elif place == "t":
            found[key] = sorted(await s.store.command("HGETALL", key.decode()))
        elif place == "due":
            found[key] = await s.store.command("ZRANGE", key.decode(), 0, -1, "WITHSCORES")
    return found


async def outcomes(done: list[Reconciled]) -> dict[str, str]:
    return {one.account: one.outcome for one in done}


async def whole_ledger_comes_back_from_its_archive(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.topups.enable(ACCOUNT, TopupSettings(20, 100, 500, 1_200))
        await s.ledger.topup("carl", "pay:1", 70)
        await s.ledger.reserve(PAYER, "a", 55)
        await s.ledger.commit(ACCOUNT, "a", 50)
        await exporter.export()
        await s.ledger.count_hit("carl", "basic", 3, "hit:1")
        await s.at(DECEMBER)
        await s.ledger.reserve(BERT, "x", 80)
        await s.ledger.reserve(PAYER, "b", 45, ttl_s=100, fingerprint="x y")
        (intent,) = await s.topups.open_intents()
        await s.ledger.count_hit("carl", "basic", 4, "hit:2")
        await s.ledger.adjust("carl", "fix:1", -3, "ann", "typo")
        await exporter.export()
        before = await ledger_state(s)
        assert (await verify(kept)).problems == []
        with pytest.raises(RestoreRefusedError, match="not empty"):
            await restore(s.store, kept)
        await fail_over(s, {})
        with pytest.raises(ReconcileRefusedError, match="afa ledger restore"):
            await Reconciler(s.store, kept).reconcile()
        done = await restore(s.store, kept)
        assert (done.accounts, done.open_holds) == (3, 2)
        assert await ledger_state(s) == before
        await s.audit()
        # It goes on where it was: the month, the hold, the payment, the intent.
        assert await Reconciler(s.store, kept).reconcile() == []
        assert (await s.topups.open_intents())[0].intent_id == intent.intent_id
        assert (await s.ledger.topup("carl", "pay:1", 70)).packs == 67
        assert (await s.ledger.balance("carl", "basic")).lookups_used == 4
        assert (await s.ledger.commit(ACCOUNT, "b", 45)).held == 0
        await s.after(300_000)
        assert await s.ledger.reap_due() == 1
        await s.audit()
        assert await exporter.export() > 0
        assert (await verify(kept)).problems == []


async def jobs_of_a_restored_ledger_are_given_back(s: Setting) -> None:
    with archive() as kept:
        await s.jobs.submit(NewJob("j", ACCOUNT, "basic", "analysis", some_work(), 10))
        await Exporter(s.store, kept).export()
        await fail_over(s, {})
        await restore(s.store, kept)
        balance = await s.ledger.balance(ACCOUNT)
        assert (balance.remaining, balance.held, balance.open_jobs) == (50, 10, 0)
        await s.after(10_000_000)
        assert await s.ledger.reap_due() == 1
        assert (await s.ledger.balance(ACCOUNT)).remaining == 60
        await s.audit()


async def accounts_that_rested_come_back_exactly(s: Setting) -> None:
    """Over a change of the month too, and with the top-up that was booked."""
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.topups.enable(ACCOUNT, TopupSettings(20, 100, 500, 1_200))
        await s.ledger.reserve(PAYER, "a", 30)
        await s.ledger.reserve(BERT, "x", 60)
        await exporter.export()
        copy = await copy_of(s)
        await s.ledger.commit(ACCOUNT, "a", 20)
        await s.ledger.reserve(PAYER, "b", 25)
        (intent,) = await s.topups.open_intents()
        await s.topups.succeed(intent)
        await s.ledger.count_hit(ACCOUNT, "basic", 2, "hit:1")
        await s.at(DECEMBER)
        await s.ledger.commit("bert", "x", 10)
        await exporter.export()
        before = await ledger_state(s)
        balances = [await s.ledger.balance(name) for name in (ACCOUNT, "bert")]
        await fail_over(s, copy)
        for _ in range(2):
            with pytest.raises(LostEntriesError, match="afa ledger reconcile"):
                await exporter.export()
        trial = await Reconciler(s.store, kept).reconcile(is_trial=True)
        assert {one.outcome for one in trial} == {"missing"}
        done = await Reconciler(s.store, kept).reconcile()
        assert await outcomes(done) == {ACCOUNT: "exact", "bert": "exact"}
        after = [await s.ledger.balance(name) for name in (ACCOUNT, "bert")]
        for one, other in zip(balances, after, strict=True):
            assert buckets(one) == buckets(other)
            assert (one.period, one.held, one.lookups_used) == (
                *(other.period, other.held, other.lookups_used),
            )
        now = await ledger_state(s)
        assert {k for k in before if b":r:" in k and before[k] != now.get(k)} == set()
        assert await s.topups.open_intents() == []
        assert (await s.topups.succeed(intent)).packs == 100
        await s.audit()
        assert await Reconciler(s.store, kept).reconcile() == []
        await exporter.export()
        assert (await verify(kept)).problems == []
        await sums_are_balances(s, kept)


async def what_went_on_is_added_to(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for name in ("a", "b"):
            await s.ledger.reserve(PAYER, name, 10)
        await exporter.export()
        copy = await copy_of(s)
        await s.ledger.commit(ACCOUNT, "a", 4)
        await s.ledger.commit(ACCOUNT, "b", 4)
        await s.ledger.reserve(PAYER, "c", 20)
        await s.ledger.commit(ACCOUNT, "c")
        await s.ledger.topup(ACCOUNT, "pay:1", 7)
        await s.ledger.grant(ACCOUNT, "gift:1", 2)
        await s.ledger.count_hit(ACCOUNT, "basic", 3, "hit:1")
        await s.ledger.reserve(PAYER, "d", 5)
        await exporter.export()
        await fail_over(s, copy)
        # The new primary is told some of it again, something else, and the opposite.
        await s.ledger.commit(ACCOUNT, "a", 4)
        await s.ledger.void(ACCOUNT, "b")
        await s.ledger.topup(ACCOUNT, "pay:1", 7)
        await s.ledger.count_hit(ACCOUNT, "basic", 1, "hit:2")
        await s.ledger.reserve(PAYER, "e", 1)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.why) == ("refused", "commit b: it was voided since")
        assert done.change == -20 + 2 - 5
        balance = await s.ledger.balance(ACCOUNT)
        assert (balance.remaining, balance.held) == (60 - 4 - 20 + 7 + 2 - 5 - 1, 6)
        assert balance.lookups_used == 4
        await s.audit()
        assert await Reconciler(s.store, kept).reconcile() == []
        await exporter.export()
        assert (await verify(kept)).problems == []
        await sums_are_balances(s, kept)
        assert (await s.ledger.commit(ACCOUNT, "c")).remaining == balance.remaining
        await s.after(300_000)
        await s.ledger.reap_due()
        await s.audit()


async def last_month_is_not_paid_from_this_ones_grant(s: Setting) -> None:
    """Found by failing over with the month's change in what was lost."""
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.topup(ACCOUNT, "pay:0", 5)
        await s.ledger.reserve(PAYER, "a", 1)
        await exporter.export()
        copy = await copy_of(s)
        await s.ledger.reserve(PAYER, "b", 50)
        await s.ledger.commit(ACCOUNT, "b")
        await s.ledger.reserve(PAYER, "c", 12)
        await s.ledger.commit(ACCOUNT, "c")
        await exporter.export()
        await fail_over(s, copy)
        await s.at(DECEMBER)
        assert buckets(await s.ledger.balance(ACCOUNT, "basic")) == (60, 5, 0)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.change) == ("merged", -3)
        assert buckets(await s.ledger.balance(ACCOUNT)) == (60, 2, 0)
        await s.audit()
        await exporter.export()
        assert (await verify(kept)).problems == []


async def a_job_that_was_lost_is_told_and_free(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.balance(ACCOUNT, "basic")
        await exporter.export()
        copy = await copy_of(s)
        for number in range(2):
            job = NewJob(f"j{number}", ACCOUNT, "basic", "analysis", some_work(), 10)
            await s.jobs.submit(job)
        claim = await s.jobs.claim("w1")
        assert claim is not None
        assert await s.jobs.finish(claim, b"{}")
        await s.ledger.reserve(PAYER, "a", 5)
        await exporter.export()
        await fail_over(s, copy)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.lost, done.change) == ("exact", -25, -5)
        for number in range(2):
            record = await s.jobs.get(ACCOUNT, f"j{number}")
            assert record is not None
            assert (record.state.value, record.credits_used) == ("failed", 0)
        balance = await s.ledger.balance(ACCOUNT)
        assert (balance.remaining, balance.held, balance.open_jobs) == (55, 5, 0)
        await s.audit()
        await exporter.export()
        assert (await verify(kept)).problems == []


async def sums_are_balances(s: Setting, kept: Archive) -> None:
    """Sum every line of the archive, with no knowledge of it, and compare."""
    sums: dict[str, int] = {}
    for entry in await archived(kept):
        change = entry.grant + entry.packs - entry.debt
        sums[entry.account] = sums.get(entry.account, 0) + change
    for name, total in sums.items():
        assert (await s.ledger.balance(name)).remaining == total


async def an_archive_that_was_changed_is_noticed(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for number in range(3):
            await s.ledger.reserve(PAYER, f"h{number}", number)
            await exporter.export()
        assert (await verify(kept)).problems == []
        folder = Path(str(kept._folder))
        file = folder / "all.parquet"
        assert await write_parquet(kept, file) == 4
        table = pq.read_table(file)
        assert sum(table["grant"].to_pylist()) == (await s.ledger.balance(ACCOUNT)).grant
        file.unlink()
        first, second, _ = sorted(folder.rglob("*.jsonl"))  # noqa: ASYNC240  a test
        text = first.read_text()
        first.write_text(text.replace('"grant": 60', '"grant": 61'))
        assert len((await verify(kept)).problems) == 2
        first.write_text(text)
        second.rename(folder / "aside")
        problems = (await verify(kept)).problems
        assert any("is missing" in problem for problem in problems)
        (folder / "aside").rename(second)
        head, *rest = text.splitlines()
        first.write_text("\n".join([json.dumps({**json.loads(head), "format": 3}), *rest]) + "\n")
        assert any("its format is 3" in problem for problem in (await verify(kept)).problems)
        await fail_over(s, {})
        with pytest.raises(RestoreRefusedError, match="cannot be restored exactly"):
            await restore(s.store, kept)


RESTORE_CASES = (
    whole_ledger_comes_back_from_its_archive,
    jobs_of_a_restored_ledger_are_given_back,
    accounts_that_rested_come_back_exactly,
    what_went_on_is_added_to,
    last_month_is_not_paid_from_this_ones_grant,
    a_job_that_was_lost_is_told_and_free,
    an_archive_that_was_changed_is_noticed,
)
