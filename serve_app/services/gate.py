"""How many requests of one kind a process works on at once; more are refused at the door."""

from collections.abc import Iterator
from contextlib import contextmanager

from serve_app.domain.errors import ServiceUnavailableError


class Gate:
    """Lets in at most ``limit``, so that a refusal costs neither a body nor a hold."""

    def __init__(self, limit: int, retry_after_s: int = 5) -> None:
        self._limit = limit
        self._retry_after_s = retry_after_s
        self._inside = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside while the block runs.

        Raises:
            ServiceUnavailableError: It is full.
        """
        if self._inside >= self._limit:
            raise ServiceUnavailableError(
                "too much work is waiting; try again", self._retry_after_s
            )
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
