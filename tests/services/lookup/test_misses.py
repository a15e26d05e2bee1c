"""An account pays for a track once, whatever routes it uses and however often it asks at once."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import httpx
import pytest

from serve_app.composition.options import StoreOptions
from serve_app.domain.errors import InsufficientCreditsError, ServiceUnavailableError
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.services.charging import Charging
from serve_app.services.lookup.misses import held, step_name
from serve_app.store.client import connect
from tests.api.application import Application
from tests.services.lookup.buyer import CALLER, OWNER, PRICES, NotComputedError, number_now, track

pytestmark = pytest.mark.redis

DEMO, ISRC = "0AfaDemoTrack000000001", "isrc:QZAFA2600001"
SILENT = "1StUbTrAcK0000000000Aa"
NAMES = {"song": "Demo in A minor", "artist": "The afa Demo Band"}
BY_ID, BY_NAME = f"/v1/audio-features/{DEMO}", "/v1/audio-features"
KEY_BPM = "/v1/key-bpm"
SEVERAL = "/spotify/v1/audio-features"
ROUTES: tuple[tuple[str, dict[str, str]], ...] = (
    (BY_ID, {}),
    (f"/v1/audio-features/{ISRC}", {}),
    (BY_NAME, NAMES),
    (KEY_BPM, NAMES),
    (SEVERAL, {"ids": f"{DEMO},{ISRC},{DEMO}"}),
    (f"/spotify/v1/audio-analysis/{DEMO}", {}),
)


async def ask(api: Application, route: tuple[str, dict[str, str]], who: str = "pro") -> Any:
    answer = await api.client(who).get(route[0], params=route[1])
    assert answer.status_code == 200, (route, answer.text)
    return answer


def cost(answer: httpx.Response) -> int:
    return int(answer.headers["X-Credits-Used"])


async def leave(api: Application, who: str, credits: int) -> None:
    """Spend an owner's credits, grace included, until ``credits`` are left."""
    account, ledger = f"owner-{who}", api.stores.ledger
    caller = await api.stores.accounts.authenticate(api.keys[who])
    assert caller is not None
    left = (await ledger.balance(account, who)).remaining + api.services.tiers[who].grace_credits
    await ledger.reserve(caller, "spent", left - credits)
    await ledger.commit(account, "spent")


# A track that was paid for is not charged again


async def test_features_after_key_and_tempo_cost_nothing_more(api: Application) -> None:
    assert cost(await ask(api, (KEY_BPM, NAMES))) == 2
    features = await ask(api, (BY_ID, {}))
    assert (features.json()["_meta"]["cache"], cost(features)) == ("miss", 0)
    assert (await ask(api, (BY_ID, {}))).json()["_meta"]["cache"] == "hit"
    assert await api.remaining("pro") == 60_000 - 2
    assert (api.quick.n_calls, api.backend.n_calls) == (1, 1)


async def test_another_account_pays_for_itself(api: Application) -> None:
    await ask(api, (KEY_BPM, NAMES))
    assert cost(await ask(api, (BY_ID, {}), "scale")) == 2
    assert await api.remaining("scale") == api.services.tiers["scale"].monthly_credits - 2


async def test_a_beat_grid_costs_what_it_costs_more(api: Application, demo_audio: bytes) -> None:
    linked = await api.client().post(
        f"/v1/assets/upload?track={SILENT}",
        content=demo_audio,
        headers={"Content-Type": "audio/mpeg"},
    )
    assert linked.status_code == 201, linked.text
    names = {"song": "Paper Lanterns", "artist": "The Stub Quartet"}
    assert cost(await ask(api, (KEY_BPM, names))) == 2
    grid = await ask(api, (f"/v1/beatgrid/{SILENT}", {}))
    assert (grid.json()["_meta"]["cache"], cost(grid)) == ("miss", 1)
    assert await api.remaining("pro") == 60_000 - 3


async def test_what_the_cache_has_lost_is_not_paid_again(api: Application) -> None:
    for expected in (2, 0):
        assert cost(await ask(api, (BY_ID, {}))) == expected
        await api.stores.cache_store.command("FLUSHALL")
    assert await api.remaining("pro") == 60_000 - 2


async def test_parallel_misses_by_every_route_pay_once(api: Application) -> None:
    api.backend.delay_s = 0.3
    await leave(api, "pro", 2)
    before = await api.remaining("pro")
    answers = await asyncio.gather(*(ask(api, route) for route in ROUTES * 2))
    assert sum(map(cost, answers)) == 2
    assert await api.remaining("pro") == before - 2
    assert api.backend.n_calls == 1


async def test_two_hundred_slots_of_one_track_pay_once(api: Application) -> None:
    api.backend.delay_s = 0.3
    ids = {"ids": ",".join([DEMO, ISRC] * 50)}
    answers = await asyncio.gather(*(ask(api, (SEVERAL, ids)) for _ in range(2)))
    assert [len(answer.json()["audio_features"]) for answer in answers] == [100, 100]
    assert sorted(map(cost, answers)) == [0, 2]
    assert await api.remaining("pro") == 60_000 - 2
    assert (await api.stores.ledger.balance("owner-pro")).lookups_used == 198


async def test_a_batch_whose_misses_are_not_covered_is_refused_whole(api: Application) -> None:
    await leave(api, "pro", 1)
    answer = await api.client().get(SEVERAL, params={"ids": DEMO})
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_credits")
    assert api.backend.n_calls == 0
    assert (await api.stores.ledger.balance("owner-pro")).held == 0


async def test_slots_that_fail_are_given_back_alone(api: Application) -> None:
    api.backend.fault = RuntimeError("broken")
    answer = await ask(api, (SEVERAL, {"ids": DEMO}))
    assert (answer.json()["audio_features"], cost(answer)) == ([None], 0)
    balance = await api.stores.ledger.balance("owner-pro")
    assert (balance.remaining, balance.held) == (60_000, 0)


