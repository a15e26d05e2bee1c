"""Detect the tempo of uploaded audio while the caller waits; CPU only."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from pipelines.analysis.records import QuickFeatures
from serve_app.domain.assets import AssetRecord
from serve_app.domain.credits import Balance
from serve_app.domain.errors import UnprocessableAudioError, UrlFetchError
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.intake import UPLOADS, borrowed_body
from serve_app.services.audio.sources import Source
from serve_app.services.charging import Charging, charge_id
from serve_app.services.gate import Gate
from serve_app.services.simulation import simulated_quick
from serve_app.store.objects import ObjectStore

MAX_IN_FLIGHT = 32
"""Requests that one ingress replica lets in at once: what a replica of the tempo deployment takes.
They wait there, where they are next in line; a router that waits for a full replica leaves it idle
for up to half a second between two tries."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why audio cannot be analysed: crosses processes as a value, not as an exception."""

    code: str
    message: str


class QuickBackend(Protocol):
    """The CPU deployment that finds tempo and key."""

    async def analyse(
        self, source: Source, *, max_audio_s: float, max_bytes: int, with_key: bool
    ) -> QuickFeatures | Refusal:
        """Fetch, decode and analyse.

        Raises:
            ServiceUnavailableError: No replica is free or answers in time.
        """
        ...


@dataclass(frozen=True, slots=True)
class BpmAnswer:
    """A tempo and what it cost."""

    features: QuickFeatures
    asset: AssetRecord | None
    credits_used: int
    balance: Balance


class BpmService:
    """Tempo of a body or of an asset."""

    def __init__(
        self,
        objects: ObjectStore,
        assets: AssetsService,
        backend: QuickBackend,
        charging: Charging,
        prices: Prices,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._gate = Gate(max_in_flight)
        self._objects = objects
        self._assets = assets
        self._backend = backend
        self._charging = charging
        self._prices = prices

    async def detect(
        self, caller: Caller, tier: Tier, chunks: AsyncIterator[bytes], request_id: str
    ) -> BpmAnswer:
        """Detect the tempo of a body.

        Raises:
            PayloadTooLargeError: Over the tier's upload size.
            InsufficientCreditsError: Not covered.
            UnprocessableAudioError: Not audio, too short or too long; not charged.
            ServiceUnavailableError: Too much work is waiting; the body was not read.
        """
        with self._gate.entered():
            key = f"{UPLOADS}/bpm_{new_ulid()}"
            async with borrowed_body(self._objects, key, chunks, tier) as stored:
                return await self._run(caller, tier, key, stored.sha256, None, request_id)

    async def detect_asset(
        self, caller: Caller, tier: Tier, asset_id: str, request_id: str
    ) -> BpmAnswer:
        """Detect the tempo of an asset.

        Raises:
            AssetNotFoundError: Expired, never existed, or another owner's.
            InsufficientCreditsError: Not covered.
            UnprocessableAudioError: Not audio, too short or too long; not charged.
            ServiceUnavailableError: Too much work is waiting.
        """
        with self._gate.entered():
            asset = await self._assets.get(caller, asset_id)
            return await self._run(caller, tier, asset.object_key, asset.sha256, asset, request_id)

    async def _run(
        self,
        caller: Caller,
        tier: Tier,
        key: str,
        sha256: str,
        asset: AssetRecord | None,
        request_id: str,
    ) -> BpmAnswer:
        paid_as = charge_id(request_id, sha256)
        async with self._charging.hold(caller, self._prices.bpm, paid_as) as hold:
            if caller.is_test:
                found: QuickFeatures | Refusal = simulated_quick(sha256)
            else:
                found = await self._backend.analyse(
                    {"kind": "object", "key": key},
                    max_audio_s=tier.max_audio_s,
                    max_bytes=tier.upload_bytes,
                    with_key=False,
                )
            features = accept(found)
        return BpmAnswer(features, asset, hold.charged, hold.balance)


def accept(found: QuickFeatures | Refusal) -> QuickFeatures:
    """Return what was found.

    Raises:
        UnprocessableAudioError: It was refused.
        UrlFetchError: Its URL gave no audio.
    """
    if isinstance(found, Refusal):
        if found.code == UrlFetchError.code:
            raise UrlFetchError(found.message)
        raise UnprocessableAudioError(found.message, found.code)
    return found
