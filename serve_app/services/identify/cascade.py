"""Asks one recognition service after another, best known and cheapest first, until one matches.

Invariants: every configured name gets an outcome; a later service is asked only after a definite
"no match" or a failure; the whole never exceeds its time budget.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import Outcome, Recogniser, Recognition
from serve_app.domain.providers import ProviderError, ProviderSkippedError

logger = logging.getLogger(__name__)

TOTAL_BUDGET_S = 10.0
"""Seconds for identification and enrichment together."""
CASCADE_BUDGET_S = 8.0
"""Seconds of these for identification, so that a late match can still be enriched."""
GRACE_S = 0.5
"""Seconds beyond a service's own limit, so that its client sees that it failed to keep it."""
SHORTEST_CALL_S = 0.3
"""With less time left a service is not asked: its answer would be paid for but come too late."""


@dataclass(frozen=True, slots=True)
class IdentifyOutcome:
    """The outcome of identifying a clip.

    Attributes:
        recognition: The match, if any.
        source_service: The service that found it.
        services_tried: Every configured service's outcome, in order.
        is_definite: Whether asking again soon would give the same: there is a match, or no service
            that might know the clip failed or could not be asked just then.
    """

    recognition: Recognition | None
    source_service: str | None
    services_tried: dict[str, Outcome]
    is_definite: bool = True

    @property
    def matched(self) -> bool:
        """Whether the track was identified."""
        return self.recognition is not None

    @property
    def confidence(self) -> int:
        """0 to 100."""
        return self.recognition.confidence if self.recognition else 0


class IdentifyCascade:
    """Identifies clips through recognition services in a fixed order."""

    def __init__(
        self,
        recognisers: Sequence[Recogniser],
        order: Sequence[str],
        budget_s: float = CASCADE_BUDGET_S,
    ) -> None:
        """Put services in order.

        Args:
            recognisers: The configured services.
            order: Names of all services, configured or not, in the order in which to ask them.
            budget_s: Seconds for all of them together.

        Raises:
            ValueError: A configured service is not in the order.
        """
        self._by_name = {one.name: one for one in recognisers}
        self._order = list(dict.fromkeys(order))
        self._budget_s = budget_s
        missing = set(self._by_name) - set(self._order)
        if missing:
            raise ValueError(f"services without a place in the order: {sorted(missing)}")

    async def identify(self, clip: Clip) -> IdentifyOutcome:
        """Identify a clip; never raises for a service's failure."""
        ends_at = time.monotonic() + self._budget_s
        tried = dict.fromkeys(self._order, Outcome.SKIPPED)
        is_definite = True
        for name in self._order:
            recogniser = self._by_name.get(name)
            if recogniser is None or not recogniser.accepts(clip):
                continue
            left_s = ends_at - time.monotonic()
            if left_s < SHORTEST_CALL_S:
                is_definite = False
                break
            tried[name], recognition, is_lasting = await _ask(recogniser, clip, left_s)
            if recognition is not None:
                return IdentifyOutcome(recognition, name, tried)
            is_definite = is_definite and is_lasting
        return IdentifyOutcome(None, None, tried, is_definite)


async def _ask(
    recogniser: Recogniser, clip: Clip, left_s: float
) -> tuple[Outcome, Recognition | None, bool]:
    """Return the outcome, the match, and whether asking again soon would give the same."""
    try:
        async with asyncio.timeout(min(recogniser.timeout_s + GRACE_S, left_s)):
            recognition = await recogniser.recognise(clip)
    except ProviderSkippedError as error:
        logger.info("recogniser skipped", extra=_facts(recogniser, error.problem))
        return Outcome.SKIPPED, None, error.retry_after_s is None
    except ProviderError as error:
        logger.warning("recogniser failed", extra=_facts(recogniser, error.problem))
        return Outcome.ERROR, None, False
    except TimeoutError:
        logger.warning("recogniser failed", extra=_facts(recogniser, "too slow"))
        return Outcome.ERROR, None, False
    return (Outcome.NO_MATCH if recognition is None else Outcome.MATCH), recognition, True


def _facts(recogniser: Recogniser, problem: str) -> dict[str, str]:
    return {"provider": recogniser.name, "problem": problem}
