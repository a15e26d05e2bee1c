"""A process that asks for a few tracks for one account again and again, until it is killed."""

import asyncio
import random
import sys
import time
from contextlib import suppress

from configs.tables import load_table
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers
from serve_app.ledger.ledger import Ledger
from serve_app.services.charging import Charging
from serve_app.services.lookup.misses import held
from serve_app.store.client import connect

OWNER = "buyer"
CALLER = Caller("key_x", OWNER, OWNER, "free", frozenset({"read"}), is_test=False)
PRICES = Prices.from_table(load_table("prices"))
TRACKS_PER_S = 30
KINDS = (PRICES.key_bpm_miss, PRICES.features_by_id_miss, PRICES.beatgrid_miss)


def track(number: int) -> str:
    """Return a cache key."""
    return f"models||track{number}"


def number_now() -> int:
    """Return the number of the current track; all processes pick from the four before it."""
    return int(time.time() * TRACKS_PER_S)


class NotComputedError(Exception):
    """Raised by a request that is not answered."""


async def buy(charging: Charging, chance: random.Random, tracks: list[str]) -> None:
    """Ask for tracks once; one request in three is not answered."""
    price = chance.choice(KINDS)
    async with held(charging, CALLER, PRICES.steps(price), tracks):
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < 0.33:
            raise NotComputedError


async def main(url: str, seed: int) -> None:
    """Ask with eight requests at a time, until the process is killed."""
    store, chance = connect(url, timeout_s=30), random.Random(seed)
    charging = Charging(Ledger(store, Tiers(load_table("tiers"))))

    async def ask() -> None:
        while True:
            last = number_now()
            numbers = chance.sample(range(last - 4, last), chance.randint(1, 3))
            with suppress(NotComputedError):
                await buy(charging, chance, [track(number) for number in numbers])

    await asyncio.gather(*(ask() for _ in range(8)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
