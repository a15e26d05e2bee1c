"""Directed cases of automatic top-up; run like those of the ledger."""

import asyncio

import pytest

from serve_app.domain.credits import MOST_CREDITS, AccountPayer, TooManyCreditsError
from serve_app.domain.errors import InsufficientCreditsError
from serve_app.domain.payments import PaymentOutcome, TopupSettings
from serve_app.ledger.jobs.types import NewJob
from serve_app.providers.payment_sandbox import Behaviour, SandboxPayments
from serve_app.services import payments
from serve_app.services.payments import PaymentsWorker
from tests.store.setting import ACCOUNT, PAYER, Setting, buckets, some_work, stamp_ms

SETTINGS = TopupSettings(threshold=20, pack_credits=100, price_minor=500, cap_minor=1_200)


def scripted(*behaviours: Behaviour) -> SandboxPayments:
    return SandboxPayments(iter(behaviours))


async def spend_down(s: Setting, hold_id: str, left: int) -> None:
    """Commit as much as leaves ``left`` credits."""
    cost = (await s.ledger.balance(ACCOUNT, "basic")).remaining - left
    await s.ledger.reserve(PAYER, hold_id, cost)
    await s.ledger.commit(ACCOUNT, hold_id)


async def indexed(s: Setting) -> int:
    keys = s.store.keys
    return int(await s.store.command("ZCARD", keys.shard(keys.tag(ACCOUNT), "intents")))


