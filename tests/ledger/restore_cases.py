"""Directed cases of failover, reconciliation and restoring; run like the others."""

import asyncio
import contextlib
import itertools
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

from serve_app.domain.credits import AccountPayer
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.payments import TopupSettings
from serve_app.ledger.archive import export as exporting
from serve_app.ledger.archive import restore as restoring
from serve_app.ledger.archive.export import (
    Exporter,
    LostEntriesError,
    OtherArchiveError,
    lost_calls,
)
from serve_app.ledger.archive.parquet import write_parquet
from serve_app.ledger.archive.reconcile import Reconciled, Reconciler, ReconcileRefusedError
from serve_app.ledger.archive.restore import RestoreRefusedError, restore, verify
from serve_app.ledger.archive.segments import Archive, SegmentError
from serve_app.ledger.ended_holds import KEPT_MS, forget_ended
from serve_app.ledger.jobs.types import NewJob
from serve_app.ledger.journal import PAGE
from serve_app.ledger.packed import unpack_account
from serve_app.store.client import Store, from_ms
from tests.ledger.export_cases import BERT, archive, archived, copy_of, fail_over
from tests.store.setting import ACCOUNT, PAYER, Setting, buckets, some_work, stamp_ms

DECEMBER = stamp_ms(2026, 12, 1)


FREE_HIT = b"committed\0" + bytes(5 * 8 + 1) + b"hit"


async def ledger_state(store: Store) -> dict[bytes, object]:
    """Read every balance, hold, deadline, payment and top-up; free hits are in no archive."""
    found: dict[bytes, object] = {}
    for key in await store.command("KEYS", "cr:{*"):
        place = key.decode().split(":")[2]
        if place in ("a", "r", "p"):
            packed = await store.command("GET", key.decode())
            if packed != FREE_HIT:
                found[key] = packed
        elif place == "t":
            found[key] = sorted(await store.command("HGETALL", key.decode()))
        elif place in ("due", "intents"):
            found[key] = await store.command("ZRANGE", key.decode(), 0, -1, "WITHSCORES")
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
        before = await ledger_state(s.store)
        assert (await verify(kept)).problems == []
        with pytest.raises(RestoreRefusedError, match="not empty"):
            await restore(s.store, kept)
        await fail_over(s, {})
        with pytest.raises(ReconcileRefusedError, match="afa ledger restore"):
            await Reconciler(s.store, kept).reconcile()
        done = await restore(s.store, kept)
        assert (done.accounts, done.open_holds) == (3, 2)
        assert await ledger_state(s.store) == before
        await s.audit()
        # It continues where it was: the month, the hold, the payment, the intent.
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


async def open_intents_keep_their_order(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await exporter.export()
        for name in (ACCOUNT, "carl"):  # in one shard
            await s.topups.enable(name, TopupSettings(20, 100, 500, 1_200))
        await exporter.export()
        copy = await copy_of(s)
        for name in ("carl", ACCOUNT):
            await s.ledger.reserve(AccountPayer(name, "basic"), "a", 45)
            await s.after(1)
        await exporter.export()
        before = await ledger_state(s.store)
        assert [one.account for one in await s.topups.open_intents()] == ["carl", ACCOUNT]
        await fail_over(s, {})
        await restore(s.store, kept)
        assert await ledger_state(s.store) == before
        await fail_over(s, copy)
        await s.after(1000)
        await Reconciler(s.store, kept).reconcile()
        assert [one.account for one in await s.topups.open_intents()] == ["carl", ACCOUNT]


async def a_lost_hit_that_was_free_when_it_came_again_is_charged(s: Setting) -> None:
    with archive() as kept:
        hit = partial(s.ledger.count_hit, ACCOUNT, "basic")
        await hit(3, "hit:1")
        await Exporter(s.store, kept).export()
        copy = await copy_of(s)
        await hit(2, "hit:2")
        assert (await hit(1, "hit:3")).credits == 1
        await Exporter(s.store, kept).export()
        await fail_over(s, copy)
        assert (await hit(1, "hit:3")).credits == 0
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.change) == ("merged", -1)
        assert (await s.ledger.balance(ACCOUNT)).remaining == 59
        await comes_back(s, kept)


async def jobs_of_a_restored_ledger_are_given_back(s: Setting) -> None:
    with archive() as kept:
        await s.jobs.submit(NewJob("j", ACCOUNT, "basic", some_work(), 10))
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
    """Even over a change of month, and with the top-up that was booked."""
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
        before = await ledger_state(s.store)
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
        now = await ledger_state(s.store)
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
        # The new primary gets some of it again, something else, and the opposite.
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


