"""After a failover: restore what was exported but is unknown to the new primary.

Invariant: an account is restored once, in one script, and only from the state that was read;
the archive then says which of its entries were taken back.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Literal

from serve_app.ledger.archive.export import Marks, lost_calls, states
from serve_app.ledger.archive.fold import Fold, read_chain
from serve_app.ledger.archive.recovery import Lost, Plan, is_job, plan, untouched
from serve_app.ledger.archive.segments import Archive, Segment, cut_off
from serve_app.ledger.jobs.records import write_lost_job
from serve_app.ledger.jobs.types import JOB_HOLD_PREFIX
from serve_app.ledger.journal import Call, Journal
from serve_app.ledger.ledger import PAYMENT_ID_KEPT_MS
from serve_app.ledger.packed import (
    ACCOUNT,
    NO_ACCOUNT,
    HoldState,
    unpack_account,
    unpack_whole_hold,
)
from serve_app.store.client import Args, Store
from serve_app.store.keys import join_member, split_member

TRIES = 20
IDS_AT_ONCE = 1000

Outcome = Literal["exact", "merged", "refused", "missing"]


class ReconcileRefusedError(ValueError):
    """There is nothing to reconcile with, or no exact way to do it."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The outcome for one account.

    Attributes:
        outcome: ``exact``: as it was. ``merged``: what was lost is added to what was done since.
            ``refused``: some of it was not added, see ``why``. ``missing``: this was a trial.
        change: Credits that were added, or taken if negative.
        lost: Sum of its lost entries.
    """

    account: str
    n_entries: int
    outcome: Outcome
    change: int
    lost: int
    why: str


class Reconciler:
    """Compares the ledger with its archive."""

    def __init__(self, store: Store, archive: Archive) -> None:
        self.store = self._store = store
        self._archive = archive
        self._journal = Journal(store)

    async def reconcile(self, *, is_trial: bool = False) -> list[Reconciled]:
        """Restore every account that lost exported entries; call it again if it was interrupted.

        Args:
            is_trial: Only report what is missing; every outcome is then ``missing``.

        Raises:
            ReconcileRefusedError: The ledger is empty, the archive is incomplete, or its entries
                were archived by release 0.1.
            SegmentError: A segment was damaged.
            ServiceUnavailableError: The ledger is unavailable; call again.
        """
        head, known = await self._archive.head(), await self._archive.segments()
        _refuse_unless_whole(cut_off(head, known))
        tags = self._journal.tags()
        seen = await states(self._store, tags)
        if known and not any(n_calls or any(marks) for n_calls, marks in seen):
            raise ReconcileRefusedError("this ledger is empty: run `afa ledger restore`")
        has_exported = any(any(marks) for _, marks in seen)
        done: list[Reconciled] = []
        for tag, (_, marks) in zip(tags, seen, strict=True):
            listed = known.get(tag[1:-1], [])
            calls = await lost_calls(self._store, self._archive, tag, listed, marks)
            if calls:
                await self._refuse_half_restored(tag, marks)
                if not has_exported and calls[0].call_id == listed[0].first:
                    _refuse_emptied(calls[0])
                done += await self._shard(tag, listed, calls, is_trial)
            if calls and not is_trial:
                base = self._store.keys.shard(tag, "jb")
                await self._store.command("HSET", base, "reconciled", listed[-1].last)
                await self._store.command("DEL", self._store.keys.shard(tag, "lost"))
        return done

    async def _refuse_half_restored(self, tag: str, marks: Marks) -> None:
        """What leaves the stream is summed and marked at once; a restore marks a shard last."""
        base = self._store.keys.shard(tag, "jb")
        n_fields, is_claimed = await self._store.batch(
            [("HLEN", base), ("HEXISTS", base, "claimed")]
        )
        if n_fields > is_claimed and not any(marks):
            raise ReconcileRefusedError(
                f"shard {tag[1:-1]} was restored in part: empty this Redis and run `afa ledger "
                "restore` again"
            )

    async def _shard(
        self, tag: str, listed: list[Segment], calls: list[Call], is_trial: bool
    ) -> list[Reconciled]:
        if any(call.entries and not call.accounts for call in calls):
            raise ReconcileRefusedError(
                f"shard {tag[1:-1]} lost entries that 0.1 had archived, without states: correct "
                "its accounts by hand with `afa credits adjust`"
            )
        if any(call.is_opening for call in calls):
            raise ReconcileRefusedError(
                f"shard {tag[1:-1]} lost what came before its archive was begun: correct its "
                "accounts by hand with `afa credits adjust`, then begin another archive"
            )
        base, last_kept, problems = Fold(), "", list[str]()
        async for _, call in read_chain(self._archive, listed, problems):
            if call.call_id == calls[0].call_id:
                break
            base.add(call)
            last_kept = call.call_id
        _refuse_unless_whole(problems)
        if last_kept and not is_trial:  # drop from the stream what is archived
            await self._journal.trim(tag, last_kept)
        of_account: dict[str, list[Call]] = {}
        for call in calls:
            names = {entry.account for entry in call.entries} | {*call.accounts, *call.topups}
            for name in sorted(names):
                of_account.setdefault(name, []).append(call)
        return [
            await self._account(name, base.accounts.get(name), theirs, is_trial)
            for name, theirs in of_account.items()
        ]

    async def _account(
        self, account: str, base: bytes | None, calls: list[Call], is_trial: bool
    ) -> Reconciled:
        for _ in range(TRIES):
            lost = await self._look(account, base, calls)
            entries = [entry for _, entry in lost.entries()]
            total = sum(entry.grant + entry.packs - entry.debt for entry in entries)
            if is_trial:
                return Reconciled(account, len(entries), "missing", 0, total, "")
            why = ""
            try:
                wanted = plan(lost)
            except ValueError as error:
                why = str(error)
                wanted = untouched(lost)
            before = unpack_account(lost.now or NO_ACCOUNT)
            if await self._apply(lost, wanted) != b"CHANGED":
                for hold_id in lost.jobs_gone if not why else ():
                    await write_lost_job(
                        self._store, account, hold_id.removeprefix(JOB_HOLD_PREFIX)
                    )
                why = "; ".join([why, *wanted.refused]).strip("; ")
                after = wanted.wanted
                change = (after.grant + after.packs - after.debt) - (
                    before.grant + before.packs - before.debt
                )
                outcome: Outcome = "exact" if wanted.is_exact else "merged"
                return Reconciled(
                    account, len(entries), "refused" if why else outcome, change, total, why
                )
            await asyncio.sleep(0)
        raise ReconcileRefusedError(f"{account} is too busy now; run the command again")

    async def _look(self, account: str, base: bytes | None, calls: list[Call]) -> Lost:
        keys, due = self._store.keys, self._store.keys.shard(self._store.keys.tag(account), "due")
        lost = Lost(account, base, None, calls, {}, set(), set(), {})
        ids = sorted({entry.entry_id for _, entry in lost.entries()})
        # The balance is read first: if what follows is newer, the balance has changed too.
        now = await self._store.command("GET", keys.balance(account))
        holds: dict[str, HoldState | None] = {}
        payments: set[str] = set()
        deadlines: dict[str, int] = {}
        for at in range(0, len(ids), IDS_AT_ONCE):
            some = ids[at : at + IDS_AT_ONCE]
            rows = await self._store.batch(
                [
                    command
                    for name in some
                    for command in (
                        ("GET", keys.hold(account, name)),
                        ("EXISTS", keys.payment(account, name)),
                        ("ZSCORE", due, join_member(account, name)),
                    )
                ]
            )
            for place, name in enumerate(some):
                raw, is_paid, deadline = rows[3 * place : 3 * place + 3]
                if deadline is not None:
                    deadlines[name] = int(float(deadline))
                holds[name] = unpack_whole_hold(raw) if raw is not None else None
                if is_paid:
                    payments.add(name)
        reserved = {entry.entry_id for _, entry in lost.entries() if entry.kind == "reserve"}
        gone = set()
        for name in sorted(reserved):
            job = keys.job(account, name.removeprefix(JOB_HOLD_PREFIX))
            if is_job(name) and not await self._store.command("HEXISTS", job, "state"):
                gone.add(name)
        return Lost(account, base, now, calls, holds, payments, gone, deadlines)

    async def _apply(self, lost: Lost, wanted: Plan) -> bytes:
        keys, account = self._store.keys, lost.account
        tag = keys.tag(account)
        entry_id = f"recover:{lost.calls[-1].call_id}"
        entries = [entry for _, entry in lost.entries()]
        numbers = f"{entries[0].number}-{entries[-1].number}" if entries else ""
        sums = [0, 0, 0]
        for e in entries:
            sums = [sums[0] + e.grant, sums[1] + e.packs, sums[2] + e.debt]
        names = [
            *(keys.balance(account), keys.shard(tag, "due"), keys.shard(tag, "j")),
            *keys.funding(account),
            *(keys.shard(tag, "e"), keys.payment(account, entry_id)),
            *(keys.hold(*split_member(member.encode())) for member in wanted.holds),
            *(keys.payment(account, name) for name in wanted.payments),
        ]
        flat = [word for pair in (wanted.topup or {}).items() for word in pair]
        args: Args = [
            *(account, lost.now or b"", ACCOUNT.pack(*wanted.wanted), entry_id),
            *(PAYMENT_ID_KEPT_MS, len(wanted.holds), json.dumps(flat) if flat else ""),
            numbers,
            *sums,
            *(
                word
                for member, packed in wanted.holds.items()
                for word in (member, packed, str(wanted.deadlines.get(member, "")))
            ),
            *wanted.payments.values(),
        ]
        return bytes(await self._store.run("recover", names, args))


def _refuse_emptied(first: Call) -> None:
    """Bringing everything back from here would void every job, as their records are gone."""
    if not first.is_opening:
        raise ReconcileRefusedError(
            "this ledger came back empty: stop the service, empty this Redis, and run "
            "`afa restore` with a backup, or `afa ledger restore` if there is none"
        )


def _refuse_unless_whole(problems: list[str]) -> None:
    if problems:
        raise ReconcileRefusedError(
            f"the archive is not whole, so nothing follows from it exactly: {problems[0]}"
        )
