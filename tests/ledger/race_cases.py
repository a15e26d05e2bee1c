"""Directed cases of two exporters at once, and of trims that a failover lost."""

from typing import Any
from unittest import mock

import pytest

from serve_app.ledger.archive.export import Exporter, LostEntriesError
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.restore import verify
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import PAGE
from tests.ledger.export_cases import BERT, archive, archived, copy_of, fail_over
from tests.ledger.restore_cases import comes_back, sums_are_balances
from tests.store.setting import ACCOUNT, PAYER, Setting

STEPS = ("journal_claim", "put", "journal_trim")


async def trims_that_were_lost_are_made_up_for(s: Setting) -> None:
    """The new primary has every call that was archived, in two segments, and neither trim."""
    with archive() as kept:
        for number in range(PAGE + 20):
            await s.ledger.reserve(PAYER, f"h{number}", 0)
        copy = await copy_of(s)
        exporter = Exporter(s.store, kept)
        assert await exporter.export() == PAGE + 21
        await fail_over(s, copy)
        await s.ledger.reserve(PAYER, "later", 1)
        assert await exporter.export() == 1
        assert len(await archived(kept)) == PAGE + 22
        await comes_back(s, kept)


async def what_is_archived_and_here_leaves_before_the_lost_comes_back(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        await s.ledger.reserve(PAYER, "a", 5)
        copy = await copy_of(s)
        await exporter.export()
        await s.ledger.reserve(PAYER, "b", 6)
        await exporter.export()
        await fail_over(s, copy)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.lost) == ("exact", -6)
        assert (await s.ledger.balance(ACCOUNT)).held == 11
        await comes_back(s, kept)


async def an_exporter_that_comes_late_changes_nothing(s: Setting) -> None:
    """Whichever step of one waits, the other has exported twice in the meantime."""
    with archive() as kept:
        for step in STEPS:
            slow, quick = Exporter(s.store, kept), Exporter(s.store, kept)
            for number, exporter in enumerate((slow, quick, slow)):
                await s.ledger.reserve(PAYER, f"{step}{number}", 1)
                await exporter.export()
            await s.ledger.reserve(PAYER, f"{step}-late", 1)
            await overtaken(s, slow, quick, kept, step)
            for exporter in (slow, quick, slow):
                await s.ledger.reserve(BERT, f"after-{step}-{s.now_ms}", 0)
                await s.after(1)
                await exporter.export()
                assert (await verify(kept)).problems == [], step
            await s.audit()
        await sums_are_balances(s, kept)
        await comes_back(s, kept)


async def overtaken(s: Setting, slow: Exporter, quick: Exporter, kept: Archive, step: str) -> None:
    """Have ``slow`` wait before a step until ``quick`` has exported twice."""
    run, put, is_over = s.store.run, kept.put, False

    async def overtake(now: str) -> None:
        nonlocal is_over
        if is_over or now != step:
            return
        is_over = True
        for number in range(2):
            await quick.export()
            await s.ledger.reserve(PAYER, f"{step}-overtakes-{number}", 1)

    async def late_run(name: str, *given: Any) -> Any:
        await overtake(name)
        return await run(name, *given)

    async def late_put(*given: Any) -> Any:
        await overtake("put")
        return await put(*given)

    with mock.patch.object(s.store, "run", late_run), mock.patch.object(kept, "put", late_put):
        await slow.export()
    assert is_over


async def what_a_dead_exporter_had_begun_is_written_by_the_next(s: Setting) -> None:
    """It died before it wrote anything; calls made since then belong to the next segment."""
    with archive() as kept:
        await s.ledger.reserve(PAYER, "a", 1)

        async def dies(*_given: Any) -> Any:
            raise OSError("no space left")

        with mock.patch.object(kept, "put", dies), pytest.raises(OSError, match="no space"):
            await Exporter(s.store, kept).export()
        await s.after(1)
        await s.ledger.reserve(PAYER, "b", 1)
        assert await Exporter(s.store, kept).export() == 3
        tag = s.store.keys.tag(ACCOUNT)[1:-1]
        calls = [len(await kept.read(one)) for one in (await kept.segments())[tag]]
        assert calls == [1, 1]
        await comes_back(s, kept)


async def a_failover_between_a_segment_and_its_trim_is_seen(s: Setting) -> None:
    with archive() as kept:
        exporter, put = Exporter(s.store, kept), kept.put
        await s.ledger.reserve(PAYER, "a", 5)
        await exporter.export()
        copy = await copy_of(s)
        await s.ledger.reserve(PAYER, "b", 6)

        async def put_and_fail_over(*given: Any) -> Any:
            written = await put(*given)
            await fail_over(s, copy)
            return written

        with mock.patch.object(kept, "put", put_and_fail_over):
            await exporter.export()
        for one in (exporter, Exporter(s.store, kept)):
            with pytest.raises(LostEntriesError):
                await one.export()
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.outcome, done.lost) == ("exact", -6)
        await comes_back(s, kept)


async def only_the_server_that_was_compared_is_noted(s: Setting) -> None:
    key = s.store.keys.shard(s.store.keys.tag(ACCOUNT), "compared")
    history = (await s.store.run("history", [key])).decode()
    for compared in ("", "0" * len(history)):
        await s.store.run("history_compared", [key], [compared])
        assert not await s.store.command("EXISTS", key)
    assert not await s.jobs.may_have_lost(ACCOUNT)
    await s.store.run("history_compared", [key], [history])
    assert await s.store.command("GET", key) == history.encode()
    assert not await s.jobs.may_have_lost(ACCOUNT)
    await s.store.command("SET", key, "0" * len(history))
    assert await s.jobs.may_have_lost(ACCOUNT)


RACE_CASES = (
    a_failover_between_a_segment_and_its_trim_is_seen,
    only_the_server_that_was_compared_is_noted,
    what_a_dead_exporter_had_begun_is_written_by_the_next,
    trims_that_were_lost_are_made_up_for,
    what_is_archived_and_here_leaves_before_the_lost_comes_back,
    an_exporter_that_comes_late_changes_nothing,
)
