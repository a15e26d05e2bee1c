"""Identify uploaded audio while the caller waits: cache, hold, backend, settle.

Invariant: what was identified before is a free hit; when nobody could answer nothing is charged.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from serve_app.domain.credits import Balance
from serve_app.domain.errors import (
    ConcurrencyError,
    ProvidersUnavailableError,
    UnprocessableAudioError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.ledger import Ledger
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.intake import UPLOADS, borrowed_body
from serve_app.services.bpm import Refusal
from serve_app.services.charging import Charging, charge_id
from serve_app.services.gate import Gate
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.simulation import simulated_features
from serve_app.store.limits import Limits
from serve_app.store.objects import ObjectStore

SPACE = "identify"
SLOT_TTL_S = 60.0
MAX_IN_FLIGHT = 64
"""In one process of the API; more are refused before their body is read."""
NOBODY = "No identification service could answer; nothing was charged. Try again later."


@dataclass(frozen=True, slots=True)
class Identified:
    """What came of a clip; plain JSON types, so that it crosses processes and caches.

    Attributes:
        confidence: 0 to 100; 0 when unmatched.
        services_tried: Service to `match`, `no_match`, `error` or `skipped`.
        enrichment: Wire fields; None when unmatched.
        is_definite: Asking again soon would give the same, so it may be cached.
        is_known_clip: Another encoding of this clip was identified before.
    """

    services_tried: dict[str, str]
    artist: str | None = None
    title: str | None = None
    album: str | None = None
    year: str | None = None
    isrc: str | None = None
    confidence: int = 0
    source_service: str | None = None
    enrichment: dict[str, Any] | None = None
    is_definite: bool = True
    is_known_clip: bool = False

    @property
    def matched(self) -> bool:
        """Whether the track was identified."""
        return self.source_service is not None

    @property
    def is_unavailable(self) -> bool:
        """Whether no service gave an answer."""
        return not {"match", "no_match"} & set(self.services_tried.values())

    def to_json(self) -> bytes:
        """Write for the cache."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> "Identified":
        """Read from the cache."""
        return cls(**json.loads(raw))


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
    """What is answered, and what it cost."""

    identified: Identified
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


class IdentifyService:
    """Identifies bodies and assets."""

    def __init__(
        self,
        objects: ObjectStore,
        assets: AssetsService,
        backend: IdentifyBackend,
        cache: IdentifyCache,
        limits: Limits,
        ledger: Ledger,
        charging: Charging,
        prices: Prices,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._gate = Gate(max_in_flight)
        self._objects = objects
        self._assets = assets
        self._backend = backend
        self._cache = cache
        self._limits = limits
        self._ledger = ledger
        self._charging = charging
        self._prices = prices

    async def identify(
        self, caller: Caller, tier: Tier, chunks: AsyncIterator[bytes], request_id: str
    ) -> IdentifyAnswer:
        """Identify a body.

        Raises:
            PayloadTooLargeError: Over the tier's upload size.
            ConcurrencyError: The tier's identifications are all in flight.
            InsufficientCreditsError: Not covered.
            UnprocessableAudioError: Not audio, under three seconds or too long; not charged.
            ProvidersUnavailableError: No service could answer; not charged.
            ServiceUnavailableError: Too much work is waiting; the body was not read.
        """
        with self._gate.entered():
            key = f"{UPLOADS}/identify_{new_ulid()}"
            async with borrowed_body(self._objects, key, chunks, tier) as stored:
                return await self._run(caller, tier, key, stored.sha256, request_id)

    async def identify_asset(
        self, caller: Caller, tier: Tier, asset_id: str, request_id: str
    ) -> IdentifyAnswer:
        """Identify an asset; see `identify`.

        Raises:
            AssetNotFoundError: Expired, never existed, or another owner's.
        """
        with self._gate.entered():
            asset = await self._assets.get(caller, asset_id)
            return await self._run(caller, tier, asset.object_key, asset.sha256, request_id)

    async def _run(
        self, caller: Caller, tier: Tier, key: str, sha256: str, request_id: str
    ) -> IdentifyAnswer:
        if caller.is_test:
            return await self._simulate(caller, sha256, request_id)
        known = await self._cache.by_bytes(bytes.fromhex(sha256))
        if known is not None:
            return await self._hit(caller, Identified.from_json(known), request_id)
        slot = new_ulid()
        if not await self._limits.acquire_slot(
            caller.owner, SPACE, tier.identify_in_flight, slot, SLOT_TTL_S
        ):
            raise ConcurrencyError(
                f"your tier identifies {tier.identify_in_flight} clips at a time; "
                "wait for one to end"
            )
        try:
            return await self._ask(caller, tier, key, sha256, request_id)
        finally:
            await self._limits.release_slot(caller.owner, SPACE, slot)

    async def _ask(
        self, caller: Caller, tier: Tier, key: str, sha256: str, request_id: str
    ) -> IdentifyAnswer:
        paid_as = charge_id(request_id, sha256)
        async with self._charging.hold(caller, self._prices.identify, paid_as) as hold:
            found = await self._backend.identify(key, sha256, tier.max_audio_s)
            if isinstance(found, Refusal):
                raise UnprocessableAudioError(found.message, found.code)
            if found.is_unavailable:
                raise ProvidersUnavailableError(NOBODY)
            if found.is_known_clip:
                hold.final_cost = 0
        if found.is_known_clip:
            return await self._hit(caller, found, request_id)
        return IdentifyAnswer(found, "miss", hold.charged, hold.balance)

    async def _hit(self, caller: Caller, found: Identified, request_id: str) -> IdentifyAnswer:
        charge = await self._ledger.count_hit(
            caller.account, caller.tier, hit_id=f"hit:{request_id}"
        )
        return IdentifyAnswer(found, "hit", charge.credits, charge.balance)

    async def _simulate(self, caller: Caller, sha256: str, request_id: str) -> IdentifyAnswer:
        """Answer a test key: the same for the same bytes, asking nobody."""
        features = simulated_features(sha256)
        found = Identified(
            services_tried={"simulated": "match"},
            artist="Test Artist",
            title=f"Test Track {sha256[:8]}",
            confidence=100,
            source_service="simulated",
            enrichment={"bpm": features.tempo, "camelot": features.camelot},
        )
        async with self._charging.hold(caller, self._prices.identify, request_id) as hold:
            pass
        return IdentifyAnswer(found, "miss", hold.charged, hold.balance)
