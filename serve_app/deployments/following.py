"""Lets replicas that run networks follow the operator's choice of checkpoints."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import torch
from ray import serve

from pipelines.analysis import quick
from pipelines.analysis.quick import QuickAnalyzer
from serve_app.checkpoints.choices import ModelChoices
from serve_app.checkpoints.exchange import Cards, Exchange
from serve_app.checkpoints.follower import Follower
from serve_app.composition.options import ModelOptions, StoreOptions
from serve_app.store.client import connect

T = TypeVar("T")

QUICK_ROLES = ("beats", "key", "chords")


async def follow(
    options: ModelOptions, stores: StoreOptions, roles: Sequence[str], exchange: Exchange[T]
) -> Follower[T]:
    """Load this replica's checkpoints and follow the operator's choice from then on.

    Raises:
        CheckpointError: A chosen checkpoint is not on this machine, or not what its card says.
        CardError: The choice names a model that this machine does not know or allow.
        ServiceUnavailableError: The ledger, which has the choice, stays unavailable, or the store
            of published checkpoints does.
        DamagedPublicationError: What that store has is not what was published.
    """
    await asyncio.to_thread(options.follow)
    replica = serve.get_replica_context().replica_id
    follower = Follower(
        ModelChoices(connect(stores.ledger_url)),
        options.cards,
        roles,
        exchange,
        replica=replica.unique_id,
        deployment=replica.deployment_id.name,
    )
    await follower.start()
    return follower


def quick_exchange(options: ModelOptions) -> Exchange[QuickAnalyzer]:
    """Return the exchange of the tempo and key networks for immediate answers, on the CPU."""

    async def load(cards: Cards) -> QuickAnalyzer:
        chosen = {role: tuple(of_role) for role, of_role in cards.items()}
        return await asyncio.to_thread(quick.build, chosen, options.model_dir, torch.device("cpu"))

    async def retire(analyzer: QuickAnalyzer) -> None:
        del analyzer  # a call that still uses it keeps it

    return Exchange(load, retire)