async def what_a_replica_had_and_the_archive_too_is_archived_once(s: Setting) -> None:
    """Found by backing up a ledger between two exports, and by replicas that lag by part of one."""
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.reserve(PAYER, "a", 10)
        await exporter.export()
        await s.ledger.commit(ACCOUNT, "a", 4)
        await s.ledger.reserve(BERT, "x", 5)
        copy = await copy_of(s)
        await s.ledger.reserve(PAYER, "b", 20)
        await exporter.export()
        before = await ledger_state(s.store)
        await fail_over(s, copy)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.account, done.outcome, done.change) == (ACCOUNT, "exact", -20)
        assert {k for k in await ledger_state(s.store) if b":r:" in k} == {
            k for k in before if b":r:" in k
        }
        await s.ledger.commit("bert", "x", 5)
        await s.audit()
        await Exporter(s.store, kept).export()
        assert (await verify(kept)).problems == []
        await sums_are_balances(s, kept)
        await s.audit()


async def pages_that_a_replica_still_has_are_archived_once(s: Setting) -> None:
    with archive() as kept:
        for number in range(PAGE + 50):
            await s.ledger.reserve(PAYER, f"h{number}", 0)
        copy = await copy_of(s)
        await Exporter(s.store, kept).export()
        await fail_over(s, copy)
        exporter = Exporter(s.store, kept)
        assert [await exporter.export() for _ in range(2)] == [0, 0]
        assert (await verify(kept)).problems == []
        await s.audit()


async def last_month_is_not_paid_from_this_ones_grant(s: Setting) -> None:
    """Found by a failover in which the change of month was lost."""
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
            job = NewJob(f"j{number}", ACCOUNT, "basic", some_work(), 10)
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
        await comes_back(s, kept)


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


