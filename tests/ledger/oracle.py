"""Credits by the specification alone, in the standard library and without the product's code.

Billing model 1: monthly credits refresh at the start of each UTC month. 3: cache look-ups have
their own monthly allowance. 5: packs never expire; automatic top-up has a monthly cap. 6: grace
of up to 24 hours below zero. 7: what fails is given back. What the specification leaves open is as
in the README: spending takes grant, packs, then grace; what comes in repays debt first; a higher
plan counts at once, a lower one from the next month; three declined charges end automatic top-up.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

DAY_MS = 86_400_000
DECLINES = 3


@dataclass(frozen=True)
class Terms:
    """What a plan gives: credits and free look-ups a month, and how far below zero one may go."""

    credits: int
    lookups: int
    grace: int


@dataclass
class Hold:
    """Credits set aside, and where they came from."""

    cost: int
    taken: tuple[int, int, int]
    deadline: int
    state: str = "held"
    final: int = 0


@dataclass
class Autobuy:
    """Automatic top-up; ``due`` is the pack and the price of a charge in progress."""

    below: int
    pack: int
    price: int
    cap: int
    is_on: bool = True
    spent: int = 0
    month: int = 0
    due: tuple[int, int] | None = None
    declined: int = 0


@dataclass
class Customer:
    """One account; operations return what the customer sees."""

    terms: Terms
    grant: int = 0
    packs: int = 0
    debt: int = 0
    below_since: int = 0
    month: int = 0
    granted: int = 0
    lookups: int = 0
    holds: dict[str, Hold] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    autobuy: Autobuy | None = None

    def do(self, now: int, kind: str, *words: Any) -> Any:
        """Carry out an operation and return the answer."""
        return getattr(self, f"do_{kind}")(now, *words)

    @property
    def held(self) -> int:
        return sum(hold.cost for hold in self.holds.values() if hold.state == "held")

    def begin(self, now: int) -> None:
        """Begin a new month if it is time: the rest of the old grant expires, a new one comes."""
        moment = datetime.fromtimestamp(now / 1000, UTC)
        month = moment.year * 100 + moment.month
        if month != self.month:
            self.month, self.grant, self.granted, self.lookups = month, 0, 0, 0
        if self.terms.credits > self.granted:
            more, self.granted = self.terms.credits - self.granted, self.terms.credits
            self.receive(now, more, 0)

    def receive(self, now: int, to_grant: int, to_packs: int) -> None:
        """Take credits in; packs repay debt before a grant does."""
        by_packs = min(self.debt, to_packs)
        by_grant = min(self.debt - by_packs, to_grant)
        self.debt -= by_packs + by_grant
        self.grant, self.packs = self.grant + to_grant - by_grant, self.packs + to_packs - by_packs
        self.look_below(now)

    def look_below(self, now: int) -> None:
        if self.debt == 0:
            self.below_since = 0
        elif self.below_since == 0:
            self.below_since = now

    def spend(self, now: int, cost: int) -> tuple[int, int, int] | None:
        """Take credits out, or nothing at all."""
        grant = min(self.grant, cost)
        packs = min(self.packs, cost - grant)
        debt = cost - grant - packs
        is_late = self.below_since > 0 and now - self.below_since >= DAY_MS
        if debt and (is_late or self.debt + debt > self.terms.grace):
            self.buy(-1)
            return None
        self.grant, self.packs, self.debt = self.grant - grant, self.packs - packs, self.debt + debt
        self.look_below(now)
        self.buy(self.grant + self.packs - self.debt)
        return grant, packs, debt

    def buy(self, left: int) -> None:
        """Begin an automatic charge if it is time and the month's cap allows it."""
        auto = self.autobuy
        if auto is None or not auto.is_on or left >= auto.below or auto.due is not None:
            return
        self.turn(auto)
        if auto.spent + auto.price <= auto.cap:
            auto.due = auto.pack, auto.price
            auto.spent += auto.price

    def turn(self, auto: Autobuy) -> None:
        """Begin to count a new month's charges, including the one in progress."""
        if auto.month != self.month:
            auto.month, auto.spent = self.month, auto.due[1] if auto.due else 0

    def do_reserve(self, now: int, hold_id: str, cost: int, life_ms: int) -> str:
        if hold_id in self.holds:
            return f"CLOSED:{self.holds[hold_id].state}"
        self.begin(now)
        taken = self.spend(now, cost)
        if taken is None:
            return "NOFUNDS"
        self.holds[hold_id] = Hold(cost, taken, now + life_ms)
        return "OK"

    def do_commit(self, now: int, hold_id: str, final: int) -> str:
        return self.end(now, hold_id, "committed", final)

    def do_void(self, now: int, hold_id: str) -> str:
        return self.end(now, hold_id, "voided", 0)

    def end(self, now: int, hold_id: str, state: str, final: int) -> str:
        """End a hold once; what was not used is given back, last taken first."""
        hold = self.holds.get(hold_id)
        if hold is None:
            return "CLOSED:missing"
        if hold.state != "held":
            return "OK" if (hold.state, hold.final) == (state, final) else f"CLOSED:{hold.state}"
        self.begin(now)
        hold.state, hold.final = state, final
        rest = hold.cost - final
        _, packs, debt = hold.taken
        not_grant = min(rest, debt + packs)
        self.receive(now, rest - not_grant, not_grant)
        return "OK"

    def reap(self, now: int) -> None:
        """Give back what was held too long, earliest deadline first."""
        for hold_id, hold in sorted(
            self.holds.items(), key=lambda pair: (pair[1].deadline, pair[0])
        ):
            if hold.state == "held" and hold.deadline <= now:
                self.end(now, hold_id, "reaped", 0)

    def do_hit(self, now: int, hit_id: str, hits: int) -> list[int] | str:
        """Count look-ups; return what they cost, and how many there were this month."""
        self.begin(now)
        if hit_id not in self.seen:
            free = max(0, min(hits, self.terms.lookups - self.lookups))
            if hits > free and self.spend(now, hits - free) is None:
                return "NOFUNDS"
            self.seen[hit_id] = hits - free
            self.lookups += hits
        return [self.seen[hit_id], self.lookups]

    def do_topup(self, now: int, payment_id: str, credits: int) -> str:
        return self.credit(now, payment_id, 0, credits)

    def do_grant(self, now: int, grant_id: str, credits: int) -> str:
        return self.credit(now, grant_id, credits, 0)

    def credit(self, now: int, entry_id: str, to_grant: int, to_packs: int) -> str:
        if entry_id not in self.seen:
            self.seen[entry_id] = to_grant + to_packs
            self.begin(now)
            self.receive(now, to_grant, to_packs)
        return "OK"

    def do_adjust(self, now: int, entry_id: str, credits: int) -> str:
        """Correct by hand; downwards takes packs, then grant, and makes no debt."""
        if entry_id in self.seen:
            return "OK"
        self.begin(now)
        if -credits > self.packs + self.grant:
            return "NOFUNDS"
        self.seen[entry_id] = credits
        if credits > 0:
            self.receive(now, 0, credits)
        else:
            packs = min(self.packs, -credits)
            self.packs, self.grant = self.packs - packs, self.grant + credits + packs
        return "OK"

    def do_plan(self, now: int, credits: int, lookups: int, grace: int) -> str:
        self.terms = Terms(credits, lookups, grace)
        return "OK"

    def do_autobuy(self, now: int, below: int, pack: int, price: int, cap: int) -> str:
        old = self.autobuy or Autobuy(below, pack, price, cap)
        self.autobuy = Autobuy(
            below, pack, price, cap, True, old.spent, old.month, old.due, declined=0
        )
        return "OK"

    def do_paid(self, now: int) -> str:
        """The provider has taken the money for the charge in progress."""
        auto = self.autobuy
        if auto is None or auto.due is None:
            return "NONE"
        self.begin(now)
        pack, _ = auto.due
        self.receive(now, 0, pack)
        self.turn(auto)
        auto.due, auto.declined = None, 0
        return "OK"

    def do_declined(self, now: int) -> str:
        """The provider has refused the charge."""
        auto = self.autobuy
        if auto is None or auto.due is None:
            return "NONE"
        auto.spent -= auto.due[1]
        auto.due, auto.declined = None, auto.declined + 1
        auto.is_on = auto.is_on and auto.declined < DECLINES
        return "OK"
