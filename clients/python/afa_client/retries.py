"""When a request is sent again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

from afa_client.errors import AfaError, StatusError

RETRIED = frozenset({429, 500, 502, 503, 504})
"""Statuses after which nothing was charged; a repeated POST keeps its idempotency key."""


@dataclass(frozen=True)
class Retries:
    """How often a request is sent again, and after which pauses.

    Attributes:
        most: Requests after the first, at most.
        first_pause_s: Pause before the first of them, if the service does not say; doubled each
            time.
        longest_pause_s: If the service asks for a longer pause, its error is raised at once.
    """

    most: int = 4
    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0

    def pause_s(self, attempt: int, error: AfaError) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        Args:
            attempt: How many attempts were made before this one.
            error: The error of this attempt.
        """
        if attempt >= self.most:
            return None
        if isinstance(error, StatusError):
            if error.status not in RETRIED:
                return None
            if (asked_s := error.retry_after_s) is not None:
                return asked_s if asked_s <= self.longest_pause_s else None
        longest_s = min(self.longest_pause_s, self.first_pause_s * 2.0**attempt)
        return longest_s * random.uniform(0.5, 1.0)  # noqa: S311  spreads clients, not a secret
