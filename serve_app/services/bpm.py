"""Detect the tempo of uploaded audio while the caller waits; CPU only."""

from dataclasses import dataclass
from typing import Protocol

from models.rhythm.tempo import TempoRange
from pipelines.analysis.records import QuickFeatures
from serve_app.domain.assets import AssetRecord
from serve_app.domain.credits import Balance
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.ledger.jobs.types import ObjectSource, Source
from serve_app.services.audio.audio import Audio
from serve_app.services.audio.refusal import Refusal, accept
from serve_app.services.charging import Charging, charge_id
from serve_app.services.gate import Gate

MAX_IN_FLIGHT = 32
"""Requests that one ingress replica computes at once: as many as a replica of the tempo deployment
accepts. They queue there, ready to be next; a router that waits for a full replica leaves it idle
for up to half a second between two tries."""


class QuickBackend(Protocol):
    """The CPU deployment that finds tempo and key."""

    async def analyse(
        self,
        source: Source,
        *,
        max_audio_s: float,
        max_bytes: int,
        with_key: bool,
        tempo_range: TempoRange | None = None,
    ) -> QuickFeatures | Refusal:
        """Fetch, decode and analyse; the tempo is within the range, if one is given.

        Raises:
            ServiceUnavailableError: No replica is free, or none answers in time.
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
        backend: QuickBackend,
        charging: Charging,
        prices: Prices,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._gate = Gate(max_in_flight)
        self._backend = backend
        self._charging = charging
        self._prices = prices

    async def detect(
        self,
        caller: Caller,
        tier: Tier,
        audio: Audio,
        request_id: str,
        tempo_range: TempoRange | None = None,
    ) -> BpmAnswer:
        """Detect the tempo of a body or an asset.

        Raises:
            PayloadTooLargeError: Larger than the tier's upload size.
            AssetNotFoundError: It expired, never existed, or is another owner's.
            InsufficientCreditsError: The balance does not cover the cost.
            UnprocessableAudioError: Not audio, too short or too long; not charged.
            ConcurrencyError: Too many of the caller's requests are waiting; nothing was charged.
            ServiceUnavailableError: Too many requests are waiting; nothing was charged.
        """
        self._gate.check(caller.owner, tier.name)
        async with audio.stored() as stored:
            with self._gate.entered(caller.owner, tier.name):
                paid_as = charge_id(request_id, stored.sha256)
                async with self._charging.hold(caller, self._prices.bpm, paid_as) as hold:
                    features = accept(
                        await self._backend.analyse(
                            ObjectSource(stored.key, stored.sha256),
                            max_audio_s=tier.max_audio_s,
                            max_bytes=tier.upload_bytes,
                            with_key=False,
                            tempo_range=tempo_range,
                        )
                    )
        return BpmAnswer(features, stored.asset, hold.charged, hold.balance)
