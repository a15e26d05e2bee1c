"""Directed cases of the ledger: every boundary once, with the exact numbers.

Each is a coroutine on an empty ``Setting``; ``test_ledger_cases`` runs them on the real scripts and
``test_lua_mutants`` on broken ones.
"""

import asyncio
from functools import partial

import pytest

from configs.tables import load_table
from serve_app.domain.credits import (
    MOST_CREDITS,
    AccountPayer,
    Charge,
    HoldClosedError,
    HoldMismatchError,
    TooManyCreditsError,
)
from serve_app.domain.errors import InsufficientCreditsError
from serve_app.domain.tiers import Tiers
from serve_app.ledger.ledger import Ledger
from tests.ledger.ledger_model import DAY_MS
from tests.store.setting import ACCOUNT, PAYER, START_MS, Setting, buckets, stamp_ms

CHRISTMAS = stamp_ms(2026, 12, 25)
NEW_YEAR = stamp_ms(2027, 1, 1)


async def spends_grant_then_packs_then_grace(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    await s.ledger.topup(ACCOUNT, "pay:1", 20)
    assert buckets(await s.ledger.reserve(PAYER, "a", 50)) == (10, 20, 0)
    assert buckets(await s.ledger.reserve(PAYER, "b", 15)) == (0, 15, 0)
    balance = await s.ledger.reserve(PAYER, "c", 40)
    assert buckets(balance) == (0, 0, 25)
    assert (balance.remaining, balance.held, balance.granted) == (-25, 105, 60)
    assert await s.lines() == [
        ("grant", "202611", 60, 0, 0),
        ("topup", "pay:1", 0, 20, 0),
        ("reserve", "a", -50, 0, 0),
        ("reserve", "b", -10, -5, 0),
        ("reserve", "c", 0, -15, 25),
    ]
    await s.audit()


async def grace_ends_exactly_at_the_floor(s: Setting) -> None:
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.reserve(PAYER, "a", 91)
    balance = await s.ledger.balance(ACCOUNT)
    assert (buckets(balance), balance.held) == ((60, 0, 0), 0)
    assert buckets(await s.ledger.reserve(PAYER, "b", 90)) == (0, 0, 30)
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.reserve(PAYER, "c", 1)
    assert buckets(await s.ledger.reserve(PAYER, "d", 0)) == (0, 0, 30)
    await s.audit()


async def free_tier_has_no_grace(s: Setting) -> None:
    free = AccountPayer(ACCOUNT, "free")
    with pytest.raises(InsufficientCreditsError, match="needs 41 credits and 40 remain"):
        await s.ledger.reserve(free, "a", 41)
    assert buckets(await s.ledger.reserve(free, "b", 40)) == (0, 0, 0)


async def grace_ends_exactly_after_a_day(s: Setting) -> None:
    balance = await s.ledger.reserve(PAYER, "a", 61)
    assert balance.negative_since is not None
    assert balance.negative_since.timestamp() * 1000 == START_MS
    await s.after(DAY_MS - 1)
    assert buckets(await s.ledger.reserve(PAYER, "b", 1)) == (0, 0, 2)
    await s.after(1)
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.reserve(PAYER, "c", 1)
    assert buckets(await s.ledger.reserve(PAYER, "d", 0)) == (0, 0, 2)
    # Repaying part of the debt does not reopen it; repaying all does, and time starts anew.
    assert buckets(await s.ledger.topup(ACCOUNT, "pay:1", 1)) == (0, 0, 1)
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.reserve(PAYER, "e", 1)
    balance = await s.ledger.topup(ACCOUNT, "pay:2", 1)
    assert (buckets(balance), balance.negative_since) == ((0, 0, 0), None)
    await s.after(5)
    balance = await s.ledger.reserve(PAYER, "f", 3)
    assert balance.negative_since is not None
    assert round(balance.negative_since.timestamp() * 1000) == START_MS + DAY_MS + 5
    await s.after(DAY_MS - 1)
    await s.ledger.reserve(PAYER, "g", 1)
    await s.audit()


async def month_turns_at_its_first_millisecond(s: Setting) -> None:
    await s.at(CHRISTMAS)
    await s.ledger.reserve(PAYER, "a", 25)
    await s.at(NEW_YEAR - 1)
    balance = await s.ledger.balance(ACCOUNT, "basic")
    assert (buckets(balance), balance.period) == ((35, 0, 0), "2026-12")
    assert balance.period_ends.timestamp() * 1000 == NEW_YEAR
    await s.at(NEW_YEAR)
    balance = await s.ledger.balance(ACCOUNT, "basic")
    assert (buckets(balance), balance.period) == ((60, 0, 0), "2027-01")
    assert (await s.lines())[-2:] == [
        ("expire", "202612", -35, 0, 0),
        ("grant", "202701", 60, 0, 0),
    ]
    await s.audit()


async def months_have_their_lengths(s: Setting) -> None:
    """First and last moment of every month of years around each rule of the calendar."""
    for year in (2027, 2028, *range(2098, 2103), 2203, *range(2398, 2403)):
        for month in range(1, 13):
            begins = stamp_ms(year, month, 1)
            ends = stamp_ms(year + month // 12, month % 12 + 1, 1)
            for moment in (begins, ends - 1):
                await s.at(moment)
                await s.store.command("DEL", s.store.keys.balance(ACCOUNT))
                balance = await s.ledger.balance(ACCOUNT, "basic")
                assert balance.period == f"{year}-{month:02d}"
                assert balance.period_ends.timestamp() * 1000 == ends


async def new_grant_repays_debt_first(s: Setting) -> None:
    await s.at(CHRISTMAS)
    await s.ledger.reserve(PAYER, "a", 80)
    await s.ledger.commit(ACCOUNT, "a")
    await s.at(NEW_YEAR)
    balance = await s.ledger.reserve(PAYER, "b", 10)
    assert (buckets(balance), balance.negative_since) == ((30, 0, 0), None)
    assert (await s.lines())[-2:] == [
        ("grant", "202701", 40, 0, -20),
        ("reserve", "b", -10, 0, 0),
    ]
    await s.audit()


async def packs_never_expire(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    await s.ledger.topup(ACCOUNT, "pay:1", 7)
    await s.at(stamp_ms(2028, 6, 1))
    assert buckets(await s.ledger.balance(ACCOUNT, "basic")) == (60, 7, 0)


async def last_months_hold_returns_to_this_months_grant(s: Setting) -> None:
    await s.at(CHRISTMAS)
    await s.ledger.reserve(PAYER, "a", 10)
    await s.at(NEW_YEAR)
    assert buckets(await s.ledger.void(ACCOUNT, "a")) == (70, 0, 0)
    assert (await s.lines())[-3:] == [
        ("expire", "202612", -50, 0, 0),
        ("grant", "202701", 60, 0, 0),
        ("void", "a", 10, 0, 0),
    ]
    await s.audit()


async def commit_gives_back_the_rest_newest_first(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    await s.ledger.topup(ACCOUNT, "pay:1", 10)
    await s.ledger.reserve(PAYER, "a", 80)
    balance = await s.ledger.commit(ACCOUNT, "a", 55)
    assert (buckets(balance), balance.held) == ((5, 10, 0), 0)
    assert (await s.lines())[-1] == ("commit", "a", 5, 10, -10)
    assert await s.ledger.commit(ACCOUNT, "a", 55) == balance
    with pytest.raises(HoldClosedError, match="committed"):
        await s.ledger.commit(ACCOUNT, "a")
    with pytest.raises(HoldClosedError, match="committed"):
        await s.ledger.void(ACCOUNT, "a")
    await s.audit()


async def rest_may_be_less_than_its_last_buckets(s: Setting) -> None:
    for number, (final, left) in enumerate(((65, (0, 5, 0)), (75, (0, 0, 5)), (80, (0, 0, 10)))):
        await s.store.command("FLUSHALL")
        await s.at(START_MS)
        await s.ledger.balance(ACCOUNT, "basic")
        await s.ledger.topup(ACCOUNT, "pay:1", 10)
        await s.ledger.reserve(PAYER, f"h{number}", 80)
        assert buckets(await s.ledger.commit(ACCOUNT, f"h{number}", final)) == left
        await s.audit()


async def repaid_debt_returns_as_packs(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 80)
    await s.ledger.topup(ACCOUNT, "pay:1", 50)
    assert buckets(await s.ledger.void(ACCOUNT, "a")) == (60, 50, 0)
    await s.audit()


async def returned_credits_repay_debt(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 60)
    await s.ledger.reserve(PAYER, "b", 20)
    balance = await s.ledger.void(ACCOUNT, "a")
    assert (buckets(balance), balance.negative_since) == ((40, 0, 0), None)
    assert (await s.lines())[-1] == ("void", "a", 40, 0, -20)
    await s.audit()


async def ids_are_used_once(s: Setting) -> None:
    first = await s.ledger.reserve(PAYER, "a", 5, fingerprint="x y")
    assert await s.ledger.reserve(PAYER, "a", 5, fingerprint="x y") == first
    with pytest.raises(HoldMismatchError):
        await s.ledger.reserve(PAYER, "a", 6, fingerprint="x y")
    with pytest.raises(HoldMismatchError):
        await s.ledger.reserve(PAYER, "a", 5, fingerprint="z")
    with pytest.raises(HoldMismatchError, match="smaller"):
        await s.ledger.commit(ACCOUNT, "a", 6)
    voided = await s.ledger.void(ACCOUNT, "a")
    assert await s.ledger.void(ACCOUNT, "a") == voided
    for ended in (
        s.ledger.commit(ACCOUNT, "a"),
        s.ledger.reserve(PAYER, "a", 5, fingerprint="x y"),
    ):
        with pytest.raises(HoldClosedError, match="voided"):
            await ended
    with pytest.raises(HoldClosedError, match="missing"):
        await s.ledger.commit(ACCOUNT, "never")
    with pytest.raises(HoldClosedError, match="missing"):
        await s.ledger.void(ACCOUNT, "never")
    await s.ledger.reserve(PAYER, "zero", 5)
    assert (await s.ledger.commit(ACCOUNT, "zero", 0)).remaining == 60
    await s.ledger.reserve(PAYER, "b", 7)
    await s.ledger.commit(ACCOUNT, "b")
    assert (await s.ledger.commit(ACCOUNT, "b")).remaining == 53
    assert (await s.ledger.commit(ACCOUNT, "b", 7)).remaining == 53
    await s.audit()


async def holds_are_reaped_exactly_at_their_deadline(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 5, ttl_s=10)
    await s.ledger.reserve(PAYER, "b", 6, ttl_s=11)
    await s.after(9_999)
    assert not await s.ledger.reap(ACCOUNT, "a")
    assert await s.ledger.reap_due() == 0
    await s.after(1)
    assert await s.ledger.reap_due() == 1
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.held) == (54, 6)
    with pytest.raises(HoldClosedError, match="reaped"):
        await s.ledger.commit(ACCOUNT, "a")
    with pytest.raises(HoldClosedError, match="reaped"):
        await s.ledger.void(ACCOUNT, "a")
    assert await s.ledger.reap_due() == 0
    assert not await s.ledger.reap(ACCOUNT, "a")
    # A late commit of a hold that nobody has reaped yet still counts.
    await s.after(5_000)
    assert (await s.ledger.commit(ACCOUNT, "b")).remaining == 54
    assert (await s.lines())[-2:] == [("reap", "a", 5, 0, 0), ("commit", "b", 0, 0, 0)]
    await s.audit()


async def hits_are_free_inside_the_allowance(s: Setting) -> None:
    for used in range(1, 5):
        charge = await s.ledger.count_hit(ACCOUNT, "basic")
        assert (charge.credits, charge.balance.lookups_used) == (0, used)
        assert charge.balance.remaining == 60
    assert [kind for kind, *_ in await s.lines()] == ["grant"]
    charge = await s.ledger.count_hit(ACCOUNT, "basic", hits=3, hit_id="hit:1")
    assert (charge.credits, charge.balance.lookups_used, charge.balance.remaining) == (2, 7, 58)
    again = await s.ledger.count_hit(ACCOUNT, "basic", hits=3, hit_id="hit:1")
    assert (again.credits, again.balance) == (2, charge.balance)
    assert (await s.lines())[-1] == ("hit", "hit:1", -2, 0, 0)
    assert (await s.ledger.count_hit(ACCOUNT, "basic")).balance.remaining == 57
    strict = Ledger(s.store, s.tiers, over_allowance="reject")
    with pytest.raises(InsufficientCreditsError, match="allowance of 5"):
        await strict.count_hit(ACCOUNT, "basic")
    balance = await s.ledger.balance(ACCOUNT)
    assert (balance.remaining, balance.lookups_used) == (57, 8)
    await s.at(stamp_ms(2026, 12, 1))
    charge = await s.ledger.count_hit(ACCOUNT, "basic")
    assert (charge.credits, charge.balance.lookups_used, charge.balance.remaining) == (0, 1, 60)
    await s.audit()


async def free_hits_count_once(s: Setting) -> None:
    """Even if sent again, twice at once, or beyond the allowance; for some minutes."""
    hit = partial(s.ledger.count_hit, ACCOUNT, "basic")
    for charge in (
        await hit(3, "free"),
        await hit(3, "free"),
        *await asyncio.gather(hit(1, "other"), hit(1, "other"), hit(3, "free")),
    ):
        assert (charge.credits, charge.balance.lookups_used) in ((0, 3), (0, 4))
    assert (await hit(2)).balance.lookups_used == 6
    charge = await hit(3, "free")
    assert (charge.credits, charge.balance.lookups_used) == (0, 6)
    assert [line[0] for line in await s.lines() if line[0] == "hit"] == ["hit"]
    left_ms = await s.store.command("PTTL", s.store.keys.hold(ACCOUNT, "free"))
    assert 500_000 < left_ms <= 600_000
    await s.audit()


async def rejecting_starts_after_the_allowance(s: Setting) -> None:
    strict = Ledger(s.store, s.tiers, over_allowance="reject")
    assert (await strict.count_hit(ACCOUNT, "basic", hits=5)).balance.lookups_used == 5
    with pytest.raises(InsufficientCreditsError, match="allowance of 5"):
        await strict.count_hit(ACCOUNT, "basic")


async def hits_beyond_need_credits(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 90)
    await s.ledger.count_hit(ACCOUNT, "basic", hits=5)
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.count_hit(ACCOUNT, "basic")
    assert (await s.ledger.balance(ACCOUNT)).lookups_used == 5
    free = Ledger(s.store, s.tiers, hit_price=0)
    charge = await free.count_hit(ACCOUNT, "basic")
    assert (charge.credits, charge.balance.lookups_used) == (0, 6)


async def payments_count_once(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    assert buckets(await s.ledger.topup(ACCOUNT, "pay:1", 10)) == (60, 10, 0)
    payment = s.store.keys.payment(ACCOUNT, "pay:1")
    await s.store.command("PEXPIRE", payment, 1_000_000)
    assert buckets(await s.ledger.topup(ACCOUNT, "pay:1", 10)) == (60, 10, 0)
    assert await s.store.command("PTTL", payment) > 399 * DAY_MS
    with pytest.raises(HoldMismatchError):
        await s.ledger.topup(ACCOUNT, "pay:1", 11)
    with pytest.raises(HoldMismatchError):
        await s.ledger.grant(ACCOUNT, "pay:1", 10)
    assert buckets(await s.ledger.grant(ACCOUNT, "gift:1", 5)) == (65, 10, 0)
    for bad in (0, -5):
        with pytest.raises(ValueError, match="positive"):
            await s.ledger.topup(ACCOUNT, "pay:2", bad)
    await s.audit()


async def first_script_of_a_month_may_be_any(s: Setting) -> None:
    """Commit, refund, payment and even a refused adjustment bring the new month."""
    for number, month in enumerate(range(1, 5)):
        await s.at(stamp_ms(2027, month, 20))
        hold_id = f"h{number}"
        await s.ledger.reserve(PAYER, hold_id, 20)
        await s.at(stamp_ms(2027, month + 1, 1))
        match number:
            case 0:
                assert buckets(await s.ledger.commit(ACCOUNT, hold_id, 15)) == (65, 0, 0)
            case 1:
                assert buckets(await s.ledger.topup(ACCOUNT, "pay:1", 5)) == (60, 5, 0)
            case 2:
                with pytest.raises(InsufficientCreditsError):
                    await s.ledger.adjust(ACCOUNT, "fix:1", -1000, "ann", "typo")
                assert (await s.ledger.balance(ACCOUNT)).grant == 60
            case 3:
                assert (await s.ledger.commit(ACCOUNT, hold_id, 0)).grant == 80
        await s.audit()


async def tier_may_have_no_grant(s: Setting) -> None:
    table = load_table("tiers")
    table["free"].update(monthly_credits=0)
    ledger = Ledger(s.store, Tiers(table))
    await s.ledger.balance(ACCOUNT, "basic")
    assert (await ledger.balance(ACCOUNT, "free")).remaining == 60
    await s.at(stamp_ms(2026, 12, 1))
    assert (await ledger.balance(ACCOUNT, "free")).remaining == 0


async def adjustments_name_their_operator(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    await s.ledger.topup(ACCOUNT, "pay:1", 10)
    assert buckets(await s.ledger.adjust(ACCOUNT, "fix:1", 4, "ann", "outage")) == (60, 14, 0)
    assert buckets(await s.ledger.adjust(ACCOUNT, "fix:2", -20, "ann", "typo")) == (54, 0, 0)
    with pytest.raises(InsufficientCreditsError):
        await s.ledger.adjust(ACCOUNT, "fix:3", -55, "ann", "too much")
    assert buckets(await s.ledger.adjust(ACCOUNT, "fix:4", -54, "ann", "all")) == (0, 0, 0)
    entry = (await s.journal.entries(ACCOUNT))[2]
    assert entry.note == '{"operator": "ann", "reason": "outage"}'
    await s.audit()


async def no_account_gets_more_than_sums_can_tell(s: Setting) -> None:
    await s.ledger.balance(ACCOUNT, "basic")
    for credit in (
        s.ledger.topup(ACCOUNT, "a", MOST_CREDITS + 1),
        s.ledger.grant(ACCOUNT, "a", MOST_CREDITS + 1),
        s.ledger.adjust(ACCOUNT, "a", MOST_CREDITS + 1, "ann", "typo"),
        s.ledger.grant(ACCOUNT, "a", MOST_CREDITS - 59),
    ):
        with pytest.raises(TooManyCreditsError, match="1000000000000"):
            await credit
    balance = await s.ledger.grant(ACCOUNT, "b", MOST_CREDITS - 60)
    assert buckets(balance) == (MOST_CREDITS, 0, 0)
    with pytest.raises(TooManyCreditsError):
        await s.ledger.grant(ACCOUNT, "c", 1)
    assert buckets(await s.ledger.topup(ACCOUNT, "d", MOST_CREDITS)) == (*[MOST_CREDITS] * 2, 0)
    await s.ledger.reserve(PAYER, "hold", MOST_CREDITS + 10)
    with pytest.raises(TooManyCreditsError, match="1000000000010 in open holds"):
        await s.ledger.topup(ACCOUNT, "e", 1)
    assert buckets(await s.ledger.void(ACCOUNT, "hold")) == (*[MOST_CREDITS] * 2, 0)
    with pytest.raises(TooManyCreditsError):
        await s.ledger.adjust(ACCOUNT, "f", 1, "ann", "typo")
    assert [line[1] for line in await s.lines()] == ["202611", "b", "d", "hold", "hold"]
    await s.audit()


async def records_live_as_long_as_they_should(s: Setting) -> None:
    keys = s.store.keys
    await s.ledger.reserve(PAYER, "open", 1)
    await s.ledger.reserve(PAYER, "done", 1)
    await s.ledger.reserve(PAYER, "void", 1)
    await s.ledger.commit(ACCOUNT, "done")
    await s.ledger.void(ACCOUNT, "void")
    await s.ledger.topup(ACCOUNT, "pay:1", 1)
    await s.ledger.count_hit(ACCOUNT, "basic", hits=6, hit_id="hit:1")
    day = DAY_MS
    for key, low, high in (
        (keys.hold(ACCOUNT, "open"), -1, -1),
        (keys.balance(ACCOUNT), -1, -1),
        (keys.payment(ACCOUNT, "pay:1"), 400 * day - 60_000, 400 * day),
    ):
        assert low <= await s.store.command("PTTL", key) <= high


async def higher_tier_brings_the_difference_once(s: Setting) -> None:
    await s.ledger.reserve(PAYER, "a", 60)
    assert (await s.ledger.balance(ACCOUNT, "pro")).remaining == 140
    assert (await s.ledger.balance(ACCOUNT, "basic")).remaining == 140
    assert (await s.ledger.balance(ACCOUNT, "pro")).remaining == 140
    assert (await s.ledger.balance(ACCOUNT, "basic")).granted == 200
    await s.at(stamp_ms(2026, 12, 1))
    # No tier is given here: the last one counts.
    assert (await s.ledger.void(ACCOUNT, "a")).remaining == 120
    await s.audit()


async def accounts_do_not_touch_each_other(s: Setting) -> None:
    for number in range(8):
        payer = AccountPayer(f"owner{number}", "basic")
        await s.ledger.reserve(payer, "same-id", number)
    for number in range(8):
        assert (await s.ledger.balance(f"owner{number}")).remaining == 60 - number
    report = await s.journal.audit()
    assert (report.accounts, report.entries, report.open_holds) == (8, 16, 8)
    assert report.is_clean


async def operations_of_one_call_see_each_other(s: Setting) -> None:
    ledger, keys = s.ledger, s.store.keys
    await ledger.reserve(PAYER, "old", 1)
    given = await asyncio.gather(
        ledger.reserve(PAYER, "a", 50, fingerprint="x"),
        ledger.reserve(PAYER, "a", 50, fingerprint="x"),
        ledger.reserve(PAYER, "a", 50, fingerprint="y"),
        ledger.reserve(PAYER, "b", 39),
        ledger.reserve(PAYER, "c", 40),
        ledger.commit(ACCOUNT, "a", 20),
        ledger.commit(ACCOUNT, "a", 20),
        ledger.void(ACCOUNT, "a"),
        ledger.commit(ACCOUNT, "never"),
        ledger.reserve(PAYER, "c", 25, ttl_s=10),
        ledger.void(ACCOUNT, "b"),
        ledger.void(ACCOUNT, "b"),
        ledger.reap(ACCOUNT, "c"),
        ledger.count_hit(ACCOUNT, "basic", 7, "hit:1"),
        ledger.count_hit(ACCOUNT, "basic", 7, "hit:1"),
        return_exceptions=True,
    )
    assert [type(g).__name__ for g in given if isinstance(g, Exception)] == [
        *("HoldMismatchError", "InsufficientCreditsError"),
        *("HoldClosedError", "HoldClosedError"),
    ]
    assert [n for n, g in enumerate(given) if isinstance(g, Exception)] == [2, 4, 7, 8]
    balance = await ledger.balance(ACCOUNT)
    assert (buckets(balance), balance.held, balance.lookups_used) == ((7, 5, 0), 26, 7)
    # Every answer of a call shows the account as it is after the whole call.
    assert given[0] == given[11] == balance
    assert given[12] is False
    assert given[13] == given[14] == Charge(2, balance)
    assert (await s.lines())[2:] == [
        ("reserve", "a", -50, 0, 0),
        ("reserve", "b", -9, 0, 30),
        ("commit", "a", 0, 0, -30),
        ("reserve", "c", 0, 0, 25),
        ("void", "b", 9, 5, -25),
        ("hit", "hit:1", -2, 0, 0),
    ]
    assert await s.store.command("XLEN", keys.shard(keys.tag(ACCOUNT), "j")) == 2
    await s.after(10_000)
    assert await ledger.reap_due() == 1
    await s.audit()


async def one_call_serves_many_accounts(s: Setting) -> None:
    payers = [AccountPayer(f"owner{number}", "basic") for number in range(20)]
    await asyncio.gather(
        *(s.ledger.reserve(payer, f"h{cost}", cost) for cost in (1, 2) for payer in payers)
    )
    voided = await asyncio.gather(*(s.ledger.void(payer.account, "h2") for payer in payers))
    assert {(b.remaining, b.held) for b in voided} == {(59, 1)}
    keys = s.store.keys
    streams = {keys.shard(keys.tag(payer.account), "j") for payer in payers}
    assert len(streams) == keys.shards
    assert [await s.store.command("XLEN", stream) for stream in streams] == [2] * len(streams)
    await s.audit()


LEDGER_CASES = (
    operations_of_one_call_see_each_other,
    one_call_serves_many_accounts,
    spends_grant_then_packs_then_grace,
    grace_ends_exactly_at_the_floor,
    free_tier_has_no_grace,
    grace_ends_exactly_after_a_day,
    month_turns_at_its_first_millisecond,
    months_have_their_lengths,
    new_grant_repays_debt_first,
    packs_never_expire,
    last_months_hold_returns_to_this_months_grant,
    commit_gives_back_the_rest_newest_first,
    rest_may_be_less_than_its_last_buckets,
    repaid_debt_returns_as_packs,
    returned_credits_repay_debt,
    ids_are_used_once,
    holds_are_reaped_exactly_at_their_deadline,
    hits_are_free_inside_the_allowance,
    free_hits_count_once,
    rejecting_starts_after_the_allowance,
    hits_beyond_need_credits,
    payments_count_once,
    first_script_of_a_month_may_be_any,
    tier_may_have_no_grant,
    adjustments_name_their_operator,
    no_account_gets_more_than_sums_can_tell,
    records_live_as_long_as_they_should,
    higher_tier_brings_the_difference_once,
    accounts_do_not_touch_each_other,
)
