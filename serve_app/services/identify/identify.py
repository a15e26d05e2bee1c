"""Identify uploaded audio while the caller waits: cache, hold, backend, settle.

Invariant: an answer that the account already has is a free hit; if no service could answer, nothing
is charged. An answer that only another account has comes at once, but is charged and reported as a
miss: nobody learns what others ask.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from serve_app.domain.credits import Balance
from serve_app.domain.errors import ConcurrencyError, ProvidersUnavailableError
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.ledger import Ledger
from serve_app.services.audio.audio import Audio, StoredAudio
from serve_app.services.audio.refusal import Refusal, accept
from serve_app.services.charging import Charging, Hold, charge_id
from serve_app.services.gate import Gate
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.identified import Identified
from serve_app.store.limits import Limits

SPACE = "identify"
MAX_IN_FLIGHT = 64
"""Identifications that one process of the API runs at a time; more are refused."""
NOBODY = "No identification service could answer; nothing was charged. Try again later."


class IdentifyBackend(Protocol):
    """The deployment that decodes, fingerprints and asks the services."""

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified | Refusal:
        """Identify the object under ``key``, whose bytes have that hash; remember the answer.

        Raises:
            ServiceUnavailableError: No replica is free or answers in time.
        """
        ...


@dataclass(frozen=True, slots=True)
class IdentifyAnswer:
    """The answer and its cost."""

    identified: Identified
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


class IdentifyService:
    """Identifies bodies and assets."""

    def __init__(
        self,
        backend: IdentifyBackend,
        answers: IdentifyCache | None,
        limits: Limits,
        ledger: Ledger,
        charging: Charging,
        prices: Prices,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        """Use these parts; without ``answers`` nothing is remembered, and every request is new."""
        # The tier limits an owner's identifications across all processes.
        self._gate = Gate(max_in_flight, of_one=max_in_flight)
        self._backend = backend
        self._answers = answers
        self._limits = limits
        self._ledger = ledger
        self._charging = charging
        self._prices = prices

    async def identify(
        self, caller: Caller, tier: Tier, audio: Audio, request_id: str
    ) -> IdentifyAnswer:
        """Identify a body or an asset.

        Raises:
            PayloadTooLargeError: Larger than the tier's upload size.
            AssetNotFoundError: It expired, never existed, or is another owner's.
            ConcurrencyError: As many identifications as the tier allows are in progress.
            InsufficientCreditsError: The balance does not cover the cost.
            UnprocessableAudioError: Not audio, under three seconds or too long; not charged.
            ProvidersUnavailableError: No service could answer; not charged.
            ServiceUnavailableError: Too many requests are waiting; nothing was charged.
        """
        self._gate.check(caller.owner)
        async with audio.stored() as stored:
            return await self._run(caller, tier, stored, request_id)

    async def _run(
        self, caller: Caller, tier: Tier, stored: StoredAudio, request_id: str
    ) -> IdentifyAnswer:
        if self._answers is not None:
            known = await self._answers.by_bytes(stored.sha256)
            if known is not None:
                return await self._answer_known(caller, stored, known, request_id)
        slot = new_ulid()
        if not await self._limits.acquire_slot(caller.owner, SPACE, tier.identify_in_flight, slot):
            raise ConcurrencyError(
                f"your tier identifies {tier.identify_in_flight} clips at a time; "
                "wait for one to end"
            )
        try:
            with self._gate.entered(caller.owner):
                return await self._ask(caller, tier, stored, request_id)
        finally:
            await self._limits.release_slot(caller.owner, SPACE, slot)

    async def _ask(
        self, caller: Caller, tier: Tier, stored: StoredAudio, request_id: str
    ) -> IdentifyAnswer:
        paid_as = charge_id(request_id, stored.sha256)
        async with self._charging.hold(caller, self._prices.identify, paid_as) as hold:
            found = accept(
                await self._backend.identify(stored.key, stored.sha256, tier.max_audio_s)
            )
            if found.is_unavailable:
                raise ProvidersUnavailableError(NOBODY)
            is_hit = await self._was_told(caller, found)
            if is_hit:
                hold.final_cost = 0
        if is_hit:
            return await self._hit(caller, found, request_id)
        return await self._paid(caller, stored, found, hold)

    async def _answer_known(
        self, caller: Caller, stored: StoredAudio, known: Identified, request_id: str
    ) -> IdentifyAnswer:
        if await self._was_told(caller, known):
            return await self._hit(caller, known, request_id)
        paid_as = charge_id(request_id, stored.sha256)
        async with self._charging.hold(caller, self._prices.identify, paid_as) as hold:
            pass  # nothing is left to do
        return await self._paid(caller, stored, known, hold)

    async def _was_told(self, caller: Caller, found: Identified) -> bool:
        if self._answers is None or not found.known_as:
            return False
        return await self._answers.was_told(caller.account, found)

    async def _paid(
        self, caller: Caller, stored: StoredAudio, found: Identified, hold: Hold
    ) -> IdentifyAnswer:
        if self._answers is not None and found.is_definite:
            await self._answers.note_told(caller.account, stored.sha256, found)
        return IdentifyAnswer(found, "miss", hold.charged, hold.balance)

    async def _hit(self, caller: Caller, found: Identified, request_id: str) -> IdentifyAnswer:
        charge = await self._ledger.count_hit(
            caller.account, caller.tier, hit_id=f"hit:{request_id}"
        )
        return IdentifyAnswer(found, "hit", charge.credits, charge.balance)
