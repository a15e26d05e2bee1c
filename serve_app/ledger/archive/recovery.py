"""What an account should be after a failover lost some of its exported entries.

Invariant: what the new primary has done stands; what was lost is added to it once, within its own
month, and whatever contradicts that is reported instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.domain.credits import JournalEntry
from serve_app.ledger.jobs.types import JOB_HOLD_PREFIX
from serve_app.ledger.journal import LOST, Call
from serve_app.ledger.packed import (
    NO_ACCOUNT,
    AccountState,
    HoldState,
    pack_hold,
    unpack_account,
    unpack_whole_hold,
)
from serve_app.store.keys import join_member

MADE_AGAIN = frozenset({"grant", "expire"})
NO_CREDITS = frozenset({"tier", "period"})
PAYMENTS = frozenset({"topup", "bonus", "adjust"})
ENDS = {"commit": "committed", "void": "voided", "reap": "reaped", "refund": "voided"}


@dataclass(frozen=True, slots=True)
class Lost:
    """What one account lost, and what the ledger now has for it."""

    account: str
    base: bytes | None
    """The account before the lost entries."""
    now: bytes | None
    calls: list[Call]
    holds_now: dict[str, HoldState | None]
    payments_now: set[str]
    jobs_gone: set[str]
    """Ids of holds whose job has no record any more."""
    deadlines_now: dict[str, int]
    """When the holds that are open may be reaped."""

    def entries(self) -> list[tuple[Call, JournalEntry]]:
        """Return the account's entries, each with its call."""
        return [(c, e) for c in self.calls for e in c.entries if e.account == self.account]


@dataclass(slots=True)
class Plan:
    """How to restore an account."""

    wanted: AccountState
    is_exact: bool
    holds: dict[str, bytes] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    payments: dict[str, str] = field(default_factory=dict)
    topup: dict[str, str] | None = None
    refused: list[str] = field(default_factory=list)


def plan(lost: Lost) -> Plan:
    """Say what an account should be.

    Raises:
        ValueError: The account's month on the new primary is earlier than that of its lost entries.
    """
    states = [c.accounts[lost.account] for c in lost.calls if lost.account in c.accounts]
    last = unpack_account(states[-1]) if states else unpack_account(lost.base or NO_ACCOUNT)
    now = unpack_account(lost.now or NO_ACCOUNT)
    is_exact = now == unpack_account(lost.base or NO_ACCOUNT)
    if not is_exact and last.period > now.period:
        raise ValueError(f"it lost entries of {last.period} and has gone on in {now.period}")
    made = Plan(last if is_exact else now, is_exact)
    grant = packs = debt = held = 0
    entries = lost.entries()
    undone, free = _taken_back(entries), _free_already(lost)
    made_last = {(e.kind, e.entry_id): at for at, (_, e) in enumerate(entries)}
    for place, (call, entry) in enumerate(entries):
        sign = _sign(made, lost, entry, free, is_undone=place in undone)
        if entry.entry_id not in lost.jobs_gone and (is_exact or sign):
            _keep(made, lost, call, entry)
        if not sign:
            continue
        period = unpack_account(call.accounts[lost.account]).period
        is_of_now = period == made.wanted.period
        is_last = made_last[entry.kind, entry.entry_id] == place
        if entry.kind in MADE_AGAIN and is_of_now and is_last:
            continue  # an earlier one was taken back by an entry that is counted too
        grant += sign * entry.grant if is_of_now else 0
        packs, debt = packs + sign * entry.packs, debt + sign * entry.debt
        held += 0 if place in undone else sign * _held_by(lost, call, entry)
    for hold_id in lost.jobs_gone:
        _void(made, lost, hold_id)
    made.wanted = _settled(made.wanted, grant, packs, debt)
    made.wanted = made.wanted._replace(held=made.wanted.held + held)
    if not is_exact:
        made.wanted = _merged(made.wanted, unpack_account(lost.base or NO_ACCOUNT), last)
    topups = [c.topups[lost.account] for c in lost.calls if lost.account in c.topups]
    made.topup = topups[-1] if topups else None
    return made


def _sign(made: Plan, lost: Lost, entry: JournalEntry, free: set[str], *, is_undone: bool) -> int:
    """Return 1 for an entry that is added to the account, -1 for one that is taken from it."""
    if entry.entry_id not in lost.jobs_gone:
        return 0 if made.is_exact or _is_known(made, lost, entry) else 1
    if made.is_exact:
        return 0 if is_undone or entry.entry_id in free else -1
    return 1 if is_undone else 0  # as the entry that takes it back is added too


def _taken_back(entries: Sequence[tuple[Call, JournalEntry]]) -> set[int]:
    """Return the places of entries that an earlier recovery took back and did not bring back."""
    found: set[int] = set()
    back: list[int] = []
    branch: list[tuple[int, list[int]]] = []
    cut_off: dict[str, list[int]] = {}
    for place, (call, entry) in enumerate(entries):
        if entry.kind == LOST:
            first = int(entry.entry_id.partition("-")[0])
            ended = cut_off.pop(entry.entry_id, None) or _cut(branch, first)
            of_hold = {at: join_member(entry.account, entries[at][1].entry_id) for at in ended}
            begun = {of_hold[at] for at in ended if entries[at][1].kind == "reserve"}
            kept = {m for m, packed in call.holds.items() if m not in begun or not _is_free(packed)}
            back = [at for at, member in of_hold.items() if member in kept]
            found.update(of_hold.keys() - back)
            continue
        last = branch[-1][0] if branch else 0
        if entry.number <= last:
            cut_off[f"{entry.number}-{last}"] = _cut(branch, entry.number)
        branch.append((entry.number, [place, *back]))  # a recovery, which follows, has what is back
        back = []
    return found