# Requests that fail or die in between


async def test_one_that_gives_up_leaves_the_others_to_pay_once(api: Application) -> None:
    charging, done = Charging(api.stores.ledger), asyncio.Event()

    async def wait() -> int:
        async with held(charging, CALLER, PRICES.steps(2), ["t"]) as misses:
            await done.wait()
        return misses.charged

    async def fail() -> None:
        async with held(charging, CALLER, PRICES.steps(2), ["t"]):
            raise NotComputedError

    others = [asyncio.create_task(wait()) for _ in range(4)]
    for _ in range(3):
        with pytest.raises(NotComputedError):
            await fail()
    done.set()
    assert sorted(await asyncio.gather(*others)) == [0, 0, 0, 2]
    balance = await api.stores.ledger.balance(OWNER)
    assert (balance.remaining, balance.held) == (498, 0)


async def test_a_hold_whose_process_died_is_taken_over(api: Application) -> None:
    charging, ledger = Charging(api.stores.ledger), api.stores.ledger
    await ledger.reserve(CALLER, step_name("t", (0, 2)), 2)
    async with held(charging, CALLER, PRICES.steps(3), ["t"]) as misses:
        assert (await ledger.balance(OWNER)).held == 3
    assert (misses.charged, misses.balance.remaining) == (3, 497)
    assert (await ledger.balance(OWNER)).held == 0


async def test_a_hold_that_was_reaped_under_its_work_is_charged_all_the_same(
    api: Application,
) -> None:
    charging, ledger = Charging(api.stores.ledger), api.stores.ledger
    await ledger.reserve(CALLER, step_name("t", (0, 2)), 2, ttl_s=0.001)
    for expected in (2, 0):
        async with held(charging, CALLER, PRICES.steps(2), ["t"]) as misses:
            await asyncio.sleep(0.01)
            await ledger.reap_due()
        assert misses.charged == expected
    assert (await ledger.balance(OWNER)).remaining == 498


async def test_what_cannot_be_paid_any_more_is_not_answered(api: Application) -> None:
    charging, ledger = Charging(api.stores.ledger), api.stores.ledger
    await ledger.reserve(CALLER, step_name("t", (0, 2)), 2, ttl_s=0.001)

    async def spend_elsewhere() -> None:
        async with held(charging, CALLER, PRICES.steps(2), ["t"]):
            await asyncio.sleep(0.01)
            await ledger.reap_due()
            await ledger.reserve(CALLER, "other", 500)

    with pytest.raises(InsufficientCreditsError):
        await spend_elsewhere()
    assert (await ledger.balance(OWNER)).remaining == 0


async def test_an_unanswered_charge_follows_and_is_told(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    charging, charge = Charging(api.stores.ledger), api.stores.ledger.charge
    n_calls = 0

    async def unanswered(*given: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls < 3:
            await charge(*given)
            raise ServiceUnavailableError("no answer")
        return await charge(*given)

    monkeypatch.setattr(api.stores.ledger, "charge", unanswered)
    monkeypatch.setattr("serve_app.services.charging.CHARGE_AGAIN_S", 0.02)
    async with held(charging, CALLER, PRICES.steps(2), ["t"]) as misses:
        pass
    assert misses.charged == 2
    async with asyncio.timeout(30):
        while n_calls < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await api.stores.ledger.balance(OWNER)).remaining == 498


@pytest.mark.timeout(900)  # nine processes start on a busy machine
async def test_killed_processes_charge_each_track_once(
    api: Application, api_stores: StoreOptions
) -> None:
    """Three processes with eight requests each are killed six times; then everything is bought."""
    chance, store = random.Random(15), connect(api_stores.ledger_url, timeout_s=30)
    ledger, journal = Ledger(store, api.stores.tiers), Journal(store)
    await ledger.topup(OWNER, "much", 1_000_000)
    first = number_now() - 4

    def begin(seed: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.services.lookup.buyer"]
        return subprocess.Popen([*command, api_stores.ledger_url, str(seed)])

    async def busy() -> None:
        before = (await ledger.balance(OWNER)).journal_length
        while (await ledger.balance(OWNER)).journal_length < before + 100:  # noqa: ASYNC110
            await asyncio.sleep(0.02 * chance.random())

    buyers = [begin(seed) for seed in range(3)]
    try:
        for seed in range(3, 9):
            await busy()
            stop(buyers.pop(0))
            buyers.append(begin(seed))
    finally:
        for buyer in buyers:
            stop(buyer)
    while not (await ledger.balance(OWNER)).held:
        buyer = begin(seed := seed + 1)
        try:
            await busy()
        finally:
            stop(buyer)
    tracks = [track(number) for number in range(first, number_now())]
    charging = Charging(ledger)
    for start in range(0, len(tracks), 20):
        async with held(charging, CALLER, PRICES.steps(3), tracks[start : start + 20]):
            pass
    paid = Counter(
        ":".join(entry.entry_id.split(":")[:3])
        for entry in await journal.entries(OWNER)
        if entry.kind == "commit"
    )
    await store.close()
    assert paid == {step_name(track, step): 1 for track in tracks for step in PRICES.steps(3)}
    balance = await ledger.balance(OWNER)
    assert (balance.remaining, balance.held) == (1_000_500 - 3 * len(tracks), 0)
    assert (await journal.audit()).mismatches == ()
    await store.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("price", "steps"), [(0, [(0, 0)]), (1, [(0, 1)]), (2, [(0, 2)]), (3, [(0, 2), (2, 3)])]
)
def test_steps_of_a_price(price: int, steps: list[tuple[int, int]]) -> None:
    assert PRICES.steps(price) == steps
