"""Directed cases of limits, idempotency, keys, webhooks and caches."""

import asyncio
from dataclasses import replace
from unittest import TestCase, mock

import pytest

from serve_app.checkpoints.choice import Proposal
from serve_app.checkpoints.choices import PROPOSAL, ModelChoices
from serve_app.domain.webhooks import RETRY_DELAYS_S
from serve_app.ledger.jobs import webhooks
from serve_app.ledger.jobs.types import NewJob
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.store import client, idempotency
from serve_app.store.accounts import Accounts, OtherPepperError
from serve_app.store.bus import Bus
from serve_app.store.cache import Cache
from serve_app.store.idempotency import Fresh, Idempotency, InFlight, Mismatch, Replay
from serve_app.store.keys import KEY_EVENTS
from serve_app.store.limits import Limits
from tests.store.setting import ACCOUNT, Setting, some_work

DAY_MS = 24 * 3600 * 1000


async def many_keys_are_asked_at_once(s: Setting) -> None:
    await s.store.command("ZADD", "z:1", 1, "one", 3, "three")
    await s.store.command("ZADD", "z:3", 2, "two")
    await s.store.command("HSET", "h:1", "b", "2")
    await s.store.command("HSET", "h:2", "c", "3")
    sets, hashes = ([f"{kind}:{n}" for n in range(5)] for kind in "zh")
    for of_a_script in (64, 5, 2):
        with mock.patch.object(client, "ASKED_AT_ONCE", of_a_script):
            assert await s.store.ask(sets, "ZCARD") == {"z:1": 2, "z:3": 1}
            due = await s.store.ask(sets, "ZRANGEBYSCORE", "-inf", 2, "LIMIT", 0, 10)
            assert due == {"z:1": [b"one"], "z:3": [b"two"]}
            assert await s.store.ask(sets, "ZRANGEBYSCORE", 3, 9) == {"z:1": [b"three"]}
            assert await s.store.ask(hashes, "HMGET", "a", "b") == {"h:1": [None, b"2"]}
            assert await s.store.ask(hashes, "HGET", "b") == {"h:1": b"2"}


async def rate_limit_allows_its_burst_and_then_its_rate(s: Setting) -> None:
    limits, tier = Limits(s.store), s.tiers["basic"]
    first = await limits.check("bob", "compute", tier)
    assert (first.allowed, first.limit, first.window_s) == (True, 30, 60)
    assert (first.remaining, first.retry_after_s, first.reset_s) == (29, 0, 2)
    for left in range(28, -1, -1):
        decision = await limits.check("bob", "compute", tier)
        assert (decision.allowed, decision.remaining) == (True, left)
    refused = await limits.check("bob", "compute", tier)
    assert (refused.allowed, refused.remaining) == (False, 0)
    assert (refused.retry_after_s, refused.reset_s) == (2, 60)
    await s.after(1_999)
    assert not (await limits.check("bob", "compute", tier)).allowed
    await s.after(1)
    assert (await limits.check("bob", "compute", tier)).allowed
    assert not (await limits.check("bob", "compute", tier)).allowed
    assert (await limits.check("ann", "compute", tier)).remaining == 29
    assert (await limits.check("bob", "read", tier)).remaining == 299
    await s.after(60_000)
    assert (await limits.check("bob", "compute", tier)).remaining == 29
    ttl_ms = await s.store.command("PTTL", "rl:compute:bob")
    assert 1_000 < ttl_ms <= 2_000


async def rate_limit_rounds_against_the_caller(s: Setting) -> None:
    """Seven a minute is one every 8,571.4 ms."""

    async def ask(times: int = 1) -> list[int]:
        answers = [await s.store.run("gcra", ["rl:x"], [7, 60_000, 7]) for _ in range(times)]
        return list(answers[-1])

    assert await ask(4) == [1, 3, 0, 34_286]
    assert 30_000 <= await s.store.command("PTTL", "rl:x") <= 34_286
    await s.after(1)
    assert await ask(3) == [1, 0, 0, 59_999]
    assert await ask(2) == [0, 0, 8_571, 59_999]
    await s.after(8_571)
    assert await ask() == [1, 0, 0, 60_000]


