"""Find a track's features: who it is, whether they are known, and if not, compute them once.

Invariant: a hit costs nothing inside the monthly allowance; a miss is charged only if it is
answered; however many ask at once, one job computes.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal

from pipelines.analysis.records import QuickFeatures, TrackFeatures
from serve_app.domain.credits import Balance
from serve_app.domain.errors import (
    BadRequestError,
    ServiceUnavailableError,
    TierRequiredError,
    TrackNotFoundError,
    UnprocessableAudioError,
    UrlFetchError,
)
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.providers import AmbiguousIdError, ProvidersFailedError
from serve_app.domain.tiers import Tier, Tiers
from serve_app.domain.track_ids import InvalidTrackIdError, parse_track_id
from serve_app.ledger.ledger import Ledger
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.sources import Source, TrackAudio
from serve_app.services.bpm import QuickBackend, accept
from serve_app.services.charging import Charging
from serve_app.services.lookup.feature_cache import FeatureCache, light, track_key
from serve_app.services.lookup.identities import Identities
from serve_app.services.lookup.track_jobs import UNFIT_AUDIO, TrackJobs
from serve_app.services.simulation import (
    SimulatedIdentities,
    simulated_features,
    simulated_quick,
)

NO_AUDIO = (
    "the track is known, but no audio available; upload it: POST /v1/audio-features/upload, or "
    "POST /v1/assets/upload?track=ID and ask again"
)
NOT_FOUND = "no such track is known"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a track's features are cached, and the audio they would be computed from."""

    key: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was read of a track before its look-up was let in."""

    identity: TrackIdentity
    features: TrackFeatures


@dataclass(frozen=True, slots=True)
class Found:
    """Features, and what they cost."""

    identity: TrackIdentity
    features: TrackFeatures
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


@dataclass(frozen=True, slots=True)
class FoundQuick:
    """Tempo and key, and what they cost."""

    identity: TrackIdentity
    features: QuickFeatures
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


class LookupService:
    """Answers look-ups by identifier and by name."""

    def __init__(
        self,
        identities: Identities,
        audio: TrackAudio,
        cache: FeatureCache,
        jobs: TrackJobs,
        quick: QuickBackend,
        assets: AssetsService,
        ledger: Ledger,
        charging: Charging,
        tiers: Tiers,
    ) -> None:
        self._identities = identities
        self._simulated = SimulatedIdentities()
        self._audio = audio
        self.cache = cache
        self.jobs = jobs
        self._quick = quick
        self._assets = assets
        self._ledger = ledger
        self._charging = charging
        self._tiers = tiers

    def _directory(self, caller: Caller) -> Identities:
        return self._simulated if caller.is_test else self._identities

    async def read_ahead(self, caller: Caller, text: str) -> Ahead | None:
        """Read a track's features if the catalog and the cache have them; ask nobody else."""
        try:
            identity = self._directory(caller).at_hand(parse_track_id(text))
        except InvalidTrackIdError:
            return None
        if identity is None:
            return None
        features = await self.cache.light(self.cache.key(caller, track_key(identity)))
        return None if features is None else Ahead(identity, features)

    async def identify(self, caller: Caller, text: str) -> TrackIdentity:
        """Give the track of an identifier in any form.

        Raises:
            TrackNotFoundError: Not an identifier, or of no known track.
            BadRequestError: The number names two tracks.
            ServiceUnavailableError: Not every provider could be asked.
        """
        try:
            track_id = parse_track_id(text)
        except InvalidTrackIdError as error:
            raise TrackNotFoundError(str(error)) from error
        directory = self._directory(caller)
        return _known(await _asked(directory.by_id(track_id)))

    async def identify_name(self, caller: Caller, artist: str, title: str) -> TrackIdentity:
        """Give the track that is named so; raises as `identify`."""
        directory = self._directory(caller)
        return _known(await _asked(directory.find(artist, title)))

    async def features(
        self,
        caller: Caller,
        identity: TrackIdentity,
        price: int,
        request_id: str,
        *,
        whole: bool = False,
        ahead: Ahead | None = None,
    ) -> Found:
        """Give a track's features, computing them if need be.

        Args:
            caller: Who asks and pays.
            identity: The track.
            price: Credits of a miss.
            request_id: Makes the charge idempotent.
            whole: With segments, sections and embedding.
            ahead: What `read_ahead` gave; not for ``whole``.

        Raises:
            TrackNotFoundError: No audio to compute from.
            TierRequiredError: Not known yet, and the tier computes nothing.
            InsufficientCreditsError: Not covered.
            ServiceUnavailableError: Not computed in time; not charged, worth asking again.
        """
        key = self.cache.key(caller, track_key(identity))
        known = ahead.features if ahead else await self._cached(key, whole=whole)
        place = Place(key, None)
        if known is None:
            place = await self.place(caller, identity)
            if place.key != key:
                known = await self._cached(place.key, whole=whole)
        if known is not None:
            charge = await self._ledger.count_hit(
                caller.account, caller.tier, hit_id=f"hit:{request_id}"
            )
            return Found(identity, known, "hit", charge.credits, charge.balance)
        self._require_way(place.source is not None and self.can_compute(caller))
        self._require_gpu(caller)
        if place.source is None:
            raise TrackNotFoundError(NO_AUDIO)
        async with self._charging.hold(caller, price, request_id) as hold:
            features = await self.compute(caller, place, whole=whole)
        return Found(identity, features, "miss", hold.charged, hold.balance)

    async def key_bpm(
        self, caller: Caller, identity: TrackIdentity, price: int, request_id: str
    ) -> FoundQuick:
        """Give tempo and key; what is not known is computed on the CPU, for every tier.

        Raises:
            TrackNotFoundError: No audio to compute from, or it is not fit.
            InsufficientCreditsError: Not covered.
        """
        key = self.cache.key(caller, track_key(identity))
        known = await self._cached_quick(key)
        place = Place(key, None)
        if known is None:
            place = await self.place(caller, identity)
            if place.key != key:
                known = await self._cached_quick(place.key)
        if known is not None:
            charge = await self._ledger.count_hit(
                caller.account, caller.tier, hit_id=f"hit:{request_id}"
            )
            return FoundQuick(identity, known, "hit", charge.credits, charge.balance)
        self._require_way(place.source is not None)
        if place.source is None:
            raise TrackNotFoundError(NO_AUDIO)
        tier = self._tiers[caller.tier]
        async with self._charging.hold(caller, price, request_id) as hold:
            try:
                features = await self._compute_quick(tier, place.source, place.key)
            except (UnprocessableAudioError, UrlFetchError) as error:
                raise TrackNotFoundError(UNFIT_AUDIO) from error
        return FoundQuick(identity, features, "miss", hold.charged, hold.balance)

    async def place(self, caller: Caller, identity: TrackIdentity) -> Place:
        """Find a track's audio: the caller's own asset, else what the catalog or a source has."""
        track = track_key(identity)
        shared = self.cache.key(caller, track)
        if caller.is_test:
            return Place(shared, {"kind": "simulated", "seed": track})
        for track_id in identity.ids():
            asset = await self._assets.of_track(caller, str(track_id))
            if asset is not None:
                source = {"kind": "object", "key": asset.object_key}
                own = f"{track}|{asset.sha256}"
                return Place(self.cache.key(caller, own, own=True), source)
        return Place(shared, await self._audio.find(identity))

    async def compute(self, caller: Caller, place: Place, *, whole: bool = False) -> TrackFeatures:
        """Compute and cache; several callers share one job. Raises as `features`."""
        if place.source is None:
            raise TrackNotFoundError(NO_AUDIO)
        if place.source["kind"] == "simulated":
            features = simulated_features(place.source["seed"])
            await self.cache.put(place.key, features)
            return features if whole else light(features)
        tier = self._tiers[caller.tier]
        return await self.jobs.compute(caller, tier, place.key, place.source, whole=whole)

    def can_compute(self, caller: Caller) -> bool:
        """Tell whether the caller's tier reaches the GPU."""
        return self._tiers[caller.tier].gpu

    def _require_way(self, can_compute: bool) -> None:
        if self.cache.is_away() and not can_compute:
            raise ServiceUnavailableError(
                "what is cached of the track cannot be read at the moment; try again", 2
            )

    def _require_gpu(self, caller: Caller) -> None:
        if not self.can_compute(caller):
            raise TierRequiredError(
                "the features of this track are not cached yet, and computing them needs a paid "
                f"tier ({self._tiers.first_with('gpu').name} or higher); your tier is {caller.tier}"
            )

    async def _cached(self, key: str, *, whole: bool) -> TrackFeatures | None:
        return await (self.cache.whole(key) if whole else self.cache.light(key))

    async def _cached_quick(self, key: str) -> QuickFeatures | None:
        features = await self.cache.light(key)
        if features is None:
            return await self.cache.quick(key)
        return QuickFeatures(
            tempo=features.tempo,
            tempo_confidence=features.tempo_confidence,
            key=features.key,
            mode=features.mode,
            camelot=features.camelot,
        )

    async def _compute_quick(self, tier: Tier, source: Source, key: str) -> QuickFeatures:
        if source["kind"] == "simulated":
            features = simulated_quick(source["seed"])
        else:
            features = accept(
                await self._quick.analyse(
                    source,
                    max_audio_s=tier.max_audio_s,
                    max_bytes=tier.upload_bytes,
                    with_key=True,
                )
            )
        await self.cache.put_quick(key, features)
        return features


async def _asked(asking: Awaitable[TrackIdentity | None]) -> TrackIdentity | None:
    try:
        return await asking
    except AmbiguousIdError as error:
        raise BadRequestError(str(error)) from error
    except ProvidersFailedError as error:
        raise ServiceUnavailableError(
            "the track is not in the catalog, and not every provider could be asked; try again", 10
        ) from error


def _known(identity: TrackIdentity | None) -> TrackIdentity:
    if identity is None:
        raise TrackNotFoundError(NOT_FOUND)
    return identity
