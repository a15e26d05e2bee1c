"""Directed cases of beginning an archive again; run like the others."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from serve_app.domain.credits import AccountPayer
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.payments import TopupSettings
from serve_app.ledger.archive import opening
from serve_app.ledger.archive.export import Exporter, OtherArchiveError
from serve_app.ledger.archive.opening import OpeningRefusedError, begin_archive
from serve_app.ledger.archive.reconcile import Reconciler, ReconcileRefusedError
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import PAGE, Journal
from serve_app.ledger.packed import FORMAT_1_BYTES
from serve_app.store.keys import BEGINNING_KEY
from tests.ledger.export_cases import BERT, archive, archived, copy_of, fail_over
from tests.ledger.restore_cases import DECEMBER, comes_back, ledger_state
from tests.store.setting import ACCOUNT, PAYER, Setting

TOPUP = TopupSettings(20, 100, 500, 1_200)


def after(place: object, name: str, then: Callable[[], Awaitable[object]]) -> Any:
    """Have ``then`` run after the first call of a coroutine function."""
    real, calls = getattr(place, name), iter([1])

    async def both(*args: Any) -> Any:
        found = await real(*args)
        for _ in calls:
            await then()
        return found

    return mock.patch.object(place, name, both)


def folder(kept: Archive) -> Path:
    assert kept._folder is not None
    return kept._folder


def n_aside(kept: Archive) -> int:
    """Count the calls that were set aside."""
    return sum(path.read_text().count("\n") for path in folder(kept).rglob("before_*.json"))


async def n_in_streams(s: Setting) -> int:
    pages = [page for tag in s.journal.tags() async for page in s.journal.pages(tag)]
    return sum(map(len, pages))


async def an_archive_that_is_lost_is_begun_anew(s: Setting) -> None:
    """With accounts in every state, ids with colons, after a failover that was reconciled."""
    names = ["a", "a:b", "a:b:c", "test~a", "x:a:y", "r:p"]
    with archive() as lost, archive() as kept:
        exporter = Exporter(s.store, lost)
        await s.topups.disable("nobody", "never mind")
        for name in names:
            await s.ledger.topup(name, f"b:c:{name}", 30)
            await s.topups.enable(name, TOPUP)
            await s.ledger.reserve(AccountPayer(name, "basic"), f"p:p:{name}q", 60)
            await s.ledger.reserve(AccountPayer(name, "basic"), "deep", 45)
            await s.ledger.commit(name, "deep", 44)
            await s.ledger.count_hit(name, "basic", 1, "hit:1")
        await exporter.export()
        copy = await copy_of(s)
        for name in names[:3]:
            await s.ledger.topup(name, "pay:later", 9)
            await s.ledger.reserve(AccountPayer(name, "basic"), "lost", 2)
        await s.ledger.count_hit("looker", "free", 1, "hit:free")
        await exporter.export()
        await fail_over(s, copy)
        await s.ledger.reserve(AccountPayer("a", "basic"), "since", 1)
        assert {one.outcome for one in await Reconciler(s.store, lost).reconcile()} == {
            "exact",
            "merged",
        }
        await s.after(60_000)
        await s.ledger.topup("a:b", "pay:late", 7)
        before, n_calls = await ledger_state(s.store), await n_in_streams(s)
        keeper = Exporter(s.store, kept)
        with pytest.raises(OtherArchiveError, match="run `afa ledger begin-archive`"):
            await keeper.export()
        assert (await begin_archive(s.store, kept)).calls_kept == n_aside(kept) == n_calls
        assert await ledger_state(s.store) == before
        with pytest.raises(OpeningRefusedError, match="in this archive already"):
            await begin_archive(s.store, kept)
        await comes_back(s, kept)
        # Payments and ended holds are known, open holds can end, and exports go on.
        packs = (await s.ledger.balance("a:b", "basic")).packs
        assert (await s.ledger.topup("a:b", "b:c:a:b", 30)).packs == packs
        held = (await s.ledger.commit("a", "deep", 44)).held
        assert (await s.ledger.commit("a", "since", 1)).held == held - 1
        assert await keeper.export() > 0
        await comes_back(s, kept)


async def what_a_failover_loses_after_a_beginning_comes_back(s: Setting) -> None:
    """Even if version 0.1 had packed the account."""
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await s.ledger.reserve(PAYER, "a", 5)
        await Exporter(s.store, lost).export()
        balance = s.store.keys.balance(ACCOUNT)
        packed = await s.store.command("GET", balance)
        await s.store.command("SET", balance, packed[:FORMAT_1_BYTES])
        await begin_archive(s.store, kept)
        copy = await copy_of(s)
        await s.at(DECEMBER)
        await s.ledger.commit(ACCOUNT, "a", 3)
        await Exporter(s.store, kept).export()
        await fail_over(s, copy)
        (done,) = await Reconciler(s.store, kept).reconcile()
        assert (done.account, done.outcome) == (ACCOUNT, "exact")
        await comes_back(s, kept)


async def a_beginning_that_broke_off_is_gone_on_with(s: Setting) -> None:
    """After a segment, within a trim, or before the head; calls made meanwhile are in it."""
    real = Journal.trim

    async def trim(self: Journal, tag: str, until: str) -> None:
        (page,) = [page async for page in self.pages(tag)][:1]
        await real(self, tag, page[PAGE // 2].call_id)
        raise ServiceUnavailableError("gone")

    breaks: list[Any] = [
        mock.patch.object(Journal, "trim", side_effect=ServiceUnavailableError("gone")),
        mock.patch.object(Journal, "trim", trim),
        mock.patch.object(Archive, "put_head", side_effect=ServiceUnavailableError("gone")),
    ]
    with archive() as lost, archive() as kept:
        for payer in (PAYER, BERT):
            await s.ledger.topup(payer.account, "pay:1", 5000)
        await Exporter(s.store, lost).export()
        for number in range(PAGE + 20):
            for payer in (PAYER, BERT):
                await s.ledger.reserve(payer, f"a{number}", 1)
        n_calls = await n_in_streams(s)
        for number, broken in enumerate(breaks):
            with broken, pytest.raises(ServiceUnavailableError):
                await begin_archive(s.store, kept)
            await s.ledger.reserve(PAYER, f"after-{number}", 1)
        await begin_archive(s.store, kept)
        await comes_back(s, kept)
        seen = "".join(path.read_text() for path in folder(kept).rglob("before_*.json"))
        assert all(seen.count(f'"a{number}"') for number in range(PAGE + 20))
        assert n_aside(kept) >= n_calls


async def the_service_runs_while_an_archive_is_begun(s: Setting) -> None:
    """It spends, opens accounts and exports what needs no opening."""
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, lost).export()
        await s.ledger.reserve(PAYER, "a", 5)
        await s.ledger.reserve(BERT, "a", 5)
        keeper = Exporter(s.store, kept)

        async def spend() -> None:
            await s.ledger.commit(ACCOUNT, "a", 5)
            await s.ledger.reserve(PAYER, "b", 5)
            await s.ledger.topup("carl", "pay:1", 5)

        with after(opening, "_read_states", spend), after(Journal, "trim", keeper.export):
            await begin_archive(s.store, kept)
        assert (await s.ledger.balance(ACCOUNT, "basic")).held == 5
        await comes_back(s, kept)


async def a_clock_that_was_ahead_does_not_stop_a_new_archive(s: Setting) -> None:
    """Reconciled calls have later ids than all that the ledger writes now."""
    stream, ahead = s.store.keys.shard(s.store.keys.tag(ACCOUNT), "j"), "9999999999999-0"
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, lost).export()
        copy = await copy_of(s)
        await s.store.command("XADD", stream, ahead, "e", "")
        await s.store.command("XDEL", stream, ahead)
        await s.ledger.reserve(PAYER, "a", 5)
        await Exporter(s.store, lost).export()
        await fail_over(s, copy)
        assert len(await Reconciler(s.store, lost).reconcile()) == 1
        await begin_archive(s.store, kept)
        for name in ("b", "c"):
            await s.ledger.reserve(PAYER, name, 5)
            assert await Exporter(s.store, kept).export() > 0
        await comes_back(s, kept)


async def what_another_exporter_has_taken_is_noticed(s: Setting) -> None:
    """Before the opening, after it, and of a shard that needed none."""
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        keeper = Exporter(s.store, lost)
        await keeper.export()
        for number, (place, name) in enumerate(
            [(opening, "_read_states"), (Archive, "put"), (Journal, "trim")]
        ):

            async def export(number: int = number) -> None:
                await s.ledger.reserve((PAYER, PAYER, BERT)[number], f"after-{number}", 5)
                await keeper.export()

            with (
                after(place, name, export),
                pytest.raises(OpeningRefusedError, match="is exported to another place"),
            ):
                await begin_archive(s.store, kept)
            for begun in (await kept.segments()).get(s.store.keys.tag(ACCOUNT)[1:-1], []):
                await kept.drop(begun)
        assert await kept.head() == {}
        await begin_archive(s.store, kept)
        await comes_back(s, kept)


async def a_second_beginning_at_once_is_refused(s: Setting) -> None:
    with archive() as lost, archive() as kept:
        for account in (ACCOUNT, "bert"):
            await s.ledger.topup(account, "pay:1", 500)
        await Exporter(s.store, lost).export()

        async def second() -> None:
            with pytest.raises(OpeningRefusedError, match="an archive is being begun"):
                await begin_archive(s.store, kept)

        async def overtaken() -> None:
            await s.store.command("SET", BEGINNING_KEY, "another")

        with (
            after(Journal, "trim", overtaken),
            pytest.raises(OpeningRefusedError, match="another `afa ledger begin-archive`"),
        ):
            await begin_archive(s.store, kept)
        await s.store.command("DEL", BEGINNING_KEY)
        with after(opening, "_read_states", second):
            await begin_archive(s.store, kept)
        await comes_back(s, kept)


async def a_long_look_at_a_ledger_does_not_end_the_lock(s: Setting) -> None:
    async def outlast_every_lock() -> None:
        await s.store.command("DEL", BEGINNING_KEY)

    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, lost).export()
        with after(opening, "_names", outlast_every_lock):
            await begin_archive(s.store, kept)
        await comes_back(s, kept)


async def the_keeper_goes_on_as_soon_as_it_can(s: Setting) -> None:
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, lost).export()

        async def spend() -> None:
            await s.ledger.reserve(PAYER, "a", 5)
            assert await Exporter(s.store, kept).export() > 0

        with after(Journal, "trim", spend):
            await begin_archive(s.store, kept)
        assert len((await kept.segments())[s.store.keys.tag(ACCOUNT)[1:-1]]) == 2
        await comes_back(s, kept)


async def a_place_with_an_archive_is_left_alone(s: Setting) -> None:
    """Even one of single calls without a head, as in copies, or one from another beginning."""
    with archive() as kept, archive() as other, archive() as begun:
        await s.ledger.topup(ACCOUNT, "pay:1", 7)
        await Exporter(s.store, other).export()
        await begin_archive(s.store, begun)
        await fail_over(s, {})
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, kept).export()
        for place in (other, begun):
            before = await archived(place)
            for _ in range(2):
                with pytest.raises(OpeningRefusedError, match="begun in an empty place"):
                    await begin_archive(s.store, place)
                (folder(place) / "head.json").unlink(missing_ok=True)
            assert await archived(place) == before


async def a_beginning_without_entries_is_known(s: Setting) -> None:
    with archive() as lost, archive() as kept:
        copy = await copy_of(s)
        await s.topups.enable(ACCOUNT, TOPUP)
        await Exporter(s.store, lost).export()
        with (
            mock.patch.object(Archive, "put_head", side_effect=ServiceUnavailableError("gone")),
            pytest.raises(ServiceUnavailableError),
        ):
            await begin_archive(s.store, kept)
        await begin_archive(s.store, kept)
        await comes_back(s, kept)
        await fail_over(s, copy)
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        with pytest.raises(ReconcileRefusedError, match="before its archive was begun"):
            await Reconciler(s.store, kept).reconcile()


async def no_archive_begins_with_wrong_sums(s: Setting) -> None:
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, lost).export()
        base = s.store.keys.shard(s.store.keys.tag(ACCOUNT), "jb")
        await s.store.command("HINCRBY", base, f"{ACCOUNT} g", 1)
        with pytest.raises(OpeningRefusedError, match=f"{ACCOUNT}: balance: balance"):
            await begin_archive(s.store, kept)
        assert await kept.segments() == {}


async def what_a_failover_lost_of_a_beginning_is_refused(s: Setting) -> None:
    with archive() as lost, archive() as kept:
        await s.ledger.topup(ACCOUNT, "pay:1", 500)
        await Exporter(s.store, lost).export()
        copy = await copy_of(s)
        await s.ledger.reserve(PAYER, "a", 5)
        await begin_archive(s.store, kept)
        await fail_over(s, copy)
        with pytest.raises(ReconcileRefusedError, match="before its archive was begun"):
            await Reconciler(s.store, kept).reconcile()


OPENING_CASES = (
    an_archive_that_is_lost_is_begun_anew,
    what_a_failover_loses_after_a_beginning_comes_back,
    a_beginning_that_broke_off_is_gone_on_with,
    the_service_runs_while_an_archive_is_begun,
    a_clock_that_was_ahead_does_not_stop_a_new_archive,
    what_another_exporter_has_taken_is_noticed,
    a_second_beginning_at_once_is_refused,
    a_long_look_at_a_ledger_does_not_end_the_lock,
    the_keeper_goes_on_as_soon_as_it_can,
    a_beginning_without_entries_is_known,
    a_place_with_an_archive_is_left_alone,
    no_archive_begins_with_wrong_sums,
    what_a_failover_lost_of_a_beginning_is_refused,
)