async def damage_of_an_archive_is_named(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for name in ("a", "b"):
            await s.ledger.reserve(PAYER, name, 1)
            await exporter.export()
        copy = await copy_of(s)
        await s.ledger.reserve(PAYER, "c", 1)
        await exporter.export()
        folder = Path(str(kept._folder))
        _, second, _ = sorted(folder.rglob("*.jsonl"))  # noqa: ASYNC240  a test
        whole = second.read_bytes()
        damaged = (whole[:-9], b"", b"\xff\xfe", b"[]\n", whole + b"{}\n")
        await fail_over(s, copy)
        for content in damaged:
            second.write_bytes(content)
            problems = (await verify(kept)).problems
            assert any(second.name in problem for problem in problems), content
            with pytest.raises(ReconcileRefusedError, match=second.name):
                await Reconciler(s.store, kept).reconcile()
            with pytest.raises(ValueError, match=second.name):
                await write_parquet(kept, folder / "all.parquet")
        second.write_bytes(whole)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert done.outcome == "exact"
        (folder / "notes.jsonl").write_text("")
        with pytest.raises(SegmentError, match=r"notes\.jsonl"):
            await verify(kept)


async def a_debt_keeps_its_time_or_gets_one(s: Setting) -> None:
    """Paid down in part, paid off, and first made by what was lost."""
    carl = AccountPayer("carl", "basic")
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for payer in (PAYER, BERT):
            await s.ledger.reserve(payer, "a", 70)
            await s.ledger.commit(payer.account, "a")
        await s.ledger.reserve(carl, "a", 30)
        await exporter.export()
        began, copy = s.now_ms, await copy_of(s)
        await s.after(1000)
        await s.ledger.topup(ACCOUNT, "pay:1", 4)
        await s.ledger.topup("bert", "pay:1", 15)
        await s.ledger.reserve(carl, "b", 25)
        await exporter.export()
        await fail_over(s, copy)
        await s.after(1000)
        await s.ledger.reserve(carl, "c", 20)
        done = await Reconciler(s.store, kept).reconcile()
        assert await outcomes(done) == {ACCOUNT: "exact", "bert": "exact", "carl": "merged"}
        found = [await s.ledger.balance(name) for name in (ACCOUNT, "bert", "carl")]
        assert [buckets(one) for one in found] == [(0, 0, 6), (0, 5, 0), (0, 0, 15)]
        since = [one.negative_since for one in found]
        assert since == [from_ms(began), None, from_ms(s.now_ms)]
        await comes_back(s, kept)


async def comes_back(s: Setting, kept: Archive) -> None:
    """Check that the archive restores exactly what is in the ledger."""
    await s.audit()
    await Exporter(s.store, kept).export()
    assert (await verify(kept)).problems == []
    before = await ledger_state(s.store)
    await fail_over(s, {})
    await restore(s.store, kept)
    assert await ledger_state(s.store) == before
    await s.audit()


async def topups_come_back_as_they_were(s: Setting) -> None:
    """One intent was closed by what was lost, another opened; neither hash keeps older fields."""
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for payer in (PAYER, BERT):
            await s.topups.enable(payer.account, TopupSettings(20, 100, 500, 1_200))
        await s.ledger.reserve(PAYER, "a", 50)
        (paid,) = await s.topups.open_intents()
        await exporter.export()
        copy = await copy_of(s)
        await s.topups.succeed(paid)
        await s.ledger.reserve(BERT, "a", 45)
        (opened,) = await s.topups.open_intents()
        await exporter.export()
        before = await ledger_state(s.store)
        await fail_over(s, copy)
        (again,) = await s.topups.open_intents()
        assert again.intent_id == paid.intent_id
        await s.topups.mark_sent(again)
        await Reconciler(s.store, kept).reconcile()
        assert [one.intent_id for one in await s.topups.open_intents()] == [opened.intent_id]
        after = await ledger_state(s.store)
        assert [after[k] for k in before if b":t:" in k] == [
            before[k] for k in before if b":t:" in k
        ]
        await comes_back(s, kept)
        assert [one.intent_id for one in await s.topups.open_intents()] == [opened.intent_id]


async def every_change_of_a_topup_comes_back(s: Setting) -> None:
    key, settings = s.store.keys.topup(ACCOUNT), TopupSettings(20, 100, 500, 1_200)
    with archive() as kept:
        await s.topups.enable(ACCOUNT, settings)
        await comes_back(s, kept)
        await s.ledger.reserve(PAYER, "a", 50)
        (declined,) = await s.topups.open_intents()
        await s.topups.mark_sent(declined)
        await comes_back(s, kept)
        assert (await s.topups.open_intents())[0].is_sent
        await s.topups.decline(declined)
        await comes_back(s, kept)
        await s.topups.disable(ACCOUNT)
        await comes_back(s, kept)
        await s.topups.enable(ACCOUNT, settings)
        await s.ledger.reserve(PAYER, "b", 5)
        (paid,) = await s.topups.open_intents()
        opened = await s.store.command("DUMP", key)
        await s.topups.succeed(paid)
        await comes_back(s, kept)
        # A failover undoes the closing of the intent, but not its payment.
        await s.store.command("RESTORE", key, 0, opened, "REPLACE")
        await s.store.command("ZADD", s.store.keys.funding(ACCOUNT)[1], 1, ACCOUNT)
        await s.topups.mark_sent(paid)
        await s.topups.succeed(paid)
        await comes_back(s, kept)


async def ended_holds_that_were_brought_back_are_forgotten(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.reserve(PAYER, "a", 10)
        await exporter.export()
        copy = await copy_of(s)
        await s.ledger.commit(ACCOUNT, "a", 4)
        for name in ("b", "c"):
            await s.ledger.reserve(PAYER, name, 10, ttl_s=1_000_000)
        await s.ledger.void(ACCOUNT, "b")
        await exporter.export()
        await fail_over(s, copy)
        await Reconciler(s.store, kept).reconcile()
        await s.after(KEPT_MS)
        assert await forget_ended(s.store) == 2
        states = await s.ledger.hold_states(ACCOUNT, ["a", "b", "c"])
        assert states == [None, None, "held"]


async def a_recovery_that_was_interrupted_is_not_made_twice(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.reserve(PAYER, "a", 10)
        await exporter.export()
        copy = await copy_of(s)
        await s.ledger.commit(ACCOUNT, "a", 4)
        await s.ledger.count_hit(ACCOUNT, "basic", 2, "hit:1")
        await exporter.export()
        await fail_over(s, copy)
        command = s.store.command

        async def dies(*words: Any) -> Any:
            if words[0] == "HSET":
                raise ServiceUnavailableError("gone")
            return await command(*words)

        with (
            mock.patch.object(s.store, "command", dies),
            pytest.raises(ServiceUnavailableError),
        ):
            await Reconciler(s.store, kept).reconcile()
        before = await s.ledger.balance(ACCOUNT)
        assert (buckets(before), before.lookups_used) == ((56, 0, 0), 2)
        await Reconciler(s.store, kept).reconcile()
        assert await s.ledger.balance(ACCOUNT) == before
        assert await Reconciler(s.store, kept).reconcile() == []
        await comes_back(s, kept)


async def a_restore_that_was_interrupted_is_refused(s: Setting) -> None:
    """Killed before each of its batches; reconciling instead doubles nothing."""
    names, batch = (ACCOUNT, "bert", "carl", "dora"), s.store.batch
    with archive() as kept, mock.patch.object(restoring, "AT_ONCE", 1):
        for name in names:
            await s.ledger.topup(name, "pay:1", 500)
        await Exporter(s.store, kept).export()
        before = await ledger_state(s.store)
        for n_batches in itertools.count():
            await fail_over(s, {})
            left = n_batches

            async def dies(commands: list[Any]) -> list[Any]:
                nonlocal left
                if commands[0][0] in ("HSET", "SET", "XADD"):
                    if not left:
                        raise ServiceUnavailableError("gone")
                    left -= 1
                return await batch(commands)

            try:
                with mock.patch.object(s.store, "batch", dies):
                    await restore(s.store, kept)
            except ServiceUnavailableError:
                with pytest.raises(ValueError, match="restored in part: empty its Redis"):
                    await s.store.claim_shards()
                with pytest.raises(ValueError, match="restored in part: empty its Redis"):
                    await restore(s.store, kept)
                with contextlib.suppress(ReconcileRefusedError):
                    await Reconciler(s.store, kept).reconcile()
                packed = await batch([("GET", s.store.keys.balance(name)) for name in names])
                assert {unpack_account(raw).packs for raw in packed if raw} <= {500}
            else:
                break
        assert n_batches > 3 * len(names)
        await s.store.claim_shards()
        assert await ledger_state(s.store) == before
        await s.audit()


async def a_missing_end_or_shard_of_an_archive_is_noticed(s: Setting) -> None:
    names = (ACCOUNT, "bert", "owner0", "owner1")
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for number in range(3):
            for name in names:
                await s.ledger.topup(name, f"pay:{number}", 5)
            await exporter.export()
        seen = await verify(kept)
        assert (seen.problems, seen.has_head, seen.shards) == ([], True, len(names))
        folder, aside = Path(str(kept._folder)), s.store.keys.tag(ACCOUNT)[1:-1]
        newest = sorted((folder / aside).iterdir())
        texts = {path: path.read_bytes() for path in newest}
        remedy = (
            "bring them back; if they are gone for good, what was in them is lost: delete "
            "head.json to go by the rest"
        )
        lacking = (
            (newest[1:], f"{aside}: its segments after 1, up to 3, are missing: {remedy}"),
            (newest, f"{aside}: all of its segments are missing: {remedy}"),
        )
        await fail_over(s, {})
        for paths, problem in lacking:
            for path in paths:
                path.unlink()
            assert (await verify(kept)).problems == [problem]
            with pytest.raises(RestoreRefusedError, match=problem):
                await restore(s.store, kept)
            with pytest.raises(ReconcileRefusedError, match=problem):
                await Reconciler(s.store, kept).reconcile()
            with pytest.raises(ValueError, match=problem):
                await write_parquet(kept, folder / "all.parquet")
            for path in paths:
                path.write_bytes(texts[path])
        await restore(s.store, kept)
        await s.audit()
        await fail_over(s, {})
        newest[2].unlink()
        (folder / "head.json").unlink()
        await restore(s.store, kept)
        assert [(await s.ledger.balance(name)).packs for name in names] == [10, 15, 15, 15]
        await s.audit()


async def an_exporter_that_looked_before_a_reconcile_tells_of_no_loss_after_it(s: Setting) -> None:
    async def looked_before(*given: Any) -> Any:
        found = await lost_calls(*given)
        await Reconciler(s.store, kept).reconcile()
        return found

    with archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 5)
        await Exporter(s.store, kept).export()
        copy = await copy_of(s)
        await s.ledger.topup(ACCOUNT, "pay:2", 5)
        await Exporter(s.store, kept).export()
        await fail_over(s, copy)
        with pytest.raises(LostEntriesError):
            await Exporter(s.store, kept).export()
        assert await s.jobs.may_have_lost(ACCOUNT)
        with (
            mock.patch.object(exporting, "lost_calls", looked_before),
            pytest.raises(LostEntriesError),
        ):
            await Exporter(s.store, kept).export()
        assert not await s.jobs.may_have_lost(ACCOUNT)


async def the_head_of_an_archive_lags_and_never_leads(s: Setting) -> None:
    async def dies(_last: dict[str, int]) -> None:
        raise ServiceUnavailableError("gone")

    with archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 5)
        await Exporter(s.store, kept).export()
        await s.ledger.topup(ACCOUNT, "pay:2", 5)
        with mock.patch.object(kept, "put_head", dies), pytest.raises(ServiceUnavailableError):
            await Exporter(s.store, kept).export()
        shard = s.store.keys.tag(ACCOUNT)[1:-1]
        assert await kept.head() == {shard: 1}
        assert (await verify(kept)).problems == []
        await Exporter(s.store, kept).export()
        assert await kept.head() == {shard: 2}
        (Path(str(kept._folder)) / "head.json").write_text("{")
        seen = await verify(kept)
        assert (seen.problems, seen.has_head) == ([], False)
        await Exporter(s.store, kept).export()
        assert await kept.head() == {shard: 2}


async def another_archive_is_not_begun(s: Setting) -> None:
    with archive() as kept, archive() as other:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, kept).export()
        await fail_over(s, {})
        await restore(s.store, kept)
        await s.ledger.reserve(PAYER, "a", 5)
        await s.ledger.reserve(BERT, "a", 5)
        exporter = Exporter(s.store, other)
        for _ in range(2):
            with pytest.raises(OtherArchiveError, match="set AFA_JOURNAL_STORE to the archive"):
                await exporter.export()
        assert await other.segments() == {}
        shutil.copytree(str(kept._folder), str(other._folder), dirs_exist_ok=True)
        assert await exporter.export() == 4
        await comes_back(s, other)


