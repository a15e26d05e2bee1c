"""Directed cases of plans, months and clocks that are wrong; run like those of the ledger."""

import struct

import pytest

from configs.tables import load_table
from serve_app.domain.credits import AccountPayer
from serve_app.domain.keys import TEST_NAMESPACE
from serve_app.domain.tiers import Tiers
from serve_app.ledger.clock import LEAD_MS, confirm_clock
from serve_app.ledger.jobs.types import NewJob
from serve_app.ledger.packed import unpack_account
from serve_app.store.accounts import Accounts
from tests.ledger.ledger_model import DAY_MS
from tests.store.setting import ACCOUNT, PAYER, START_MS, Setting, buckets, some_work, stamp_ms

DECEMBER = stamp_ms(2026, 12, 1)
SCALE = AccountPayer(ACCOUNT, "scale")


def accounts(s: Setting) -> Accounts:
    return Accounts(s.store, "pepper", s.tiers)


async def months_begin_with_the_plan_of_then(s: Setting) -> None:
    """Whichever script is the month's first, even one whose caller still knows the old tier."""
    plans = accounts(s)
    for number in range(6):
        await s.at(stamp_ms(2027, 1 + number, 28))
        await plans.set_tier(ACCOUNT, "scale")
        assert (await s.ledger.balance(ACCOUNT, "scale")).granted == 500
        job = NewJob(f"j{number}", ACCOUNT, "scale", some_work(), 10)
        await s.jobs.submit(job)
        claim = await s.jobs.claim("w1")
        assert claim is not None
        await s.ledger.reserve(SCALE, f"h{number}", 1, ttl_s=1)
        await s.at(stamp_ms(2027, 2 + number, 1))
        await plans.set_tier(ACCOUNT, "free")
        match number:
            case 0:
                assert await s.jobs.finish(claim, b"{}")
            case 1:
                assert await s.jobs.fail(claim, "unprocessable_audio", "no audio")
            case 2:
                await s.ledger.topup(ACCOUNT, "pay:1", 5)
            case 3:
                assert await s.ledger.reap(ACCOUNT, "h3")
            case 4:
                await s.ledger.reserve(SCALE, "late", 1)
            case 5:
                await s.ledger.count_hit(ACCOUNT, "scale")
        assert (await s.ledger.balance(ACCOUNT)).granted == 40
        await s.audit()
        if number > 1:
            await s.jobs.finish(claim, b"{}")


async def plans_are_told_once_and_to_test_keys_too(s: Setting) -> None:
    plans, test_account = accounts(s), TEST_NAMESPACE + ACCOUNT
    for tier in ("basic", "basic", "pro"):
        await plans.set_tier(ACCOUNT, tier)
    assert await s.lines() == [("tier", "60", 0, 0, 0), ("tier", "200", 0, 0, 0)]
    assert await plans.tier_of(ACCOUNT) == "pro"
    key = s.store.keys.balance(test_account)
    assert await s.store.command("EXISTS", key) == 0
    assert (await s.ledger.balance(test_account, "pro")).granted == 200
    await plans.set_tier(ACCOUNT, "free")
    assert unpack_account(await s.store.command("GET", key)).monthly_grant == 40
    await s.at(DECEMBER)
    for name in (ACCOUNT, test_account):
        assert (await s.ledger.balance(name, "pro")).granted == 40
    await s.audit()


async def a_plan_without_a_grant_is_told_too(s: Setting) -> None:
    """An account that never got a plan and one whose plan grants 0 differ."""
    keys, table = s.store.keys, load_table("tiers")
    table["free"].update(monthly_credits=0)
    await Accounts(s.store, "pepper", Tiers(table)).set_tier(ACCOUNT, "free")
    assert await s.store.command("EXISTS", keys.balance(ACCOUNT)) == 1
    assert await s.lines() == [("tier", "0", 0, 0, 0)]
    assert (await s.ledger.balance(ACCOUNT, "pro")).granted == 0


