"""Swap the checkpoint of a role in a running service: all replicas get ready, then all switch.

Invariant: until every living replica of the role holds the new checkpoint ready, nothing changes;
whoever drives the swap may die at any moment, and then it either never happened or is complete.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serve_app.domain.model_choice import ModelChoicesPort, Proposal, ReplicaReport

PROPOSAL_TTL_S = 15.0
POLL_S = 0.25
PREPARE_LIMIT_S = 1800.0
"""Compilation may take minutes."""

SWITCH_LIMIT_S = 60.0


class SwapError(Exception):
    """The swap was given up; the message says why. Nothing has changed unless it says so."""


@dataclass(frozen=True, slots=True)
class Step:
    """How far one replica is: ``loading``, ``ready``, ``switched``."""

    replica: ReplicaReport
    state: str


Show = Callable[[Sequence[Step]], None]


async def swap(
    choices: ModelChoicesPort,
    role: str,
    model_id: str,
    ids: str,
    show: Show = lambda _: None,
    prepare_limit_s: float = PREPARE_LIMIT_S,
    switch_limit_s: float = SWITCH_LIMIT_S,
) -> int:
    """Make a checkpoint the choice of a role, without a moment in which it cannot answer.

    Args:
        choices: Where the choice is kept.
        role: Whose checkpoint changes.
        model_id: The new one, known to exist and to be allowed; "" for the default.
        ids: What replicas will report for it: its id, or the defaults' ids joined by ``+``.
        show: Told how far each replica is, whenever it looks.
        prepare_limit_s: Longest wait for all replicas to be ready.
        switch_limit_s: Longest wait for all replicas to answer with it.

    Returns:
        How many replicas switched; 0 when none runs, and the choice holds from the next start.

    Raises:
        SwapError: A replica cannot load it, or does not in time, or another swap is under way.
        ServiceUnavailableError: The ledger is away.
    """
    proposal = Proposal(role, model_id, secrets.token_hex(8))
    if not await choices.propose(proposal, PROPOSAL_TTL_S):
        other = (await choices.read()).proposal
        named = f" ({other.role} to {other.model_id or 'the default'})" if other else ""
        raise SwapError(f"another swap is under way{named}; try again when it has ended")
    try:
        await _prepare(choices, proposal, show, prepare_limit_s)
        await choices.choose(role, model_id)
    finally:
        await choices.withdraw(proposal)
    return await _switched(choices, role, ids, show, switch_limit_s)


def affected(reports: Sequence[ReplicaReport], role: str) -> list[ReplicaReport]:
    """Give the replicas that run a checkpoint of the role."""
    return [report for report in reports if role in report.serving]


async def _prepare(
    choices: ModelChoicesPort, proposal: Proposal, show: Show, limit_s: float
) -> None:
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + limit_s
    while True:
        if not await choices.keep(proposal, PROPOSAL_TTL_S):
            raise SwapError("the proposal has lapsed; nothing was changed")
        replicas = affected(await choices.reports(), proposal.role)
        ready = [report.ready_for == proposal.token for report in replicas]
        show(
            [
                Step(report, "ready" if done else "loading")
                for report, done in zip(replicas, ready, strict=True)
            ]
        )
        if all(ready):
            return
        for report in replicas:
            if report.error:
                raise SwapError(
                    f"{report.deployment} {report.replica} cannot: {report.error} "
                    "Nothing was changed."
                )
        if loop.time() > give_up_s:
            slow = [r.replica for r, done in zip(replicas, ready, strict=True) if not done]
            raise SwapError(
                f"not ready after {limit_s:.0f} s: {', '.join(slow)}; nothing was changed"
            )
        await asyncio.sleep(POLL_S)


async def _switched(
    choices: ModelChoicesPort, role: str, ids: str, show: Show, limit_s: float
) -> int:
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + limit_s
    while True:
        replicas = affected(await choices.reports(), role)
        done = [report.serving[role] == ids for report in replicas]
        show(
            [
                Step(report, "switched" if is_done else "ready")
                for report, is_done in zip(replicas, done, strict=True)
            ]
        )
        if all(done):
            return len(replicas)
        if loop.time() > give_up_s:
            slow = [r.replica for r, is_done in zip(replicas, done, strict=True) if not is_done]
            raise SwapError(
                f"{role} is {ids} from now on, but {', '.join(slow)} did not say so within "
                f"{limit_s:.0f} s; see `afa status`"
            )
        await asyncio.sleep(POLL_S)