async def what_follows_a_restore_has_later_ids(s: Setting) -> None:
    """The clock of the machine that wrote the archive was ahead."""
    stream, ahead = s.store.keys.shard(s.store.keys.tag(ACCOUNT), "j"), "9999999999999-0"
    await s.store.command("XADD", stream, ahead, "e", "")
    await s.store.command("XDEL", stream, ahead)
    with archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await comes_back(s, kept)
        exporter = Exporter(s.store, kept)
        for name, n_entries in (("a", 2), ("b", 1)):
            await s.ledger.reserve(PAYER, name, 5)
            assert await exporter.export() == n_entries
        await comes_back(s, kept)


async def a_month_that_saw_no_top_up_comes_back(s: Setting) -> None:
    """One pack would be above the cap."""
    with archive() as kept:
        await s.topups.enable(ACCOUNT, TopupSettings(20, 100, 500, 400))
        await s.ledger.reserve(PAYER, "a", 55)
        await comes_back(s, kept)


async def what_was_refused_is_told_to_the_archive(s: Setting) -> None:
    """The new primary is in an earlier month: it keeps what it has, and so does the archive."""
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.reserve(PAYER, "a", 10)
        await exporter.export()
        began, copy = s.now_ms, await copy_of(s)
        await s.at(DECEMBER)
        await s.ledger.commit(ACCOUNT, "a")
        await s.ledger.reserve(PAYER, "b", 20)
        await exporter.export()
        await fail_over(s, copy)
        await s.at(began + 1000)
        await s.ledger.reserve(PAYER, "c", 5)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.change) == ("refused", 0)
        assert await s.ledger.hold_states(ACCOUNT, ["a", "b", "c"]) == ["held", "voided", "held"]
        await comes_back(s, kept)