async def a_clock_that_is_set_back_locks_nobody_out(s: Setting) -> None:
    limits, tier = Limits(s.store), s.tiers["basic"]
    for _ in range(31):
        await limits.check("bob", "compute", tier)
    await s.after(-DAY_MS)
    for left in range(29, -1, -1):
        assert (await limits.check("bob", "compute", tier)).remaining == left
    refused = await limits.check("bob", "compute", tier)
    assert (refused.allowed, refused.retry_after_s) == (False, 2)


async def polls_of_one_job_are_limited_apart(s: Setting) -> None:
    limits = Limits(s.store)
    answers = [(await limits.check_job_poll("bob", "j1")).allowed for _ in range(6)]
    assert answers == [True] * 5 + [False]
    assert (await limits.check_job_poll("bob", "j2")).remaining == 4
    await s.after(1_000)
    assert (await limits.check_job_poll("bob", "j1")).allowed
    assert not (await limits.check_job_poll("bob", "j1")).allowed


async def failed_authentication_is_counted_by_address(s: Setting) -> None:
    limits = Limits(s.store)
    for left in range(29, -1, -1):
        counted = await limits.check_failed_auth("198.51.100.7")
        assert (counted.allowed, counted.remaining) == (True, left)
    assert not (await limits.check_failed_auth("198.51.100.7")).allowed
    assert (await limits.check_failed_auth("198.51.100.8")).allowed
    await s.after(2_000)
    assert (await limits.check_failed_auth("198.51.100.7")).allowed


async def slots_are_taken_and_lapse(s: Setting) -> None:
    limits = Limits(s.store)
    assert await limits.acquire_slot("bob", "identify", 2, "r1", ttl_s=10)
    assert await limits.acquire_slot("bob", "identify", 2, "r2", ttl_s=10)
    assert not await limits.acquire_slot("bob", "identify", 2, "r3", ttl_s=10)
    assert await limits.acquire_slot("bob", "identify", 2, "r2", ttl_s=10)
    assert await limits.acquire_slot("ann", "identify", 2, "r3", ttl_s=10)
    await limits.release_slot("bob", "identify", "r1")
    assert await limits.acquire_slot("bob", "identify", 2, "r4", ttl_s=20)
    await s.after(9_999)
    assert not await limits.acquire_slot("bob", "identify", 2, "r5", ttl_s=10)
    await s.after(1)
    assert await limits.acquire_slot("bob", "identify", 2, "r5", ttl_s=10)
    assert not await limits.acquire_slot("bob", "identify", 2, "r6", ttl_s=10)
    assert 0 < await s.store.command("PTTL", "slot:identify:bob") <= 10_000


async def idempotency_keys_replay_their_answer(s: Setting) -> None:
    table = Idempotency(s.store)
    assert await table.begin("bob", "k", "print") == Fresh()
    assert await table.begin("bob", "k", "print") == InFlight()
    assert await table.begin("bob", "k", "other") == Mismatch()
    assert await table.begin("ann", "k", "other") == Fresh()
    key = s.store.keys.idempotency("bob", "k")
    assert 10_000 < await s.store.command("PTTL", key) <= 15_000
    # An earlier request that had the key, and expired, does not answer for this one.
    await table.finish("bob", "k", "other", 200, {}, b"")
    await table.abandon("bob", "k", "other")
    assert await table.begin("bob", "k", "print") == InFlight()
    await table.finish("bob", "k", "print", 202, {"x-a": "b"}, b"\x00body")
    await table.abandon("bob", "k", "print")
    assert await table.begin("bob", "k", "print") == Replay(202, {"x-a": "b"}, b"\x00body")
    assert await table.begin("bob", "k", "other") == Mismatch()
    assert DAY_MS - 10_000 < await s.store.command("PTTL", key) <= DAY_MS
    await table.begin("bob", "again", "print")
    await table.abandon("bob", "again", "print")
    assert await table.begin("bob", "again", "print") == Fresh()
    # A late answer does not bring back an expired key.
    await table.finish("bob", "lapsed", "print", 200, {}, b"")
    assert await table.begin("bob", "lapsed", "print") == Fresh()


