"""When a request is sent again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

from afa_client.errors import AfaError, StatusError

RETRIED = frozenset({429, 500, 502, 503, 504})
"""With these answers nothing was charged; a POST sends its idempotency key again."""


@dataclass(frozen=True)
class Retries:
    """How often and how long the client tries again.

    Attributes:
        most: Requests after the first.
        first_pause_s: Pause before the first of them if the service names none; doubled each time.
        longest_pause_s: If the service asks for a longer pause, its error is raised at once.
    """

    most: int = 4
    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0

    def pause_s(self, attempt: int, error: AfaError) -> float | None:
        """Give the seconds to wait before the next attempt; None if there is to be none.

        Args:
            attempt: How many were made before this one.
            error: What came of it.
        """
        if attempt >= self.most:
            return None
        if isinstance(error, StatusError):
            if error.status not in RETRIED:
                return None
            if (asked_s := error.retry_after_s) is not None:
                return asked_s if asked_s <= self.longest_pause_s else None
        longest_s = min(self.longest_pause_s, self.first_pause_s * 2.0**attempt)
        return longest_s * random.uniform(0.5, 1.0)  # noqa: S311  spreads clients, hides nothing
