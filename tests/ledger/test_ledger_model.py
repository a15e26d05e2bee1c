"""Random histories against the model; every invariant after every step."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from serve_app.domain.credits import HoldClosedError, HoldMismatchError
from serve_app.domain.errors import InsufficientCreditsError
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import Store, connect
from tests.ledger.ledger_model import DAY_MS, ModelAccount
from tests.store.setting import ACCOUNT, CLOCK, PAYER, START_MS, small_tiers

IDS = st.sampled_from([f"req:{n}" for n in range(12)])
COSTS = st.integers(0, 45) | st.sampled_from([0, 1, 2, 10, 30, 60, 90, 91])

pytestmark = pytest.mark.redis


async def word_of(call: Awaitable[object]) -> str:
    """Return the model's word for what a call did."""
    try:
        await call
    except InsufficientCreditsError:
        return "NOFUNDS"
    except HoldMismatchError as error:
        return "OVER" if "smaller" in str(error) else "MISMATCH"
    except HoldClosedError as error:
        return error.state
    return "OK"


class LedgerMachine(RuleBasedStateMachine):
    """One account of the basic tier: 60 a month, grace 30, 5 look-ups."""

    make_store: Callable[[], Store]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.store = type(self).make_store()
        tiers = small_tiers()
        self.ledger = Ledger(self.store, tiers)
        self.journal = Journal(self.store)
        row = tiers["basic"]
        self.model = ModelAccount(row.monthly_credits, row.grace_credits, row.cache_lookups)
        self.now = START_MS
        self.calls: list[Callable[[], None]] = []
        self.serial = 0

    def run(self, call: Awaitable[object]) -> object:
        return self.loop.get_loop().run_until_complete(call)  # type: ignore[arg-type]

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    @initialize()
    def begin(self) -> None:
        self.run(self.store.command("FLUSHALL"))
        self.set_clock(START_MS)
        self.run(self.ledger.balance(ACCOUNT, "basic"))
        self.model.roll(self.now)

    def set_clock(self, now: int) -> None:
        self.now = now
        self.run(self.store.command("SET", "test:now", now))

    def do(self, call: Callable[[], None]) -> None:
        self.calls.append(call)
        call()

    @rule(
        hold_id=IDS, cost=COSTS, ttl_s=st.sampled_from([1, 300, 90_000]), fp=st.sampled_from("ab")
    )
    def reserve(self, hold_id: str, cost: int, ttl_s: int, fp: str) -> None:
        def call() -> None:
            said = self.run(word_of(self.ledger.reserve(PAYER, hold_id, cost, ttl_s, fp)))
            expected = self.model.reserve(self.now, hold_id, cost, ttl_s * 1000, fp)
            assert said == {"DUP:held": "OK"}.get(expected, expected.removeprefix("DUP:"))

        self.do(call)

    @rule(hold_id=IDS, final=st.none() | st.integers(0, 50))
    def commit(self, hold_id: str, final: int | None) -> None:
        def call() -> None:
            said = self.run(word_of(self.ledger.commit(ACCOUNT, hold_id, final)))
            assert said == self.model.commit(self.now, hold_id, final)

        self.do(call)

    @rule(hold_id=IDS)
    def void(self, hold_id: str) -> None:
        def call() -> None:
            said = self.run(word_of(self.ledger.void(ACCOUNT, hold_id)))
            assert said == self.model.end(self.now, hold_id, "voided")

        self.do(call)

    @rule(hold_id=IDS)
    def reap_one(self, hold_id: str) -> None:
        reaped = self.run(self.ledger.reap(ACCOUNT, hold_id))
        known = self.model.holds.get(hold_id)
        was_held = known is not None and known.state == "held"
        assert reaped == (self.model.end(self.now, hold_id, "reaped") == "OK" and was_held)

    @rule()
    def reap_all(self) -> None:
        reaped = self.run(self.ledger.reap_due())
        due = [name for name, hold in self.model.holds.items() if hold.state == "held"]
        due = [name for name in due if self.model.holds[name].deadline <= self.now]
        assert reaped == len(due)
        for name in sorted(due, key=lambda name: (self.model.holds[name].deadline, name)):
            self.model.end(self.now, name, "reaped")

    @rule(credits=st.integers(1, 80), kind=st.sampled_from(["topup", "bonus", "adjust"]))
    def credit(self, credits: int, kind: str) -> None:
        self.serial += 1
        self.bring(f"pay:{self.serial}", kind, credits)

    @rule(credits=st.integers(1, 80))
    def take_back(self, credits: int) -> None:
        self.serial += 1
        self.bring(f"pay:{self.serial}", "adjust", -credits)

    @precondition(lambda self: self.serial > 0)
    @rule(credits=st.integers(1, 3), kind=st.sampled_from(["topup", "bonus", "adjust"]))
    def reuse_payment_id(self, credits: int, kind: str) -> None:
        self.bring("pay:1", kind, credits)

    def bring(self, entry_id: str, kind: str, credits: int) -> None:
        def call() -> None:
            methods = {"topup": self.ledger.topup, "bonus": self.ledger.grant}
            if kind == "adjust":
                sent = self.ledger.adjust(ACCOUNT, entry_id, credits, "ann", "goodwill")
            else:
                sent = methods[kind](ACCOUNT, entry_id, credits)
            assert self.run(word_of(sent)) == self.model.credit(self.now, entry_id, kind, credits)

        self.do(call)

    @rule(hits=st.integers(1, 4))
    def hit(self, hits: int) -> None:
        word, cost = self.model.hit(self.now, hits)
        self.serial += 1
        hit_id = f"hit:{self.serial}"
        if word == "OK":
            charge = self.run(self.ledger.count_hit(ACCOUNT, "basic", hits, hit_id))
            assert charge.credits == cost
            again = self.run(self.ledger.count_hit(ACCOUNT, "basic", hits, hit_id))
            assert (again.credits, again.balance) == (cost, charge.balance)
        else:
            assert self.run(word_of(self.ledger.count_hit(ACCOUNT, "basic", hits, hit_id))) == word

    @rule(ms=st.sampled_from([1, 999, 1_000, 300_000, 3_600_000, DAY_MS - 1, DAY_MS, 90_000_000]))
    def wait(self, ms: int) -> None:
        self.set_clock(self.now + ms)

    @precondition(lambda self: self.model.negative_since is not None)
    @rule(off=st.sampled_from([-1, 0, 1]))
    def wait_for_grace_to_end(self, off: int) -> None:
        self.set_clock(max(self.now, self.model.negative_since + DAY_MS + off))

    @precondition(lambda self: any(h.state == "held" for h in self.model.holds.values()))
    @rule(off=st.sampled_from([-1, 0, 1]))
    def wait_for_a_deadline(self, off: int) -> None:
        held = [hold.deadline for hold in self.model.holds.values() if hold.state == "held"]
        self.set_clock(max(self.now, min(held) + off))

    @rule(off=st.sampled_from([-1, 0, 1]))
    def wait_for_next_month(self, off: int) -> None:
        ends = self.run(self.ledger.balance(ACCOUNT)).period_ends
        self.model.roll(self.now)
        self.set_clock(max(self.now, int(ends.timestamp() * 1000) + off))

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def client_retries(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.calls))()

    @invariant()
    def balance_is_the_models(self) -> None:
        balance = self.run(self.ledger.balance(ACCOUNT))
        self.model.roll(self.now)
        model = self.model
        since = balance.negative_since and round(balance.negative_since.timestamp() * 1000)
        assert (balance.grant, balance.packs, balance.debt) == (
            model.grant,
            model.packs,
            model.debt,
        )
        assert since == model.negative_since
        assert (balance.held, balance.lookups_used) == (model.held, model.lookups)
        assert balance.period == f"{model.period[0]:04d}-{model.period[1]:02d}"

    @invariant()
    def audit_is_clean(self) -> None:
        report = self.run(self.journal.audit(ACCOUNT))
        assert report.mismatches == ()
        assert report.open_holds == sum(h.state == "held" for h in self.model.holds.values())


def run_model(make_store: Callable[[], Store], examples: int, steps: int = 40) -> None:
    """Run the machine on stores made by ``make_store``."""
    machine = type("Machine", (LedgerMachine,), {"make_store": staticmethod(make_store)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories_follow_the_model(redis_server: LocalRedis) -> None:
    run_model(lambda: connect(redis_server.url, shards=1, clock=CLOCK, timeout_s=5), examples=60)
