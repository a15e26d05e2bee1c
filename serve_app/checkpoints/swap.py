"""Swap the checkpoint of a role in a running service: all replicas get ready, then all switch.

Invariant: until every live replica of the role has the new checkpoint ready, nothing changes, nor
does it if no replica survives the loading. The process that drives the swap may die at any moment;
the swap then either never happened or is complete.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serve_app.checkpoints.choice import ModelChoicesPort, Proposal, ReplicaReport

PROPOSAL_TTL_S = 15.0
POLL_S = 0.25
NOTICE_S = 2.0
"""Least time from proposal to choice: processes that name cached answers read both once a second,
and must know of the swap before the first answer of a new checkpoint."""

PREPARE_LIMIT_S = 1800.0
"""Compilation may take minutes."""

SWITCH_LIMIT_S = 60.0


class SwapError(Exception):
    """The swap was abandoned; the message says why. Nothing has changed unless it says so."""


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How far a replica is: ``loading``, ``ready``, ``switched``."""

    replica: ReplicaReport
    state: str


@dataclass(frozen=True, slots=True)
class Swapped:
    """The result of a swap.

    Attributes:
        replicas: How many answer with the new checkpoint; 0 if none runs, and the choice applies
            from the next start.
        before: The ids that answered before, joined by ``+``; "" if none ran.
        after: The ids that answer now.
        silent: Replicas that reported at first and no longer do. Those that live answer with
            ``before`` until they follow the choice.
    """

    replicas: int
    before: str = ""
    after: str = ""
    silent: tuple[str, ...] = ()


Show = Callable[[Sequence[ReplicaProgress]], None]


async def swap(
    choices: ModelChoicesPort,
    role: str,
    model_id: str,
    show: Show = lambda _: None,
    prepare_limit_s: float = PREPARE_LIMIT_S,
    switch_limit_s: float = SWITCH_LIMIT_S,
) -> Swapped:
    """Make a checkpoint the choice of a role, without a moment in which it cannot answer.

    Args:
        choices: Where the choice is kept.
        role: The role whose checkpoint changes.
        model_id: The new checkpoint, known to exist and to be allowed; "" for the default.
        show: Called with the progress of each replica at every check.
        prepare_limit_s: Longest wait for all replicas to be ready.
        switch_limit_s: Longest wait for all replicas to answer with it.

    Raises:
        SwapError: A replica cannot load it or not in time, or another swap is in progress.
        ServiceUnavailableError: The ledger is unavailable.
    """
    proposal = Proposal(role, model_id, secrets.token_hex(8))
    if not await choices.propose(proposal, PROPOSAL_TTL_S):
        other = (await choices.read()).proposal
        named = f" ({other.role} to {other.model_id or 'the default'})" if other else ""
        raise SwapError(f"another swap is under way{named}; try again when it has ended")
    try:
        before = affected(await choices.reports(), role)
        after = await _prepare(choices, proposal, show, prepare_limit_s)
        await choices.choose(role, model_id)
        # Names in cache keys change when the proposal ends, and so after every answer has.
        done = await _switched(choices, proposal, after, show, switch_limit_s) if after else []
    finally:
        await choices.withdraw(proposal)
    if not after:
        return Swapped(0)
    silent = {_name(report) for report in before} - {_name(report) for report in done}
    old_ids = _ids([report.serving[role] for report in before])
    return Swapped(len(done), old_ids, after, tuple(sorted(silent)))


def affected(reports: Sequence[ReplicaReport], role: str) -> list[ReplicaReport]:
    """Return the replicas that run a checkpoint of the role."""
    return [report for report in reports if role in report.serving]


def _name(report: ReplicaReport) -> str:
    return f"{report.deployment} {report.replica}"


def _ids(of_replicas: Sequence[str]) -> str:
    return ", ".join(sorted(set(of_replicas)))


async def _prepare(
    choices: ModelChoicesPort, proposal: Proposal, show: Show, limit_s: float
) -> str:
    """Wait until all are ready; return the ids that they will answer with, "" if none runs."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    give_up_s = begun_s + limit_s
    seen: set[str] = set()
    while True:
        if not await choices.keep(proposal, PROPOSAL_TTL_S):
            raise SwapError("the proposal has lapsed; nothing was changed")
        replicas = affected(await choices.reports(), proposal.role)
        seen.update(report.replica for report in replicas)
        if seen and not replicas:  # a checkpoint may have killed them, and would at every start
            ended = ", ".join(sorted(seen))
            raise SwapError(f"every replica ended while it loaded: {ended}; nothing was changed")
        loading = [report for report in replicas if report.ready_for != proposal.token]
        show([ReplicaProgress(r, "loading" if r in loading else "ready") for r in replicas])
        for report in loading:
            if report.error and report.knows == proposal.token:
                raise SwapError(
                    f"{_name(report)} cannot: {report.error.rstrip('.')}. Nothing was changed."
                )
        if not loading and loop.time() - begun_s >= NOTICE_S:
            return _agreed({report.ready_ids for report in replicas})
        if loading and loop.time() > give_up_s:
            slow = ", ".join(report.replica for report in loading)
            raise SwapError(f"not ready after {limit_s:.0f} s: {slow}; nothing was changed")
        await asyncio.sleep(POLL_S)


def _agreed(ids: set[str]) -> str:
    if len(ids) > 1:
        raise SwapError(
            f"replicas would serve different checkpoints ({', '.join(sorted(ids))}): they were "
            "started with different files; nothing was changed"
        )
    return ids.pop() if ids else ""


async def _switched(
    choices: ModelChoicesPort, proposal: Proposal, ids: str, show: Show, limit_s: float
) -> list[ReplicaReport]:
    """Wait until all answer with ``ids``; return their reports."""
    role = proposal.role
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + limit_s
    while True:
        await choices.keep(proposal, PROPOSAL_TTL_S)
        replicas = affected(await choices.reports(), role)
        late = [report for report in replicas if report.serving[role] != ids]
        show([ReplicaProgress(r, "ready" if r in late else "switched") for r in replicas])
        if not late:
            return replicas
        if loop.time() > give_up_s:
            names = ", ".join(report.replica for report in late)
            raise SwapError(
                f"{role} is {ids} from now on, but {names} did not say so in {limit_s:.0f} s"
            )
        await asyncio.sleep(POLL_S)