def _cut(branch: list[tuple[int, list[int]]], first: int) -> list[int]:
    """Remove from a branch what follows from number ``first`` on, and return its places."""
    ended: list[int] = []
    while branch and branch[-1][0] >= first:
        ended += branch.pop()[1]
    return ended


def _free_already(lost: Lost) -> set[str]:
    """Return the holds of lost jobs that cost nothing in the end."""
    last = {member: packed for call in lost.calls for member, packed in call.holds.items()}
    return {hold_id for hold_id in lost.jobs_gone if _is_free(last[_member(lost, hold_id)])}


def _is_free(packed: bytes) -> bool:
    hold = unpack_whole_hold(packed)
    return hold.state != "held" and not hold.final


def untouched(lost: Lost) -> Plan:
    """Leave an account as it is; only note in the archive which of its holds are open."""
    made = Plan(unpack_account(lost.now or NO_ACCOUNT), is_exact=False)
    for call, entry in lost.entries():
        hold_id, member = entry.entry_id, _member(lost, entry.entry_id)
        hold = lost.holds_now.get(hold_id)
        if member in call.holds and hold is None:
            _void(made, lost, hold_id)
        elif hold is not None and hold_id in lost.deadlines_now:
            made.holds[member] = pack_hold(hold)
            made.deadlines[member] = lost.deadlines_now[hold_id]
    return made


def _member(lost: Lost, hold_id: str) -> str:
    return join_member(lost.account, hold_id)


def _keep(made: Plan, lost: Lost, call: Call, entry: JournalEntry) -> None:
    """Take over the hold or the payment of an entry."""
    member = _member(lost, entry.entry_id)
    if member in call.holds:
        made.holds[member] = call.holds[member]
        if unpack_whole_hold(call.holds[member]).state == "held":
            made.deadlines[member] = call.deadlines[member]
        else:
            made.deadlines.pop(member, None)
    if entry.kind in PAYMENTS:
        credits = entry.grant + entry.packs - entry.debt
        made.payments[entry.entry_id] = f"{entry.kind} {credits}"


def _held_by(lost: Lost, call: Call, entry: JournalEntry) -> int:
    if entry.kind != "reserve" and entry.kind not in ENDS:
        return 0
    packed = call.holds.get(_member(lost, entry.entry_id))
    if packed is None or entry.kind == "refund":
        return 0
    cost = unpack_whole_hold(packed).cost
    return cost if entry.kind == "reserve" else -cost


def _is_known(made: Plan, lost: Lost, entry: JournalEntry) -> bool:
    """Return whether the new primary has done the same, or something that rules it out."""
    if entry.kind in NO_CREDITS:
        return True
    if entry.kind in PAYMENTS:
        return entry.entry_id in lost.payments_now
    if entry.kind == "reserve":
        return lost.holds_now.get(entry.entry_id) is not None
    if entry.kind == "hit":  # a free one leaves only a short-lived hold
        hit = lost.holds_now.get(entry.entry_id)
        return hit is not None and hit.cost > 0
    if entry.kind in ENDS:
        hold = lost.holds_now.get(entry.entry_id)
        if hold is None or hold.state == "held":
            return False
        if hold.state != ENDS[entry.kind]:
            made.refused.append(f"{entry.kind} {entry.entry_id}: it was {hold.state} since")
        return True
    return False


def _void(made: Plan, lost: Lost, hold_id: str) -> None:
    member = _member(lost, hold_id)
    packed = next(c.holds[member] for c in lost.calls if member in c.holds)
    hold = unpack_whole_hold(packed)._replace(state="voided", final=0)
    made.holds[member] = pack_hold(hold)
    made.deadlines.pop(member, None)


def _settled(state: AccountState, grant: int, packs: int, debt: int) -> AccountState:
    """Add what was lost: spending uses grant, then packs, then debt; credits repay debt first."""
    grant, packs, debt = state.grant + grant, state.packs + packs, state.debt + debt
    if grant < 0:
        packs, grant = packs + grant, 0
    if debt < 0:
        packs, debt = packs - debt, 0
    if packs < 0:
        debt, packs = debt - packs, 0
    from_grant = min(debt, grant)
    from_packs = min(debt - from_grant, packs)
    debt -= from_grant + from_packs
    return state._replace(
        grant=grant - from_grant,
        packs=packs - from_packs,
        debt=debt,
        floor=max(state.floor, debt),
    )


def _merged(state: AccountState, base: AccountState, last: AccountState) -> AccountState:
    """Add look-ups, the plan and the top-up's threshold that the new primary does not know."""
    if last.period == state.period:
        before = base.lookups_used if base.period == state.period else 0
        state = state._replace(lookups_used=state.lookups_used + last.lookups_used - before)
    if state.monthly_grant == base.monthly_grant:
        state = state._replace(monthly_grant=last.monthly_grant, has_plan=last.has_plan)
    if state.topup_threshold == base.topup_threshold:
        state = state._replace(topup_threshold=last.topup_threshold)
    return state


def is_job(hold_id: str) -> bool:
    """Return whether a hold belongs to a job."""
    return hold_id.startswith(JOB_HOLD_PREFIX)
