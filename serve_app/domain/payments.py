"""Automatic top-up: its settings, its intents, and what a payment provider must offer."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class PaymentOutcome(StrEnum):
    """What is known about one charge."""

    SUCCEEDED = "succeeded"
    DECLINED = "declined"
    PENDING = "pending"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class TopupSettings:
    """When and how much to buy; amounts in the currency's minor unit, the cap per UTC month."""

    threshold: int
    pack_credits: int
    price_minor: int
    cap_minor: int

    def __post_init__(self) -> None:
        if self.threshold < 0 or min(self.pack_credits, self.price_minor, self.cap_minor) <= 0:
            raise ValueError("threshold must be ≥ 0; pack, price and cap must be > 0")


@dataclass(frozen=True, slots=True)
class TopupStatus:
    """Settings as stored, what this month's charges come to, and why it was switched off."""

    settings: TopupSettings
    is_enabled: bool
    spent_minor: int
    open_intent: str | None
    failures: int
    off_reason: str | None


@dataclass(frozen=True, slots=True)
class PaymentIntent:
    """One purchase to be made; ``intent_id`` is the provider's idempotency key."""

    intent_id: str
    account: str
    credits: int
    amount_minor: int
    is_sent: bool


class PaymentProvider(Protocol):
    """Takes payments. An intent id is charged at most once, however often anything is called."""

    async def charge(self, intent_id: str, account: str, amount_minor: int) -> PaymentOutcome:
        """Charge once per intent id.

        Raises:
            TimeoutError: The outcome is unknown; ask ``look_up``.
            ConnectionError: Same.
        """
        ...

    async def look_up(self, intent_id: str) -> PaymentOutcome:
        """Return the outcome of an intent; ``NOT_FOUND`` if it never arrived."""
        ...
