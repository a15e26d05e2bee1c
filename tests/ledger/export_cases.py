"""Directed cases of the journal's export, and of bringing back what a failover lost."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from serve_app.domain.credits import AccountPayer, JournalEntry
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger import ledger
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.restore import verify
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.ended_holds import HOLDS_AT_ONCE, READ_AT_ONCE, forget_ended
from serve_app.ledger.jobs.types import NewJob
from serve_app.store.keys import join_member
from tests.ledger.ledger_model import DAY_MS
from tests.store.setting import ACCOUNT, PAYER, START_MS, Setting, some_work

BERT = AccountPayer("bert", "basic")


@contextmanager
def archive() -> Iterator[Archive]:
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        yield Archive(Path(folder).as_uri())


async def archived(kept: Archive) -> list[JournalEntry]:
    """Return all entries of an archive, by shard and time."""
    segments = [segment for listed in (await kept.segments()).values() for segment in listed]
    calls = [call for segment in segments for call in await kept.read(segment)]
    return [entry for call in calls for entry in call.entries]


async def copy_of(s: Setting) -> dict[bytes, tuple[int, bytes]]:
    """Read everything, as a replica has it that stops receiving now."""
    keys = await s.store.command("KEYS", "*")
    return {
        key: (
            max(0, await s.store.command("PTTL", key.decode())),
            await s.store.command("DUMP", key.decode()),
        )
        for key in keys
    }


async def fail_over(s: Setting, copy: dict[bytes, tuple[int, bytes]]) -> None:
    """Continue with what the replica had; time does not go back."""
    await s.store.command("FLUSHALL")
    for key, (ttl_ms, dump) in copy.items():
        await s.store.command("RESTORE", key.decode(), ttl_ms, dump)
    await s.at(s.now_ms)


async def exported_journal_still_audits(s: Setting) -> None:
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for number in range(5):
            await s.ledger.reserve(PAYER, f"a{number}", 15)
            await s.ledger.reserve(BERT, f"b{number}", number)
            await s.ledger.commit(ACCOUNT, f"a{number}", 5)
        total = (await s.journal.audit()).entries
        assert await exporter.export() == total == 17
        assert await exporter.export() == 0
        await s.audit()
        assert await s.journal.entries(ACCOUNT) == []
        await s.ledger.reserve(PAYER, "later", 3)
        await s.ledger.void("bert", "b4")
        await s.ledger.topup("carl", "pay:1", 7)
        await s.ledger.reserve(AccountPayer("carl", "basic"), "c1", 80)
        await s.ledger.topup("dora", "pay:1", 9)
        assert (await s.journal.audit()).entries == 23
        await s.audit()
        assert await exporter.export() == 6
        await s.audit()
        await s.ledger.topup("carl", "pay:2", 20)
        entries = await archived(kept)
        sums = [sum(e.grant for e in entries if e.account == who) for who in (ACCOUNT, "bert")]
        assert sums == [32, 54]
        assert (await s.ledger.balance(ACCOUNT)).grant == 32
        await s.ledger.adjust("dora", "fix:1", -2, "ann", "typo")
        assert (await s.journal.audit()).entries == 25
        await s.audit()
        await exporter.export()
        notes = {e.entry_id: e.note for e in await archived(kept) if e.note}
        assert notes == {"fix:1": '{"operator": "ann", "reason": "typo"}'}


async def many_entries_of_one_call_are_folded(s: Setting) -> None:
    payers = [AccountPayer(f"owner{number}", "basic") for number in range(20)]
    with archive() as kept:
        for cost in (1, 2):
            calls = (s.ledger.reserve(payer, f"h{cost}", cost) for payer in payers)
            await asyncio.gather(*calls)
        assert await Exporter(s.store, kept).export() == 3 * len(payers)
        keys = s.store.keys
        assert sum(len(listed) for listed in (await kept.segments()).values()) == keys.shards
        await s.ledger.topup("owner0", "pay:1", 5)
        report = await s.journal.audit()
        assert (report.accounts, report.entries, report.open_holds) == (20, 61, 40)
        await s.audit()


async def export_goes_on_after_a_crash(s: Setting) -> None:
    with archive() as kept:
        await s.ledger.reserve(PAYER, "a", 5)
        run = s.store.run

        async def fail_to_trim(name: str, *given: object) -> object:
            if name == "journal_trim":
                raise ServiceUnavailableError("gone")
            return await run(name, *given)  # type: ignore[arg-type]

        with (
            mock.patch.object(s.store, "run", fail_to_trim),
            pytest.raises(ServiceUnavailableError),
        ):
            await Exporter(s.store, kept).export()
        await s.ledger.commit(ACCOUNT, "a")
        await s.audit()
        assert await Reconciler(s.store, kept).reconcile() == []
        exporter = Exporter(s.store, kept)
        assert await exporter.export() == 1
        await s.audit()
        kinds = sorted((e.number, e.kind) for e in await archived(kept))
        assert kinds == [(1, "grant"), (2, "reserve"), (3, "commit")]
        assert await exporter.export() == 0


async def ended_holds_are_forgotten_two_days_after_their_export(s: Setting) -> None:
    names = ("open", "done", "void", "reap", "hit:1", "job:j", "late")

    async def known() -> set[str]:
        keys = (s.store.keys.hold(ACCOUNT, name) for name in names)
        return {
            name
            for name, key in zip(names, keys, strict=True)
            if await s.store.command("EXISTS", key)
        }

    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for name in ("open", "done", "void", "late"):
            await s.ledger.reserve(PAYER, name, 1)
        await s.ledger.reserve(PAYER, "reap", 1, ttl_s=1)
        await s.jobs.submit(NewJob("j", ACCOUNT, "basic", some_work(), 1, "print"))
        await s.ledger.topup(ACCOUNT, "pay:1", 1)
        await s.ledger.commit(ACCOUNT, "done")
        await s.ledger.void(ACCOUNT, "void")
        await s.ledger.count_hit(ACCOUNT, "basic", hits=6, hit_id="hit:1")
        await exporter.export()
        ended = s.store.keys.shard(s.store.keys.tag(ACCOUNT), "e")
        assert await s.store.command("LRANGE", ended, 0, -1) == [
            f"{s.now_ms} {join_member(ACCOUNT, name)}".encode()
            for name in ("done", "void", "hit:1")
        ]
        await s.after(1000)
        assert await s.ledger.reap_due() == 1
        held = await s.jobs.claim("w1")
        assert held is not None
        assert await s.jobs.finish(held, b"")
        await exporter.export()
        await s.ledger.commit(ACCOUNT, "late")
        await s.at(START_MS + 2 * DAY_MS - 1)
        assert await forget_ended(s.store) == 0
        assert await known() == set(names)
        await s.after(1)
        assert await forget_ended(s.store) == 3
        assert await known() == {"open", "reap", "job:j", "late"}
        await s.after(1000)
        assert await forget_ended(s.store) == 2
        await s.after(30 * DAY_MS)
        assert await forget_ended(s.store) == 0
        await s.ledger.commit(ACCOUNT, "late")
        await exporter.export()
        await s.after(2 * DAY_MS)
        assert await forget_ended(s.store) == 1
        assert await known() == {"open"}
        assert await s.store.command("EXISTS", ended) == 0
        await s.audit()


async def many_ended_holds_are_forgotten_once(s: Setting) -> None:
    async def begin_and_end(hold_id: str) -> None:
        await s.ledger.reserve(PAYER, hold_id, 0)
        await s.ledger.commit(ACCOUNT, hold_id)

    with archive() as kept:
        exporter = Exporter(s.store, kept)
        for number in range(2 * READ_AT_ONCE + 1):
            await begin_and_end(f"alone{number}")
        await asyncio.gather(*(begin_and_end(f"beside{n}") for n in range(HOLDS_AT_ONCE)))
        await exporter.export()
        await s.after(2 * DAY_MS)
        await begin_and_end("today")
        await exporter.export()
        both = await asyncio.gather(forget_ended(s.store), forget_ended(s.store))
        assert sum(both) == 2 * READ_AT_ONCE + 1 + HOLDS_AT_ONCE
        keys = await s.store.command("KEYS", s.store.keys.hold(ACCOUNT, "*"))
        assert keys == [s.store.keys.hold(ACCOUNT, "today").encode()]
        await s.audit()


async def sums_of_any_size_are_folded_and_taken_back(s: Setting) -> None:
    """Before there was a bound, a large amount could stop the export for good."""
    with archive() as kept:
        exporter = Exporter(s.store, kept)
        with mock.patch.object(ledger, "MOST_CREDITS", 10**30):
            for number, credits in enumerate((10**17, 10**22)):
                await s.ledger.reserve(PAYER, f"a{number}", 1)
                await s.ledger.reserve(BERT, f"b{number}", 1)
                await s.ledger.topup(ACCOUNT, f"pay:{number}", credits)
                assert await exporter.export() > 0
                await s.audit()
                await s.ledger.adjust(ACCOUNT, f"fix:{number}", -credits, "ann", "typo")
                assert await exporter.export() == 1
                await s.audit()
        assert (await s.ledger.balance(ACCOUNT)).remaining == 58
        assert (await verify(kept)).problems == []


EXPORT_CASES = (
    exported_journal_still_audits,
    many_entries_of_one_call_are_folded,
    export_goes_on_after_a_crash,
    ended_holds_are_forgotten_two_days_after_their_export,
    many_ended_holds_are_forgotten_once,
    sums_of_any_size_are_folded_and_taken_back,
)