async def a_ledger_that_came_back_empty_is_not_reconciled(s: Setting) -> None:
    with archive() as kept:
        await s.jobs.submit(NewJob("j", ACCOUNT, "basic", some_work(), 10))
        claim = await s.jobs.claim("w1")
        assert claim is not None
        assert await s.jobs.finish(claim, b"{}")
        await Exporter(s.store, kept).export()
        await fail_over(s, {})
        assert (await s.ledger.balance(ACCOUNT, "basic")).remaining == 60
        with pytest.raises(LostEntriesError):
            await Exporter(s.store, kept).export()
        with pytest.raises(ReconcileRefusedError, match="came back empty"):
            await Reconciler(s.store, kept).reconcile()
        await fail_over(s, {})
        await restore(s.store, kept)
        assert (await s.ledger.balance(ACCOUNT)).remaining == 50


async def a_grant_that_was_made_three_times_counts_once(s: Setting) -> None:
    with archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 7)
        await Exporter(s.store, kept).export()
        copy = await copy_of(s)
        for number, left in enumerate((62, 57)):
            await s.ledger.reserve(PAYER, f"a{number}", 5)
            await Exporter(s.store, kept).export()
            await fail_over(s, copy)
            await s.ledger.reserve(PAYER, f"b{number}", 0)
            (done,) = await Reconciler(s.store, kept).reconcile()
            assert done.outcome == "merged"
            assert (await s.ledger.balance(ACCOUNT)).remaining == left
        await s.audit()
        await Exporter(s.store, kept).export()
        assert (await verify(kept)).problems == []


