"""The ledger in plain Python, written from the rules and not from the scripts."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

DAY_MS = 24 * 3600 * 1000


@dataclass
class ModelHold:
    cost: int
    fingerprint: str
    split: tuple[int, int, int]
    deadline: int
    state: str = "held"
    final: int = 0


@dataclass
class ModelAccount:
    """One account; every method returns the word that the script should answer."""

    monthly: int
    floor: int
    allowance: int
    grant: int = 0
    packs: int = 0
    debt: int = 0
    negative_since: int | None = None
    period: tuple[int, int] = (0, 0)
    granted: int = 0
    lookups: int = 0
    holds: dict[str, ModelHold] = field(default_factory=dict)
    payments: dict[str, tuple[str, int]] = field(default_factory=dict)

    def roll(self, now: int) -> None:
        moment = datetime.fromtimestamp(now / 1000, UTC)
        if (moment.year, moment.month) != self.period:
            self.period = (moment.year, moment.month)
            self.grant, self.granted, self.lookups = 0, 0, 0
        if self.monthly > self.granted:
            more, self.granted = self.monthly - self.granted, self.monthly
            self.receive(now, more, "grant")

    def receive(self, now: int, credits: int, bucket: str) -> None:
        repaid = min(self.debt, credits)
        self.debt -= repaid
        setattr(self, bucket, getattr(self, bucket) + credits - repaid)
        self.mark(now)

    def mark(self, now: int) -> None:
        if self.debt == 0:
            self.negative_since = None
        elif self.negative_since is None:
            self.negative_since = now

    def spend(self, now: int, cost: int) -> tuple[int, int, int] | None:
        g = min(self.grant, cost)
        p = min(self.packs, cost - g)
        d = cost - g - p
        if d and self.debt + d > self.floor:
            return None
        if d and self.negative_since is not None and now - self.negative_since >= DAY_MS:
            return None
        self.grant, self.packs, self.debt = self.grant - g, self.packs - p, self.debt + d
        self.mark(now)
        return g, p, d

    def reserve(self, now: int, hold_id: str, cost: int, ttl_ms: int, fingerprint: str) -> str:
        known = self.holds.get(hold_id)
        if known is not None:
            same = (known.cost, known.fingerprint) == (cost, fingerprint)
            return f"DUP:{known.state}" if same else "MISMATCH"
        self.roll(now)
        split = self.spend(now, cost)
        if split is None:
            return "NOFUNDS"
        self.holds[hold_id] = ModelHold(cost, fingerprint, split, now + ttl_ms)
        return "OK"

    def commit(self, now: int, hold_id: str, final: int | None) -> str:
        hold = self.holds.get(hold_id)
        if hold is None:
            return "missing"
        final = hold.cost if final is None else final
        if hold.state == "committed" and hold.final == final:
            return "OK"
        if hold.state != "held":
            return hold.state
        if final > hold.cost:
            return "OVER"
        self.finish(now, hold, "committed", final)
        return "OK"

    def end(self, now: int, hold_id: str, state: str) -> str:
        hold = self.holds.get(hold_id)
        if hold is None:
            return "missing"
        if hold.state == state:
            return "OK"
        if hold.state != "held":
            return hold.state
        if state == "reaped" and hold.deadline > now:
            return "early"
        self.finish(now, hold, state, 0)
        return "OK"

    def finish(self, now: int, hold: ModelHold, state: str, final: int) -> None:
        self.roll(now)
        hold.state, hold.final = state, final
        rest = hold.cost - final
        back_d = min(rest, hold.split[2])
        back_p = min(rest - back_d, hold.split[1])
        back_g = rest - back_d - back_p
        # What is given back repays debt first: returned debt, then packs, then grant.
        self.receive(now, back_d + back_p, "packs")
        self.receive(now, back_g, "grant")

    def credit(self, now: int, entry_id: str, kind: str, credits: int) -> str:
        if entry_id in self.payments:
            return "OK" if self.payments[entry_id] == (kind, credits) else "MISMATCH"
        self.roll(now)
        if credits < 0:
            if -credits > self.packs + self.grant:
                return "NOFUNDS"
            from_packs = min(self.packs, -credits)
            self.packs -= from_packs
            self.grant -= -credits - from_packs
        else:
            self.receive(now, credits, "grant" if kind == "bonus" else "packs")
        self.payments[entry_id] = (kind, credits)
        return "OK"

    def hit(self, now: int, hits: int) -> tuple[str, int]:
        self.roll(now)
        free = max(0, min(hits, self.allowance - self.lookups))
        if hits > free and self.spend(now, hits - free) is None:
            return "NOFUNDS", 0
        self.lookups += hits
        return "OK", hits - free

    @property
    def held(self) -> int:
        return sum(hold.cost for hold in self.holds.values() if hold.state == "held")
