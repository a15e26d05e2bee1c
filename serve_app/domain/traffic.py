"""Answers of the rate limiter and of the idempotency table."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request may pass, and what its ``RateLimit`` headers say; times in seconds."""

    allowed: bool
    kind: str
    limit: int
    window_s: int
    remaining: int
    retry_after_s: int
    reset_s: int


@dataclass(frozen=True, slots=True)
class Fresh:
    """The key is new and now taken: run the request, then ``finish`` or ``abandon``.

    Attributes:
        life: The same for a day, whatever becomes of the request; then the key begins anew.
    """

    life: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """The request was answered before; answer the same."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class InFlight:
    """The same request is being answered at this moment."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used with another request."""


IdempotencyState = Fresh | Replay | InFlight | Mismatch
