"""Payment for tracks that have to be computed: once per account and track.

Invariant: of all requests of an account for a track, by whatever route, at once or until the ledger
has forgotten the charge, only one is charged, at the price of the dearest of them.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from serve_app.domain.credits import Balance
from serve_app.domain.keys import Caller
from serve_app.services.charging import Charging, Hold

Step = tuple[int, int]
"""A part of a price, between two numbers of credits; see `Prices.steps`."""


def step_name(key: str, step: Step) -> str:
    """Name the charge of a step for a cache key, which names track, audio and checkpoints."""
    low, high = step
    return f"track:{hashlib.sha256(key.encode()).hexdigest()[:32]}:{low}-{high}"


class Misses:
    """The holds of tracks by cache key; ``charged`` and ``balance`` are final at the end."""

    def __init__(self, holds: list[tuple[str, Hold]]) -> None:
        self._holds = holds
        self._unanswered: set[str] = set()

    def give_back(self, key: str) -> None:
        """Do not charge this track, which is not answered."""
        self._unanswered.add(key)

    def holds(self, *, answered: bool) -> list[Hold]:
        """Return the holds of the tracks that are answered, or of the others."""
        return [hold for key, hold in self._holds if (key not in self._unanswered) == answered]

    @property
    def charged(self) -> int:
        """Credits charged to these requests, beyond what others paid for the same tracks."""
        return sum(hold.charged for _, hold in self._holds)

    @property
    def balance(self) -> Balance:
        """The account's balance after the last charge; needs at least one hold."""
        balances = (hold.balance for _, hold in self._holds)
        return max(balances, key=lambda balance: balance.journal_length)


@asynccontextmanager
async def held(
    charging: Charging, caller: Caller, steps: Sequence[Step], keys: Sequence[str]
) -> AsyncIterator[Misses]:
    """Hold the price of tracks while the block runs; charge it at the end, give back if it raises.

    Args:
        charging: Makes the holds.
        caller: Who pays.
        steps: Steps of the price of each track.
        keys: The keys of what is computed; see `FeatureCache.key`.

    Raises:
        InsufficientCreditsError: The balance does not cover all; nothing was charged.
        ServiceUnavailableError: The ledger is unavailable; nothing was charged.
    """
    parts = [(key, step) for key in keys for step in steps]
    opening = [
        asyncio.create_task(charging.open(caller, high - low, step_name(key, (low, high))))
        for key, (low, high) in parts
    ]
    try:
        holds = [await one for one in opening]
        misses = Misses([(key, hold) for (key, _), hold in zip(parts, holds, strict=True)])
        yield misses
        await _give_back(charging, caller, misses.holds(answered=False))
        charged = misses.holds(answered=True)
        await asyncio.gather(*(charging.charge(caller, hold) for hold in charged))
    except BaseException:
        await asyncio.shield(_undo(charging, caller, opening))
        raise


async def _undo(
    charging: Charging, caller: Caller, opening: Sequence["asyncio.Task[Hold]"]
) -> None:
    for one in opening:
        one.cancel()  # unless it is done
    opened = await asyncio.gather(*opening, return_exceptions=True)
    await _give_back(charging, caller, [hold for hold in opened if isinstance(hold, Hold)])


async def _give_back(charging: Charging, caller: Caller, holds: Sequence[Hold]) -> None:
    await asyncio.gather(*(charging.give_back(caller, hold) for hold in holds))
