"""The choice of checkpoints in the ledger role, where it survives every restart.

Invariant: the choice is one hash that one command changes; proposal and reports are hints that
lapse by themselves. Redis dates the reports, since the clocks of two nodes may differ.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from serve_app.checkpoints.choice import Choices, Proposal, ReplicaReport
from serve_app.store.client import Store
from serve_app.store.keys import models_key

ALIVE_S = 10.0
"""A replica that has not reported for this long is dead, or not worth waiting for."""

CHOICE, PROPOSAL, REPLICAS = models_key("choice"), models_key("proposal"), models_key("replicas")


class ModelChoices:
    """See `ModelChoicesPort`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self) -> Choices:
        """See `ModelChoicesPort`.

        A proposal is withdrawn after it was chosen, so it is read first: a reader that finds it
        gone finds it chosen.
        """
        raw, chosen = await self._store.batch([("GET", PROPOSAL), ("HGETALL", CHOICE)])
        return Choices(
            {role.decode(): model_id.decode() for role, model_id in chosen.items()},
            Proposal(**json.loads(raw)) if raw else None,
        )

    async def report(self, report: ReplicaReport) -> None:
        """See `ModelChoicesPort`."""
        dated = replace(report, seen_s=await self._now_s())
        await self._store.command("HSET", REPLICAS, report.replica, json.dumps(asdict(dated)))

    async def reports(self) -> Sequence[ReplicaReport]:
        """See `ModelChoicesPort`; removes dead replicas."""
        found = await self._store.command("HGETALL", REPLICAS)
        reports = [ReplicaReport(**json.loads(raw)) for raw in found.values()]
        oldest_s = await self._now_s() - ALIVE_S
        dead = [report.replica for report in reports if report.seen_s < oldest_s]
        if dead:
            await self._store.command("HDEL", REPLICAS, *dead)
        return sorted(
            (report for report in reports if report.seen_s >= oldest_s),
            key=lambda report: (report.deployment, report.replica),
        )

    async def propose(self, proposal: Proposal, ttl_s: float) -> bool:
        """See `ModelChoicesPort`."""
        lasting = ("PX", int(ttl_s * 1000))
        return bool(await self._store.command("SET", PROPOSAL, _value(proposal), "NX", *lasting))

    async def keep(self, proposal: Proposal, ttl_s: float) -> bool:
        """See `ModelChoicesPort`."""
        kept = await self._store.run("prolong", [PROPOSAL], [_value(proposal), int(ttl_s * 1000)])
        return bool(kept)

    async def withdraw(self, proposal: Proposal) -> None:
        """See `ModelChoicesPort`."""
        await self._store.run("unlock", [PROPOSAL], [_value(proposal)])

    async def choose(self, role: str, model_id: str) -> None:
        """See `ModelChoicesPort`."""
        if model_id:
            await self._store.command("HSET", CHOICE, role, model_id)
        else:
            await self._store.command("HDEL", CHOICE, role)

    async def _now_s(self) -> float:
        """Return the time of the server that has the reports: a cluster has many servers."""
        return int(await self._store.run("now", [REPLICAS])) / 1000


def _value(proposal: Proposal) -> str:
    return json.dumps(asdict(proposal))