async def opens_one_intent_below_the_threshold(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    await spend_down(s, "a", 20)
    assert await s.topups.open_intents() == []
    await spend_down(s, "b", 19)
    (first,) = await s.topups.open_intents()
    await spend_down(s, "c", 18)
    (intent,) = await s.topups.open_intents()
    assert intent == first
    assert (intent.account, intent.credits, intent.amount_minor) == (ACCOUNT, 100, 500)
    assert not intent.is_sent
    provider = scripted()
    assert await PaymentsWorker(s.topups, provider).run_once() == 1
    assert buckets(await s.ledger.balance(ACCOUNT)) == (18, 100, 0)
    assert await s.topups.open_intents() == []
    assert await indexed(s) == 0
    assert provider.charged == {intent.intent_id: 500}
    assert await PaymentsWorker(s.topups, provider).run_once() == 0
    await s.audit()


async def amounts_are_bounded(s: Setting) -> None:
    most = [MOST_CREDITS] * 4
    await s.topups.enable(ACCOUNT, TopupSettings(*most))
    for place in range(4):
        most[place] += 1
        with pytest.raises(TooManyCreditsError, match="at most 1000000000000"):
            await s.topups.enable(ACCOUNT, TopupSettings(*most))
        most[place] -= 1


async def never_goes_above_the_cap(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    provider = scripted()
    worker = PaymentsWorker(s.topups, provider)
    for number in range(5):
        await spend_down(s, f"a{number}", 10)
        await worker.run_once()
    assert sum(provider.charged.values()) == 1_000
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert (status.spent_minor, status.open_intent) == (1_000, None)
    # A price that meets the cap exactly is still allowed; the next month starts anew.
    await s.topups.enable(ACCOUNT, TopupSettings(20, 100, 200, 1_200))
    await spend_down(s, "b", 9)
    await worker.run_once()
    assert sum(provider.charged.values()) == 1_200
    await s.at(stamp_ms(2026, 12, 1) - 1)
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert status.spent_minor == 1_200
    await s.at(stamp_ms(2026, 12, 1))
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert status.spent_minor == 0
    await spend_down(s, "c", 5)
    await worker.run_once()
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert status.spent_minor == 200
    await s.audit()


async def one_intent_keeps_no_other_waiting(s: Setting) -> None:
    for account in ("acme", "bert"):
        payer = AccountPayer(account, "basic")
        await s.topups.enable(account, SETTINGS)
        await s.ledger.reserve(payer, "a", 50)

    class Odd(SandboxPayments):
        async def charge(self, intent_id: str, account: str, amount_minor: int) -> PaymentOutcome:
            if intent_id == first:
                await asyncio.sleep(0 if self.is_odd else 3600)
                raise RuntimeError("an odd answer")
            return await super().charge(intent_id, account, amount_minor)

        is_odd = True

    first = (await s.topups.open_intents())[0].intent_id
    provider = Odd()
    assert await PaymentsWorker(s.topups, provider).run_once() == 1
    assert [intent.intent_id for intent in await s.topups.open_intents()] == [first]
    provider.is_odd = False
    limit_s, payments.LIMIT_S = payments.LIMIT_S, 0.1
    try:
        async with asyncio.timeout(10):
            assert await PaymentsWorker(s.topups, provider).run_once() == 0
    finally:
        payments.LIMIT_S = limit_s


async def open_intent_counts_in_the_next_month_too(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    provider = scripted(Behaviour.SUCCEED_LATE)
    worker = PaymentsWorker(s.topups, provider)
    await spend_down(s, "a", 5)
    await worker.run_once()
    await s.at(stamp_ms(2026, 12, 1))
    for number in range(6):
        await spend_down(s, f"b{number}", 5)
        await worker.run_once()
    # 500 from November, charged in December, and 500 more: 1,500 would be above the cap.
    assert sum(provider.charged.values()) == 1_000
    await s.audit()


async def unknown_outcomes_are_asked_about(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    provider = scripted(Behaviour.TIME_OUT_AFTER, Behaviour.TIME_OUT_BEFORE)
    worker = PaymentsWorker(s.topups, provider)
    await spend_down(s, "a", 5)
    assert await worker.run_once() == 0
    (intent,) = await s.topups.open_intents()
    assert intent.is_sent
    assert await worker.run_once() == 1
    assert provider.calls == [intent.intent_id]
    await spend_down(s, "b", 5)
    assert await worker.run_once() == 0
    assert await worker.run_once() == 1
    assert len(set(provider.calls)) == 2
    assert buckets(await s.ledger.balance(ACCOUNT)) == (0, 105, 0)
    assert sum(provider.charged.values()) == 1_000
    await s.audit()


async def late_success_is_booked_once(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    provider = scripted(Behaviour.SUCCEED_LATE)
    worker = PaymentsWorker(s.topups, provider)
    await spend_down(s, "a", 5)
    closed = [await worker.run_once() for _ in range(4)]
    assert closed == [0, 0, 1, 0]
    assert (await s.ledger.balance(ACCOUNT)).packs == 100
    assert len(provider.calls) == 1


async def three_declines_switch_it_off(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    provider = scripted(*[Behaviour.DECLINE] * 9)
    worker = PaymentsWorker(s.topups, provider)
    for number in range(5):
        await spend_down(s, f"a{number}", 15 - number)
        await worker.run_once()
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert (len(provider.calls), status.is_enabled, status.failures) == (3, False, 3)
    assert (status.spent_minor, status.off_reason) == (0, "the last three charges were declined")
    assert await indexed(s) == 0
    await s.topups.enable(ACCOUNT, SETTINGS)
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert (status.is_enabled, status.failures, status.off_reason) == (True, 0, None)
    await s.audit()


async def success_forgets_earlier_declines(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, TopupSettings(20, 100, 5, 1_000))
    provider = scripted(
        *[Behaviour.DECLINE] * 2, Behaviour.SUCCEED, *[Behaviour.DECLINE] * 2, Behaviour.SUCCEED
    )
    worker = PaymentsWorker(s.topups, provider)
    for number in range(6):
        await spend_down(s, f"a{number}", 15 - number)
        await worker.run_once()
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert (status.is_enabled, status.failures) == (True, 0)


async def refused_reserve_also_opens_an_intent(s: Setting) -> None:
    free = AccountPayer(ACCOUNT, "free")
    await s.topups.enable(ACCOUNT, TopupSettings(0, 100, 5, 1_000))
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.reserve(free, "a", 41)
    assert len(await s.topups.open_intents()) == 1


async def off_means_no_new_intent(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    await s.topups.disable(ACCOUNT)
    await spend_down(s, "a", 5)
    assert await s.topups.open_intents() == []
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert (status.is_enabled, status.off_reason) == (False, "switched off by the customer")
    assert await s.topups.status("nobody") is None


async def closed_intents_stay_closed(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    await spend_down(s, "a", 5)
    (intent,) = await s.topups.open_intents()
    assert await s.topups.mark_sent(intent) is False
    assert await s.topups.mark_sent(intent) is True
    await s.topups.succeed(intent)
    await s.topups.succeed(intent)
    assert (await s.ledger.balance(ACCOUNT)).packs == 100
    assert await s.topups.mark_sent(intent) is None
    assert await s.topups.decline(intent) == -1
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert status.spent_minor == 500


async def a_payment_that_was_booked_closes_its_intent(s: Setting) -> None:
    """A failover may undo the closing of an intent, and the count of intents."""
    key = s.store.keys.topup(ACCOUNT)
    await s.topups.enable(ACCOUNT, SETTINGS)
    await spend_down(s, "a", 5)
    (first,) = await s.topups.open_intents()
    before = await s.store.command("DUMP", key)
    await s.topups.succeed(first)
    await s.store.command("RESTORE", key, 0, before, "REPLACE")
    await s.store.command("ZADD", s.store.keys.funding(ACCOUNT)[1], 1, ACCOUNT)
    # While it is open, no other intent is, whatever else is paid.
    await s.ledger.topup(ACCOUNT, "by-hand", 1)
    await s.ledger.topup(ACCOUNT, "by-hand", 1)
    assert await s.topups.open_intents() == [first]
    assert (await s.topups.succeed(first)).packs == 101
    assert await s.topups.open_intents() == []
    assert await indexed(s) == 0
    await s.store.command("HDEL", key, "n")
    await s.after(1)
    await spend_down(s, "b", 5)
    calls = [call async for page in s.journal.pages(s.store.keys.tag(ACCOUNT)) for call in page]
    closed = [call for call in calls if ACCOUNT in call.topups][-2]
    assert "intent" not in closed.topups[ACCOUNT]
    (second,) = await s.topups.open_intents()
    assert second.intent_id != first.intent_id
    await s.topups.succeed(second)
    assert (await s.ledger.balance(ACCOUNT)).remaining == 105
    await s.audit()


async def declined_after_the_month_frees_the_cap(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    worker = PaymentsWorker(s.topups, scripted(Behaviour.DECLINE))
    await spend_down(s, "a", 5)
    await s.at(stamp_ms(2026, 12, 1))
    assert await worker.run_once() == 1
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert (status.spent_minor, status.failures) == (0, 1)
    for number in range(3):
        await spend_down(s, f"b{number}", 4)
        await worker.run_once()
    status = await s.topups.status(ACCOUNT)
    assert status is not None
    assert status.spent_minor == 1_000
    await s.audit()


async def packs_and_debt_count(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    await s.ledger.topup(ACCOUNT, "pay:1", 100)
    await s.topups.enable(ACCOUNT, SETTINGS)
    await s.ledger.reserve(PAYER, "a", 70)
    await s.jobs.submit(NewJob("j", ACCOUNT, "basic", some_work(), 5))
    assert await s.topups.open_intents() == []
    await s.topups.enable(ACCOUNT, TopupSettings(5, 10, 5, 1_000))
    await s.ledger.reserve(PAYER, "b", 100)
    assert len(await s.topups.open_intents()) == 1
    await s.audit()


async def jobs_open_intents_too(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, TopupSettings(20, 10, 5, 1_000))
    worker = PaymentsWorker(s.topups, scripted())

    async def submit(job_id: str, cost: int) -> int:
        await s.jobs.submit(NewJob(job_id, ACCOUNT, "basic", some_work(), cost))
        return await worker.run_once()

    assert [await submit("a", 40), await submit("b", 1)] == [0, 1]
    assert (await s.ledger.balance(ACCOUNT)).remaining == 29
    assert [await submit("c", 9), await submit("d", 1)] == [0, 1]
    assert (await s.ledger.balance(ACCOUNT)).remaining == 29
    with pytest.raises(InsufficientCreditsError):
        await submit("e", 60)
    assert await worker.run_once() == 1
    await s.audit()


async def debt_made_by_a_job_counts(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, TopupSettings(5, 10, 5, 1_000))
    await s.jobs.submit(NewJob("a", ACCOUNT, "basic", some_work(), 80))
    assert len(await s.topups.open_intents()) == 1


async def hits_beyond_the_allowance_open_intents_too(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, SETTINGS)
    await s.ledger.count_hit(ACCOUNT, "basic", hits=5 + 40)
    assert (await s.ledger.balance(ACCOUNT)).remaining == 20
    assert await s.topups.open_intents() == []
    await s.ledger.count_hit(ACCOUNT, "basic")
    assert len(await s.topups.open_intents()) == 1
    assert await PaymentsWorker(s.topups, scripted()).run_once() == 1
    await s.audit()


async def free_hits_open_no_intent(s: Setting) -> None:
    await spend_down(s, "a", 5)
    await s.topups.enable(ACCOUNT, SETTINGS)
    await s.ledger.count_hit(ACCOUNT, "basic")
    assert await s.topups.open_intents() == []


async def debt_made_by_hits_counts(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, TopupSettings(0, 10, 5, 1_000))
    await s.ledger.count_hit(ACCOUNT, "basic", hits=5 + 61)
    assert len(await s.topups.open_intents()) == 1


async def packs_count_after_hits(s: Setting) -> None:
    await s.ledger.topup(ACCOUNT, "p", 30)
    await s.topups.enable(ACCOUNT, SETTINGS)
    await s.ledger.count_hit(ACCOUNT, "basic", hits=5 + 65)
    assert await s.topups.open_intents() == []


async def refused_hits_open_an_intent_too(s: Setting) -> None:
    await s.topups.enable(ACCOUNT, TopupSettings(0, 100, 5, 1_000))
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.count_hit(ACCOUNT, "free", hits=3 + 41)
    assert len(await s.topups.open_intents()) == 1


TOPUP_CASES = (
    one_intent_keeps_no_other_waiting,
    opens_one_intent_below_the_threshold,
    amounts_are_bounded,
    never_goes_above_the_cap,
    open_intent_counts_in_the_next_month_too,
    unknown_outcomes_are_asked_about,
    late_success_is_booked_once,
    three_declines_switch_it_off,
    success_forgets_earlier_declines,
    refused_reserve_also_opens_an_intent,
    off_means_no_new_intent,
    closed_intents_stay_closed,
    a_payment_that_was_booked_closes_its_intent,
    declined_after_the_month_frees_the_cap,
    packs_and_debt_count,
    jobs_open_intents_too,
    debt_made_by_a_job_counts,
    hits_beyond_the_allowance_open_intents_too,
    debt_made_by_hits_counts,
    free_hits_open_no_intent,
    packs_count_after_hits,
    refused_hits_open_an_intent_too,
)