async def a_key_is_held_while_its_request_runs(s: Setting) -> None:
    table = Idempotency(s.store)
    key = s.store.keys.idempotency("bob", "k")
    again_s, idempotency.HOLD_AGAIN_S = idempotency.HOLD_AGAIN_S, 0.02
    try:
        await table.begin("bob", "k", "print")
        async with table.held("bob", "k", "print"):
            await s.store.command("PEXPIRE", key, 9_000)
            while (left_ms := await s.store.command("PTTL", key)) <= 9_000:
                assert left_ms > 0
                await asyncio.sleep(0.02)
            await table.finish("bob", "k", "print", 200, {}, b"")
            await asyncio.sleep(0.1)
        assert await s.store.command("PTTL", key) > DAY_MS - 10_000
        # It expired, and another request has it.
        await table.begin("bob", "other", "another print")
        async with table.held("bob", "other", "print"):
            await s.store.command("PEXPIRE", s.store.keys.idempotency("bob", "other"), 9_000)
            await asyncio.sleep(0.1)
        kept_ms = await s.store.command("PTTL", s.store.keys.idempotency("bob", "other"))
        assert 0 < kept_ms <= 9_000
    finally:
        idempotency.HOLD_AGAIN_S = again_s


async def a_proposal_is_its_owners(s: Setting) -> None:
    choices = ModelChoices(s.store)
    ours, other = (Proposal("embedding", "mert-95m", token) for token in ("ours", "other"))
    assert await choices.propose(ours, 10)
    assert not await choices.propose(other, 10)
    assert not await choices.keep(other, 100)
    await choices.withdraw(other)
    assert (await choices.read()).proposal == ours
    assert 5_000 < await s.store.command("PTTL", PROPOSAL) <= 10_000
    assert await choices.keep(ours, 100)
    assert 90_000 < await s.store.command("PTTL", PROPOSAL) <= 100_000
    await choices.withdraw(ours)
    assert (await choices.read()).proposal is None
    assert not await choices.keep(ours, 10)


async def keys_speak_for_their_owner(s: Setting) -> None:
    accounts = Accounts(s.store, "pepper", s.tiers)
    live = await accounts.issue("bob", "starter", scopes={"read"})
    test = await accounts.issue("bob", test=True)
    caller = await accounts.authenticate(live.key)
    assert caller is not None
    assert (caller.owner, caller.account, caller.tier) == ("bob", "bob", "basic")
    assert (caller.scopes, caller.is_test, caller.key_id) == ({"read"}, False, live.key_id)
    tester = await accounts.authenticate(test.key)
    assert tester is not None
    assert (tester.owner, tester.account, tester.is_test) == ("test~bob", "test~bob", True)
    assert tester.scopes == {"read", "compute", "assets"}
    stranger = Accounts(s.store, "other pepper", s.tiers)
    assert await stranger.authenticate(live.key) is None
    assert {info.key_id for info in await accounts.list("bob")} == {live.key_id, test.key_id}
    await accounts.close()
    await stranger.close()


async def rotated_keys_overlap_exactly(s: Setting) -> None:
    accounts = Accounts(s.store, "pepper", s.tiers)
    old = await accounts.issue("bob", "pro", scopes={"read", "assets"})
    new = await accounts.rotate(old.key_id, overlap_s=100)
    await accounts.rotate(old.key_id, overlap_s=5_000)
    caller = await accounts.authenticate(new.key)
    assert caller is not None
    assert caller.scopes == {"read", "assets"}
    for ms, is_valid in ((99_999, True), (1, False)):
        await s.after(ms)
        fresh = Accounts(s.store, "pepper", s.tiers)
        assert (await fresh.authenticate(old.key) is not None) == is_valid
        assert await fresh.authenticate(new.key) is not None
        await fresh.close()
        state = {info.key_id: info.state for info in await accounts.list("bob")}[old.key_id]
        assert state == ("valid" if is_valid else "expired")
    listed = {info.key_id: info for info in await accounts.list("bob")}
    assert listed[old.key_id].expires_at is not None
    assert listed[new.key_id].expires_at is None
    later = await accounts.rotate(new.key_id, overlap_s=50)
    await accounts.rotate(new.key_id, overlap_s=20)
    await s.after(20_000)
    fresh = Accounts(s.store, "pepper", s.tiers)
    assert await fresh.authenticate(new.key) is None
    assert await fresh.authenticate(later.key) is not None
    await fresh.close()
    await accounts.close()


