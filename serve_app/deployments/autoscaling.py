"""Scale deployments by the delay that a new request would meet, not by the number of requests.

One request may be one window or a thousand; a backlog in seconds at a replica's own measured pace
means the same for a CPU and a GPU, for short tracks and long ones. Serve's ``upscale_delay_s``,
``downscale_delay_s`` and bounds apply to what the policy asks for.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

BACKLOG, BUSY = "backlog_s", "busy"
"""What `record_autoscaling_stats` returns for each replica: seconds of waiting work, and the share
of the time in which its device, or its job slots, worked."""


class Context(Protocol):
    """What the policy reads from ``ray.serve.config.AutoscalingContext``."""

    @property
    def current_num_replicas(self) -> int:
        """Replicas that run."""
        ...

    @property
    def target_num_replicas(self) -> int:
        """Replicas that run or are starting."""
        ...

    @property
    def total_num_requests(self) -> float:
        """Requests at replicas or on their way to them."""
        ...

    @property
    def total_queued_requests(self) -> float | None:
        """Requests that no replica has accepted yet."""
        ...

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """Metric to replica to value."""
        ...


class QueueDelayPolicy:
    """Asks for enough replicas to finish the waiting work within a target time.

    No replica is removed while one is starting, since that one was needed for what waits.

    Args:
        target_s: Longest delay that a new request should meet before its own work starts.
        idle_share: Replicas are removed as long as the others then work for less than this share
            of the time, and hardly anything waits.
        max_growth: Largest factor by which the number of replicas grows or shrinks at once.
    """

    def __init__(
        self, target_s: float = 2.0, idle_share: float = 0.5, max_growth: float = 2.0
    ) -> None:
        self._target_s = target_s
        self._idle_share = idle_share
        self._max_growth = max_growth

    def __call__(self, context: Context) -> tuple[float, dict[str, Any]]:
        """Return the number of replicas wanted, without keeping state."""
        n = context.current_num_replicas
        metrics = context.aggregated_metrics or {}
        backlogs, busy = metrics.get(BACKLOG, {}), metrics.get(BUSY, {})
        if n == 0 or not backlogs:
            return n, {}
        delay_s = _delay_s(context, list(backlogs.values()))
        target = context.target_num_replicas
        if delay_s > self._target_s:
            growth = min(delay_s / self._target_s, self._max_growth)
            return max(target, math.ceil(n * growth)), {}
        if delay_s > self._target_s / 4 or target > n:
            return max(target, n), {}
        needed = math.floor(sum(busy.values()) / self._idle_share) + 1
        return min(n, max(needed, math.ceil(n / self._max_growth))), {}


def _delay_s(context: Context, backlogs: list[float]) -> float:
    """Return the mean backlog, scaled up for requests that no replica has yet."""
    mean_s = sum(backlogs) / len(backlogs)
    waiting = context.total_queued_requests or 0.0
    running = max(context.total_num_requests - waiting, 1.0)
    return mean_s * (1 + waiting / running)