async def adjusting_works_before_the_first_call(s: Setting) -> None:
    await accounts(s).set_tier(ACCOUNT, "pro")
    assert buckets(await s.ledger.adjust(ACCOUNT, "fix:1", -150, "ann", "test")) == (50, 0, 0)
    await s.audit()


async def accounts_of_format_1_are_read(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 10)
    key = s.store.keys.balance(ACCOUNT)
    packed = await s.store.command("GET", key)
    await s.store.command("SET", key, packed[: struct.calcsize("<14d")])
    assert unpack_account(packed)[:14] == struct.unpack("<14d", packed[:112])
    await s.audit()
    assert (await s.ledger.balance(ACCOUNT, "pro")).granted == 200
    await accounts(s).set_tier(ACCOUNT, "basic")
    await s.at(DECEMBER)
    assert (await s.ledger.void(ACCOUNT, "a")).granted == 60
    await s.audit()


async def a_clock_that_runs_ahead_begins_no_month(s: Setting) -> None:
    await confirm_clock(s.store, START_MS)
    await s.ledger.reserve(PAYER, "a", 10)
    await s.at(stamp_ms(2027, 12, 5))
    with pytest.raises(RuntimeError, match="hours ahead"):
        await confirm_clock(s.store, START_MS)
    await s.ledger.commit(ACCOUNT, "a")
    assert (await s.ledger.balance(ACCOUNT, "basic")).period == "2026-11"
    bert = await s.ledger.balance("bert", "basic")
    assert (bert.period, bert.granted) == ("2026-11", 60)
    await s.at(DECEMBER)
    await confirm_clock(s.store, DECEMBER - LEAD_MS)
    balance = await s.ledger.balance(ACCOUNT, "basic")
    assert (balance.period, balance.remaining) == ("2026-12", 60)
    await s.audit()


async def months_wait_for_the_other_clock_to_the_millisecond(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    await s.at(DECEMBER)
    with pytest.raises(RuntimeError, match=r"ahead: set it"):
        await confirm_clock(s.store, DECEMBER - LEAD_MS - 1)
    assert (await s.ledger.balance(ACCOUNT, "basic")).period == "2026-11"
    await confirm_clock(s.store, DECEMBER - LEAD_MS)
    assert (await s.ledger.balance(ACCOUNT, "basic")).period == "2026-12"
    # If the latest allowed time is far ahead, the server's clock decides.
    await confirm_clock(s.store, DECEMBER + 400 * DAY_MS)
    assert (await s.ledger.balance(ACCOUNT, "basic")).period == "2026-12"


async def a_month_ahead_is_found_and_repaired(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 10)
    assert not await s.ledger.repair_period(ACCOUNT)
    assert not await s.ledger.repair_period("nobody")
    await s.at(stamp_ms(2027, 12, 5))
    await s.ledger.commit(ACCOUNT, "a")
    assert not await s.ledger.repair_period(ACCOUNT)
    await s.at(START_MS)
    (found,) = (await s.journal.audit()).mismatches
    assert (found.account, found.rule) == (ACCOUNT, "month")
    assert "202712 has not begun" in found.detail
    assert await s.ledger.repair_period(ACCOUNT)
    assert not await s.ledger.repair_period(ACCOUNT)
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.period, balance.granted, balance.remaining) == ("2026-11", 60, 60)
    assert (await s.lines())[-1] == ("period", "202611", 0, 0, 0)
    await s.audit()
    await s.at(DECEMBER)
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.period, balance.remaining) == ("2026-12", 60)
    await s.audit()


PLAN_CASES = (
    months_begin_with_the_plan_of_then,
    plans_are_told_once_and_to_test_keys_too,
    a_plan_without_a_grant_is_told_too,
    adjusting_works_before_the_first_call,
    accounts_of_format_1_are_read,
    a_clock_that_runs_ahead_begins_no_month,
    months_wait_for_the_other_clock_to_the_millisecond,
    a_month_ahead_is_found_and_repaired,
)