async def revoked_keys_die_everywhere_within_a_second(s: Setting) -> None:
    here, there = (Accounts(s.store, "pepper", s.tiers) for _ in range(2))
    issued = await here.issue("bob", "pro")
    other = await here.issue("ann", "pro")
    for accounts in (here, there):
        assert await accounts.authenticate(issued.key) is not None
        assert await accounts.authenticate(other.key) is not None
    await here.revoke(issued.key_id)
    async with asyncio.timeout(20):  # without the message it would take thirty
        while await there.authenticate(issued.key) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await here.authenticate(issued.key) is None
    assert await there.authenticate(other.key) is not None
    assert [info.state for info in await here.list("bob")] == ["revoked"]
    await here.set_tier("ann", "free")
    async with asyncio.timeout(20):  # without the message it would take thirty
        while True:
            caller = await there.authenticate(other.key)
            assert caller is not None
            if caller.tier == "free":
                break
            await asyncio.sleep(0.01)
    await here.close()
    await there.close()


async def keys_are_made_with_the_services_pepper_alone(s: Setting) -> None:
    service, stranger = (Accounts(s.store, pepper, s.tiers) for pepper in ("pepper", "other"))
    issued = await stranger.issue("ann")  # nobody knows yet which pepper the service has
    for ours, theirs in ((service, stranger), (stranger, service)):
        await ours.note_pepper()
        with TestCase().assertNoLogs("serve_app.store.accounts"):
            await ours.note_pepper()
        with pytest.raises(OtherPepperError, match="its pepper is another"):
            await theirs.issue("bob", "pro")
        with pytest.raises(OtherPepperError, match="its pepper is another"):
            await theirs.rotate(issued.key_id)
        assert await theirs.tier_of("bob") is None
    assert await stranger.authenticate((await stranger.issue("ann")).key) is not None
    await service.close()
    await stranger.close()


async def ended_keys_have_no_successor(s: Setting) -> None:
    accounts = Accounts(s.store, "pepper", s.tiers)
    revoked, expired = [await accounts.issue("bob", "pro") for _ in range(2)]
    await accounts.revoke(revoked.key_id)
    await accounts.rotate(expired.key_id, overlap_s=1)
    await s.after(1_000)
    for ended in (revoked, expired):
        with pytest.raises(ValueError, match=f"{ended.key_id} is revoked or expired"):
            await accounts.rotate(ended.key_id)
    assert len(await accounts.list("bob")) == 3
    await accounts.close()


async def a_revocation_heard_while_a_key_is_read_counts(s: Setting) -> None:
    heard, bus = asyncio.Event(), Bus(s.store)
    bus.listen(KEY_EVENTS, lambda _: heard.set())
    here = Accounts(s.store, "pepper", s.tiers)
    there = Accounts(s.store, "pepper", s.tiers, bus)
    issued = await here.issue("bob", "pro")
    assert await there.authenticate("afa_live_junk") is None
    read_tier = there.tier_of

    async def slowly(owner: str) -> str | None:
        heard.clear()
        await here.revoke(issued.key_id)
        await heard.wait()  # the message arrives before the answer
        return await read_tier(owner)

    there.tier_of = slowly  # type: ignore[method-assign]
    assert await there.authenticate(issued.key) is not None
    assert await there.authenticate(issued.key) is None
    await here.close()
    await there.close()


async def secrets_of_webhooks_are_not_stored(s: Setting) -> None:
    hooks = Webhooks(s.store, s.jobs, pepper="p")
    key = s.store.keys.webhook(ACCOUNT)
    first = await hooks.register(ACCOUNT, "https://example.org/a")
    stored = b" ".join(await s.store.command("HVALS", key)).decode()
    assert first.secret.removeprefix("whsec_") not in stored
    assert (await Webhooks(s.store, s.jobs, pepper="other").get(ACCOUNT)) != first
    await hooks.remove(ACCOUNT)
    second = await hooks.register(ACCOUNT, "https://example.org/a")
    assert second.secret != first.secret
    assert await hooks.register(ACCOUNT, "https://example.org/a") == second


async def secrets_of_old_webhooks_stay(s: Setting) -> None:
    """Releases before 0.2 stored them."""
    hooks = Webhooks(s.store, s.jobs, pepper="p")
    key = s.store.keys.webhook(ACCOUNT)
    await s.store.command("HSET", key, "url", "https://example.org/a", "secret", "whsec_b2xk")
    old = await hooks.get(ACCOUNT)
    moved = await hooks.register(ACCOUNT, "https://example.org/b")
    assert old is not None
    assert (moved.url, moved.secret) == ("https://example.org/b", old.secret)
    assert old.secret.endswith("b2xk")
    await hooks.remove(ACCOUNT)
    assert (await hooks.register(ACCOUNT, "https://example.org/b")).secret != old.secret


