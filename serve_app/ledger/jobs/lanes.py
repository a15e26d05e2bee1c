"""The lanes: which queued job runs next, shared fairly between tiers and owners.

Invariant: lanes are hints. A job that is missing here is put back by the sweep, and one that is
here twice is refused by its record.
"""

import secrets
from dataclasses import dataclass

from serve_app.domain.tiers import Tiers
from serve_app.store.client import Store
from serve_app.store.keys import LANES, SEPARATOR, lane_key, split_member

STRUCTURES = (
    *("jobs", "where", "served", "busy", "depth"),
    *("delayed", "leases", "stats", "wake"),
)
EXPIRED_BATCH = 200
OWNERS_LOOKED_AT = 200
"""Owners looked at per lane, beginning with those whose turn is next."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A claimed place in a lane."""

    job_id: str
    account: str
    lane: str
    token: str


@dataclass(frozen=True, slots=True)
class Load:
    """What a new job would find ahead of it."""

    depth: int
    owners: int
    own_backlog: int
    mean_service_s: float
    mean_busy: float

    def expected_wait_s(self) -> float:
        """Estimate the wait of this owner's next job.

        Owners of a lane are served in turn, so no other owner has more jobs ahead of it than this
        owner has, and there are never more than the lane's depth.
        """
        ahead = min(self.depth, (self.own_backlog + 1) * max(1, self.owners))
        return ahead * self.mean_service_s / max(1.0, self.mean_busy)


@dataclass(frozen=True, slots=True)
class Standing:
    """A lane as it is now.

    Attributes:
        waiting: Jobs in line.
        running: Jobs that workers have.
        oldest_wait_s: Longest wait of a job in line. Owners who may not run another job now are
            left out: their jobs wait for each other, which says nothing about the service.
    """

    lane: str
    waiting: int
    running: int
    oldest_wait_s: float


class Lanes:
    """Puts jobs in line and hands them out."""

    def __init__(
        self,
        store: Store,
        tiers: Tiers,
        *,
        lease_s: float = 30.0,
        owner_in_flight: int = 64,
        space: str = LANES,
    ) -> None:
        """Use the lanes of a space; each space has its own order, claims and averages."""
        self._store = store
        self._space = space
        self._weights = {tier.name: tier.lane_weight for tier in tiers.every}
        self._keys = [
            lane_key(name, space)
            for name in (*STRUCTURES, *(f"ring:{lane}" for lane in self._weights))
        ]
        self._lease_ms = int(lease_s * 1000)
        self._cap = owner_in_flight

    async def put(
        self, lane: str, account: str, job_id: str, delay_ms: int = 0, *, take: bool = False
    ) -> bool:
        """Put a job in line; with ``take``, also take it back from a worker that had claimed it."""
        args: list[str | int] = [lane, account, job_id, delay_ms, self._cap, int(take)]
        return bool(await self._store.run("lane_put", self._keys, args))

    async def claim(self, worker_id: str) -> Ticket | None:
        """Take the next job in line, if there is one."""
        token = f"{worker_id}.{secrets.token_hex(6)}"
        args: list[str | int] = [
            worker_id,
            token,
            self._lease_ms,
            self._cap,
            *self._weights.values(),
        ]
        found = await self._store.run("lane_claim", self._keys, args)
        if not found:
            return None
        job_id, account, lane = (part.decode() for part in found)
        return Ticket(job_id, account, lane, token)

    async def done(self, job_id: str, token: str, *, was_served: bool) -> None:
        """Give a claimed place back, unless it was taken away meanwhile."""
        args: list[str | int] = [job_id, token, self._cap, int(was_served)]
        await self._store.run("lane_done", self._keys, args)

    async def drop(self, job_id: str) -> None:
        """Forget a job that has ended."""
        await self._store.run("lane_drop", self._keys, [job_id, self._cap])

    async def may_sweep(self, share_ms: int) -> bool:
        """Return whether nobody has swept for ``share_ms``."""
        return bool(
            await self._store.command(
                "SET", lane_key("sweep", self._space), 1, "NX", "PX", share_ms
            )
        )

    async def expired(self) -> list[tuple[str, str]]:
        """Return the account and job of claims whose lease is over, at most once per lease."""
        found = await self._store.run("lane_expired", self._keys, [self._lease_ms, EXPIRED_BATCH])
        pairs = (split_member(raw) for raw in found)
        return [(account, job_id) for account, job_id in pairs]

    async def load(self, lane: str, account: str) -> Load:
        """Measure what a new job of this owner would find ahead of it."""
        depth, owners, own, service_ms, busy = await self._store.run(
            "lane_load", self._keys, [lane, account]
        )
        return Load(depth, owners, own, float(service_ms) / 1000, float(busy))

    async def standings(self) -> list[Standing]:
        """Look at every lane.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        lanes, now_ms = list(self._weights), await self._store.now_ms()
        waiting, running, *rings = await self._store.batch(
            [
                ("HMGET", lane_key("depth", self._space), *lanes),
                ("HMGET", lane_key("busy", self._space), *(f"n:{lane}" for lane in lanes)),
                *(
                    ("ZRANGE", lane_key(f"ring:{lane}", self._space), 0, OWNERS_LOOKED_AT - 1)
                    for lane in lanes
                ),
            ]
        )
        next_in_line = await self._store.batch([self._first(who) for ring in rings for who in ring])
        since_ms = dict.fromkeys(lanes, now_ms)
        for lane, *_, put_ms in (split_member(entry) for found in next_in_line for entry in found):
            since_ms[lane] = min(since_ms[lane], int(put_ms))
        return [
            Standing(lane, int(n or 0), int(busy or 0), (now_ms - since_ms[lane]) / 1000)
            for lane, n, busy in zip(lanes, waiting, running, strict=True)
        ]

    def _first(self, who: bytes) -> tuple[str | bytes | int, ...]:
        """Return the command that reads the first waiting job of a lane's owner."""
        jobs, begin = lane_key("jobs", self._space), b"[" + who + SEPARATOR.encode()
        return "ZRANGEBYLEX", jobs, begin, begin + b"\xff", "LIMIT", 0, 1

    async def wait_for_work(self, timeout_s: float) -> None:
        """Sleep until a job comes in, for at most ``timeout_s`` seconds."""
        await self._store.command("BLPOP", lane_key("wake", self._space), f"{timeout_s:.2f}")
