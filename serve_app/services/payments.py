"""Carry automatic top-ups from intent to booked pack.

Invariant: a charge whose outcome is unknown is queried, never made again under another id.
"""

import asyncio
import logging
import random

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.payments import PaymentIntent, PaymentOutcome, PaymentProvider
from serve_app.ledger.topups import Topups

logger = logging.getLogger(__name__)

AT_ONCE = 64
LIMIT_S = 30.0
"""A provider that has not answered by then is queried again in the next round."""


class PaymentsWorker:
    """Brings open intents to their end; any number of workers may run."""

    def __init__(self, topups: Topups, provider: PaymentProvider) -> None:
        self._topups = topups
        self._provider = provider

    async def run_once(self) -> int:
        """Go through open intents once, concurrently; return how many were closed.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        intents = await self._topups.open_intents()
        if len(intents) > AT_ONCE:
            intents = random.sample(intents, AT_ONCE)
        return sum(await asyncio.gather(*(self._carry(intent) for intent in intents)))

    async def _carry(self, intent: PaymentIntent) -> bool:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._advance(intent)
        except (TimeoutError, ConnectionError) as error:
            logger.warning("charge %s: outcome unknown (%s)", intent.intent_id, error)
        except ServiceUnavailableError as error:
            logger.warning("charge %s: not booked yet (%s)", intent.intent_id, error)
        except Exception:  # one intent must not keep the others waiting
            logger.exception("charge %s: not carried on", intent.intent_id)
        return False

    async def _advance(self, intent: PaymentIntent) -> bool:
        was_sent = await self._topups.mark_sent(intent)
        if was_sent is None:
            return False
        outcome = PaymentOutcome.NOT_FOUND
        if was_sent:
            outcome = await self._provider.look_up(intent.intent_id)
        if outcome is PaymentOutcome.NOT_FOUND:
            outcome = await self._provider.charge(
                intent.intent_id, intent.account, intent.amount_minor
            )
        if outcome is PaymentOutcome.SUCCEEDED:
            await self._topups.succeed(intent)
            return True
        if outcome is PaymentOutcome.DECLINED:
            failures = await self._topups.decline(intent)
            logger.warning("charge %s was declined (%d in a row)", intent.intent_id, failures)
            return True
        return False