async def webhooks_are_tried_again(s: Setting) -> None:
    statuses: list[int] = []
    attempts: list[tuple[str, bytes]] = []

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        attempts.append((headers["webhook-id"], body))
        if not statuses:
            raise OSError("no route")
        return statuses.pop(0)

    hooks = Webhooks(s.store, s.jobs, send, pepper="p")  # type: ignore[arg-type]
    first = await hooks.register(ACCOUNT, "https://example.org/a")
    second = await hooks.register(ACCOUNT, "https://example.org/b")
    assert (second.url, second.secret) == ("https://example.org/b", first.secret)
    await s.jobs.submit(NewJob("j1", ACCOUNT, "pro", some_work(), 1))
    claim = await s.jobs.claim("w")
    assert claim is not None
    await s.jobs.finish(claim, b"")
    statuses.append(500)
    assert await hooks.deliver_due() == 0
    for delay_s in RETRY_DELAYS_S:
        await s.after(delay_s * 1000 - 1)
        count = len(attempts)
        assert await hooks.deliver_due() == 0
        assert len(attempts) == count
        await s.after(1)
        assert await hooks.deliver_due() == 0
        assert len(attempts) == count + 1
    await s.after(10**9)
    count = len(attempts)
    assert await hooks.deliver_due() == 0
    assert len(attempts) == count == len(RETRY_DELAYS_S) + 1
    assert len(set(attempts)) == 1
    tries = s.store.keys.webhook_index(s.store.keys.tag(ACCOUNT), "tries")
    assert await s.store.command("HLEN", tries) == 0


async def delivery_in_progress_is_left_alone(s: Setting) -> None:
    sent: list[str] = []

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        sent.append(headers["webhook-id"])
        if len(sent) == 1:
            assert await others.deliver_due() == 0
        return 200

    hooks, others = (
        Webhooks(s.store, s.jobs, send, pepper="p")  # type: ignore[arg-type]
        for _ in range(2)
    )
    await hooks.register(ACCOUNT, "https://example.org/a")
    await s.jobs.submit(NewJob("j1", ACCOUNT, "pro", some_work(), 1))
    claim = await s.jobs.claim("w")
    assert claim is not None
    await s.jobs.fail(claim, "internal_error", "x")
    assert await hooks.deliver_due() == 1
    await s.after(120_000)
    assert await hooks.deliver_due() == 0
    assert sent == ["msg_j1"]


async def ended_job(s: Setting, job_id: str, account: str, *, is_for_lookup: bool = False) -> None:
    work = replace(some_work(), is_for_lookup=is_for_lookup)
    await s.jobs.submit(NewJob(job_id, account, "pro", work, 1))
    claim = await s.jobs.claim("w")
    assert claim is not None
    await s.jobs.finish(claim, b"")


async def addresses_that_hang_keep_no_other_waiting(s: Setting) -> None:
    sent: list[str] = []

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        if url.endswith("odd"):
            raise ValueError(url)
        if url.endswith("hang"):
            await asyncio.sleep(3600)
        sent.append(headers["webhook-id"])
        return 200

    hooks = Webhooks(s.store, s.jobs, send, pepper="p")  # type: ignore[arg-type]
    for account in ("odd", "hang", "good"):
        await hooks.register(account, f"https://example.org/{account}")
        for n in range(6):
            await ended_job(s, f"{account}-{n}", account)
    limit_s, webhooks.SEND_LIMIT_S = webhooks.SEND_LIMIT_S, 4.0
    try:
        async with asyncio.timeout(20):  # one after the other would take 24
            assert await hooks.deliver_due() == 6
    finally:
        webhooks.SEND_LIMIT_S = limit_s
    assert sorted(sent) == [f"msg_good-{n}" for n in range(6)]
    await s.after(RETRY_DELAYS_S[0] * 1000)
    due = await s.store.command("ZCARD", s.store.keys.webhook_index(s.store.keys.tag("odd"), "due"))
    assert due >= 6