async def an_end_that_was_brought_back_and_then_made_again_counts_once(s: Setting) -> None:
    with archive() as kept:
        await s.ledger.reserve(PAYER, "a", 25)
        await Exporter(s.store, kept).export()
        copy = await copy_of(s)
        await s.ledger.commit(ACCOUNT, "a")
        for is_made_again, n_held in ((False, 0), (True, 1), (False, 2)):
            await Exporter(s.store, kept).export()
            await fail_over(s, copy)
            if n_held:
                await s.ledger.reserve(PAYER, f"b{n_held}", 1)
            if is_made_again:
                await s.ledger.commit(ACCOUNT, "a")
            await Reconciler(s.store, kept).reconcile()
            balance = await s.ledger.balance(ACCOUNT)
            assert (balance.remaining, balance.held) == (35 - n_held, n_held)
            await s.audit()


async def more_lost_charges_than_lua_hands_over_come_back(s: Setting) -> None:
    with archive() as kept:
        exporter, hit = Exporter(s.store, kept), partial(s.ledger.count_hit, ACCOUNT, "basic")
        await s.ledger.topup(ACCOUNT, "pay:1", 10_000)
        await hit(5, "free")
        await exporter.export()
        copy = await copy_of(s)
        ids = [f"hit:{number}" for number in range(5_999)]
        await asyncio.gather(*(hit(1, hit_id) for hit_id in ids))
        await exporter.export()
        await fail_over(s, copy)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.n_entries, done.change) == ("exact", 5_999, -5_999)
        ended = s.store.keys.shard(s.store.keys.tag(ACCOUNT), "e")
        assert await s.store.command("LLEN", ended) == 5_999
        for hit_id in ids[::500]:
            assert (await hit(1, hit_id)).balance.remaining == 10_060 - 5_999
        await s.audit()
        await exporter.export()
        assert (await verify(kept)).problems == []
        listed = (await kept.segments()).values()
        calls = [call for one in listed for segment in one for call in await kept.read(segment)]
        assert all(call.accounts for call in calls if call.entries)
        assert sum(len(call.holds) for call in calls) == 2 * 5_999


RESTORE_CASES = (
    a_ledger_that_came_back_empty_is_not_reconciled,
    a_grant_that_was_made_three_times_counts_once,
    an_end_that_was_brought_back_and_then_made_again_counts_once,
    a_restore_that_was_interrupted_is_refused,
    a_missing_end_or_shard_of_an_archive_is_noticed,
    an_exporter_that_looked_before_a_reconcile_tells_of_no_loss_after_it,
    the_head_of_an_archive_lags_and_never_leads,
    another_archive_is_not_begun,
    what_follows_a_restore_has_later_ids,
    a_month_that_saw_no_top_up_comes_back,
    what_was_refused_is_told_to_the_archive,
    whole_ledger_comes_back_from_its_archive,
    open_intents_keep_their_order,
    a_lost_hit_that_was_free_when_it_came_again_is_charged,
    jobs_of_a_restored_ledger_are_given_back,
    accounts_that_rested_come_back_exactly,
    what_went_on_is_added_to,
    what_a_replica_had_and_the_archive_too_is_archived_once,
    pages_that_a_replica_still_has_are_archived_once,
    last_month_is_not_paid_from_this_ones_grant,
    a_job_that_was_lost_is_told_and_free,
    a_debt_keeps_its_time_or_gets_one,
    topups_come_back_as_they_were,
    every_change_of_a_topup_comes_back,
    ended_holds_that_were_brought_back_are_forgotten,
    a_recovery_that_was_interrupted_is_not_made_twice,
    an_archive_that_was_changed_is_noticed,
    damage_of_an_archive_is_named,
    more_lost_charges_than_lua_hands_over_come_back,
)
