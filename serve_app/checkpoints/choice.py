"""Which checkpoint serves which role: the operator's choice, and a swap that is to change it.

Invariant: a choice is made in one write, after every replica has the new checkpoint ready; a
proposal by itself changes no answer.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

POLL_S = 1.0
SWAP_POLL_S = 0.2
"""How often all processes read the choice: usually, and while a swap is in progress."""


def models_name(models: Mapping[str, str]) -> str:
    """Return a short name for a set of checkpoints, role to ids, for cache keys."""
    text = json.dumps(dict(models), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A swap for which replicas prepare.

    Attributes:
        role: The role whose checkpoint is to change.
        model_id: The new checkpoint; "" for the default.
        token: Distinguishes this swap from every other.
    """

    role: str
    model_id: str
    token: str


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose, by role (the default if absent), and the current proposal."""

    chosen: Mapping[str, str] = field(default_factory=dict)
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica reports about itself, about once a second.

    Attributes:
        replica: Its id.
        deployment: The deployment that it belongs to.
        serving: Role to the ids of the checkpoints that now answer, joined by ``+``.
        ready_for: Token of the proposal whose checkpoints it has ready; "" for none.
        ready_ids: The ids of these, joined by ``+``.
        error: Why it cannot follow the choice or the proposal; "" if it can.
        knows: Token of the proposal that it has seen, so that its error is about that one.
        seen_s: Time of the report in Unix seconds, set by the store's clock.
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

    Every method raises ``ServiceUnavailableError`` while the ledger role is unavailable.
    """

    async def read(self) -> Choices:
        """Return the choice and the proposal."""
        ...

    async def report(self, report: ReplicaReport) -> None:
        """Store what a replica serves."""
        ...

    async def reports(self) -> Sequence[ReplicaReport]:
        """Return the reports of the live replicas."""
        ...

    async def propose(self, proposal: Proposal, ttl_s: float) -> bool:
        """Ask all replicas to prepare; return False if there is another proposal."""
        ...

    async def keep(self, proposal: Proposal, ttl_s: float) -> bool:
        """Extend the proposal's time; return False if it has lapsed."""
        ...

    async def withdraw(self, proposal: Proposal) -> None:
        """Withdraw the proposal; replicas release what they prepared."""
        ...

    async def choose(self, role: str, model_id: str) -> None:
        """Make a checkpoint the choice from now on; "" for the default."""
        ...