async def an_address_that_hangs_keeps_no_later_message_waiting(s: Setting) -> None:
    sent: list[str] = []
    answered = asyncio.Event()

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        if url.endswith("hang"):
            await answered.wait()
        sent.append(headers["webhook-id"])
        return 200

    hooks = Webhooks(s.store, s.jobs, send, pepper="p")  # type: ignore[arg-type]
    hanging = webhooks.OF_A_SHARD + 4
    for account in ("hang", "good"):
        await hooks.register(account, f"https://example.org/{account}")
    for n in range(hanging):
        await ended_job(s, f"hang-{n}", "hang")
    assert s.store.keys.tag("hang") != s.store.keys.tag("good")
    webhooks.ROUND_S = 0.5
    async with asyncio.timeout(30):
        assert await hooks.deliver_due() == 0
        await ended_job(s, "good-0", "good")
        while await hooks.deliver_due() == 0:
            pass
    assert sent == ["msg_good-0"]
    tries = s.store.keys.webhook_index(s.store.keys.tag("hang"), "tries")
    assert await s.store.command("HLEN", tries) == webhooks.OF_A_SHARD
    webhooks.ROUND_S = 30.0
    answered.set()
    assert await hooks.deliver_due() == webhooks.OF_A_SHARD
    assert await hooks.deliver_due() == hanging - webhooks.OF_A_SHARD
    assert len(sent) == len(set(sent)) == hanging + 1


async def the_job_of_a_look_up_is_not_told(s: Setting) -> None:
    sent: list[str] = []

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        sent.append(headers["webhook-id"])
        return 200

    hooks = Webhooks(s.store, s.jobs, send, pepper="p")  # type: ignore[arg-type]
    await hooks.register(ACCOUNT, "https://example.org/a")
    await ended_job(s, "j1", ACCOUNT, is_for_lookup=True)
    await ended_job(s, "j2", ACCOUNT)
    assert await hooks.deliver_due() == 1
    assert sent == ["msg_j2"]


async def cache_remembers_values(s: Setting) -> None:
    cache = Cache(s.store)
    assert await cache.get("f", "a") is None
    await cache.put("f", "a", b"\x00x", 10)
    await cache.put("f", "empty", b"", 10)
    assert await cache.get("f", "a") == b"\x00x"
    assert await cache.get("g", "a") is None
    assert await cache.get("f", "empty") == b""


async def one_at_a_time_computes(s: Setting) -> None:
    cache = Cache(s.store)
    order: list[str] = []

    async def work(name: str) -> None:
        async with cache.single_flight("k", wait_s=5) as is_mine:
            order.append(f"{name}:{is_mine}")
            await asyncio.sleep(0.1)

    await asyncio.gather(work("a"), work("b"))
    assert sorted(entry.partition(":")[2] for entry in order) == ["False", "True"]
    assert order[0].endswith("True")
    async with cache.single_flight("k", wait_s=0) as is_mine:
        assert is_mine
        async with cache.single_flight("k", wait_s=0) as is_second:
            assert not is_second
        async with cache.single_flight("k", wait_s=0) as is_third:
            assert not is_third


TRAFFIC_CASES = (
    many_keys_are_asked_at_once,
    rate_limit_allows_its_burst_and_then_its_rate,
    rate_limit_rounds_against_the_caller,
    a_clock_that_is_set_back_locks_nobody_out,
    polls_of_one_job_are_limited_apart,
    failed_authentication_is_counted_by_address,
    slots_are_taken_and_lapse,
    idempotency_keys_replay_their_answer,
    a_key_is_held_while_its_request_runs,
    keys_speak_for_their_owner,
    rotated_keys_overlap_exactly,
    revoked_keys_die_everywhere_within_a_second,
    ended_keys_have_no_successor,
    keys_are_made_with_the_services_pepper_alone,
    a_revocation_heard_while_a_key_is_read_counts,
    addresses_that_hang_keep_no_other_waiting,
    an_address_that_hangs_keeps_no_later_message_waiting,
    the_job_of_a_look_up_is_not_told,
    secrets_of_webhooks_are_not_stored,
    secrets_of_old_webhooks_stay,
    webhooks_are_tried_again,
    delivery_in_progress_is_left_alone,
    cache_remembers_values,
    one_at_a_time_computes,
    a_proposal_is_its_owners,
)
