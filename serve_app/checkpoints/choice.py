"""Which checkpoint serves which role: the operator's choice, and a swap on its way to become one.

Invariant: a choice is made in one write, after every replica holds the new checkpoint ready; a
proposal by itself changes no answer.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

POLL_S = 1.0
SWAP_POLL_S = 0.2
"""How often everybody reads the choice, and while a swap is under way."""


def models_name(models: Mapping[str, str]) -> str:
    """Return a short name of a set of checkpoints, role to ids, for cache keys."""
    text = json.dumps(dict(models), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A swap that replicas prepare for.

    Attributes:
        role: Whose checkpoint is to change.
        model_id: The new one; "" for the default.
        token: Tells this swap from every other.
    """

    role: str
    model_id: str
    token: str


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose, by role, and the proposal under way; absent roles: the default."""

    chosen: Mapping[str, str] = field(default_factory=dict)
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica says of itself, about once a second.

    Attributes:
        replica: Its id.
        deployment: Which deployment it belongs to.
        serving: Role to the ids of the checkpoints that answer now, joined by ``+``.
        ready_for: Token of the proposal whose checkpoints it holds ready; "" for none.
        ready_ids: The ids of those, joined by ``+``.
        error: Why it cannot follow the choice or the proposal; "" when it can.
        knows: Token of the proposal that it has met, so that its error is about that one.
        seen_s: When, in Unix seconds by the store's clock, which sets it.
    """

    replica: str
    deployment: str
    serving: Mapping[str, str]
    ready_for: str = ""
    ready_ids: str = ""
    error: str = ""
    knows: str = ""
    seen_s: float = 0.0


class ModelChoicesPort(Protocol):
    """Where choice, proposal and reports are kept.

    Every method raises ``ServiceUnavailableError`` while the ledger role is away.
    """

    async def read(self) -> Choices:
        """Return the choice and the proposal."""
        ...

    async def report(self, report: ReplicaReport) -> None:
        """Say what a replica serves."""
        ...

    async def reports(self) -> Sequence[ReplicaReport]:
        """Return the reports of the replicas that live."""
        ...

    async def propose(self, proposal: Proposal, ttl_s: float) -> bool:
        """Ask all replicas to prepare; False while another proposal is under way."""
        ...

    async def keep(self, proposal: Proposal, ttl_s: float) -> bool:
        """Return the proposal more time; False when it has lapsed."""
        ...

    async def withdraw(self, proposal: Proposal) -> None:
        """Take the proposal back; replicas let go of what they prepared."""
        ...

    async def choose(self, role: str, model_id: str) -> None:
        """Make it the choice from now on; "" for the default."""
        ...
