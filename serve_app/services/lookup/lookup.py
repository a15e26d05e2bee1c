"""Look up a track: who it is, whether its features are known, and if not, compute them once.

Invariant: a hit costs nothing within the monthly allowance; a miss is charged only if it is
answered, and once per account; however many ask at once, one job computes.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

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
from serve_app.domain.prices import Prices
from serve_app.domain.providers import AmbiguousIdError, ProvidersFailedError
from serve_app.domain.tiers import Tiers
from serve_app.domain.track_ids import InvalidTrackIdError, parse_track_id
from serve_app.ledger.jobs.types import Source
from serve_app.ledger.ledger import Ledger
from serve_app.providers.identities.resolution import Resolution
from serve_app.providers.identities.resolver import Resolver
from serve_app.services.audio.refusal import accept
from serve_app.services.bpm import QuickBackend
from serve_app.services.charging import Charging
from serve_app.services.lookup.beatgrid import BeatGrid, fitted_grid, verified_grid
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.services.lookup.find import Finder, Known, Missing, Want, key_bpm, light
from serve_app.services.lookup.find import whole as whole_features
from serve_app.services.lookup.misses import Misses, held
from serve_app.services.lookup.track_jobs import UNFIT_AUDIO, TrackJobs
from serve_app.services.simulation.backends import SimulatedTracks
from serve_app.services.simulation.resolver import SimulatedResolver

T = TypeVar("T")

NO_AUDIO = (
    "the track is known, but no audio available; upload it: POST /v1/audio-features/upload, or "
    "POST /v1/assets/upload?track=ID and ask again"
)


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The result, and what it cost."""

    identity: TrackIdentity
    features: T
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


class LookupService:
    """Answers look-ups by identifier and by name."""

    def __init__(
        self,
        resolver: Resolver | SimulatedResolver,
        finder: Finder,
        cache: FeatureCache,
        tracks: TrackJobs | SimulatedTracks,
        quick: QuickBackend,
        ledger: Ledger,
        charging: Charging,
        tiers: Tiers,
        prices: Prices,
    ) -> None:
        """Use these parts.

        Args:
            resolver: Finds out which track is meant.
            finder: Knows what is cached, and where audio is.
            cache: Where key and tempo are kept; jobs keep features themselves.
            tracks: Computes features.
            quick: Computes key and tempo.
            ledger: Counts hits.
            charging: Takes payment for misses.
            tiers: What callers' plans include.
            prices: What misses cost.
        """
        self._resolver = resolver
        self._finder = finder
        self._cache = cache
        self._tracks = tracks
        self._quick = quick
        self._ledger = ledger
        self._charging = charging
        self._tiers = tiers
        self._prices = prices

    async def identify(self, caller: Caller, text: str) -> TrackIdentity:
        """Return the track of an identifier in any form, if the caller may see it.

        Raises:
            TrackNotFoundError: It is not an identifier, or no known track has it.
            BadRequestError: The number names two tracks.
            ServiceUnavailableError: Not every provider could be queried.
        """
        try:
            track_id = parse_track_id(text)
        except InvalidTrackIdError as error:
            raise TrackNotFoundError(str(error)) from error
        return await self._known(caller, self._resolver.resolve(track_id, caller.owner))

    async def identify_name(self, caller: Caller, artist: str, title: str) -> TrackIdentity:
        """Return the track of this artist and title; raises as `identify`."""
        return await self._known(caller, self._resolver.search(artist, title, caller.owner))

    async def _known(self, caller: Caller, asking: Awaitable[Resolution | None]) -> TrackIdentity:
        try:
            resolution = await asking
        except AmbiguousIdError as error:
            raise BadRequestError(str(error)) from error
        except ProvidersFailedError as error:
            raise ServiceUnavailableError(
                "the track is not in the catalog, and not every provider could be asked; try again",
                10,
            ) from error
        if resolution is None:
            raise TrackNotFoundError(self._resolver.knows(caller.owner))
        return resolution.identity

    async def find_text(
        self, caller: Caller, text: str, artist: str, title: str, limit: int
    ) -> list[TrackIdentity]:
        """Return the tracks with these words in their names that the caller may see, best first."""
        return await self._resolver.find_text(text, artist, title, limit, caller.owner)

    async def by_id(
        self, caller: Caller, text: str, request_id: str, admission: Awaitable[None]
    ) -> Found[TrackFeatures]:
        """Return the features of an identifier's track.

        Args:
            caller: Who asks and pays.
            text: The identifier, in any form.
            request_id: Makes the charge of a hit idempotent; a miss is charged by its track.
            admission: Admits the caller, or raises; it is sent to Redis together with the first
                query of the cache, so that a hit takes only two round trips.

        Raises:
            TrackNotFoundError: There is no such track, or no audio to compute from.
            TierRequiredError: The track is not known yet, and the tier excludes computing.
            InsufficientCreditsError: The balance does not cover the cost.
            ServiceUnavailableError: Not computed in time; nothing was charged, ask again.
        """
        _, hit = await asyncio.gather(admission, self._at_hand(caller, text))
        if hit is not None:
            identity, known = hit
            return await self._hit(caller, identity, known, request_id)
        return await self.features(caller, text, request_id)

    async def features(self, caller: Caller, text: str, request_id: str) -> Found[TrackFeatures]:
        """Return the features of an identifier's track to an admitted caller; see `by_id`."""
        identity = await self.identify(caller, text)
        return await self._features(caller, identity, self._prices.features_by_id_miss, request_id)

    async def by_name(
        self, caller: Caller, artist: str, title: str, request_id: str
    ) -> Found[TrackFeatures]:
        """Return the features of the track of this artist and title; raises as `by_id`."""
        identity = await self.identify_name(caller, artist, title)
        return await self._features(
            caller, identity, self._prices.features_by_name_miss, request_id
        )

    async def analysis(self, caller: Caller, text: str, request_id: str) -> Found[TrackFeatures]:
        """Return a track's features with segments, sections and embedding; raises as `by_id`."""
        identity = await self.identify(caller, text)
        price = self._prices.features_by_id_miss
        return await self._features(caller, identity, price, request_id, whole=True)

    async def beat_grid(self, caller: Caller, text: str, request_id: str) -> Found[BeatGrid]:
        """Return a beat grid; a verified one from the catalog is a hit. Raises as `by_id`."""
        identity = await self.identify(caller, text)
        grid = verified_grid(identity)
        if grid is not None:
            return await self._hit(caller, identity, Known(grid), request_id)
        found = await self._features(caller, identity, self._prices.beatgrid_miss, request_id)
        grid = fitted_grid(identity, found.features)
        return Found(identity, grid, found.cache, found.credits_used, found.balance)

    async def key_bpm(
        self, caller: Caller, artist: str, title: str, request_id: str
    ) -> Found[QuickFeatures]:
        """Return tempo and key; if unknown, they are computed on the CPU, for every tier.

        Raises:
            TrackNotFoundError: There is no such track, or no suitable audio to compute from.
            InsufficientCreditsError: The balance does not cover the cost.
            ServiceUnavailableError: Not every provider could be queried, or no replica is free.
        """
        identity = await self.identify_name(caller, artist, title)
        found = await self._finder.find(caller, identity, key_bpm)
        if isinstance(found, Known):
            return await self._hit(caller, identity, found, request_id)
        source = self._audio_of(found)
        async with self.paying(caller, self._prices.key_bpm_miss, [found.key]) as misses:
            try:
                features = await self._compute_quick(caller, source)
            except (UnprocessableAudioError, UrlFetchError) as error:
                raise TrackNotFoundError(UNFIT_AUDIO) from error
            await self._cache.put_quick(found.key, features)
        return Found(identity, features, "miss", misses.charged, misses.balance)

    async def find(
        self, caller: Caller, identity: TrackIdentity, want: Want[T]
    ) -> Known[T] | Missing:
        """See `Finder.find`."""
        return await self._finder.find(caller, identity, want)

    async def compute(
        self, caller: Caller, missing: Missing, *, whole: bool = False
    ) -> TrackFeatures:
        """Compute and cache features; several callers share one job. Raises as `by_id`."""
        source = self._audio_of(missing)
        tier = self._tiers[caller.tier]
        return await self._tracks.compute(
            caller, tier, missing.key, source, whole=whole, library_id=missing.library_id
        )

    def paying(
        self, caller: Caller, price: int, keys: Sequence[str]
    ) -> AbstractAsyncContextManager[Misses]:
        """Pay for tracks that are computed in the block; see `misses.held`."""
        return held(self._charging, caller, self._prices.steps(price), keys)

    def can_compute(self, caller: Caller) -> bool:
        """Return whether the caller's tier may use the GPU."""
        return self._tiers[caller.tier].gpu

    async def _at_hand(
        self, caller: Caller, text: str
    ) -> tuple[TrackIdentity, Known[TrackFeatures]] | None:
        """Look in the library, catalog and cache only."""
        try:
            identity = self._resolver.at_hand(parse_track_id(text), caller.owner)
        except InvalidTrackIdError:
            return None
        if identity is None:
            return None
        known = await self._finder.cached(caller, identity, light)
        return None if known is None else (identity, known)

    async def _features(
        self,
        caller: Caller,
        identity: TrackIdentity,
        price: int,
        request_id: str,
        *,
        whole: bool = False,
    ) -> Found[TrackFeatures]:
        want = whole_features if whole else light
        found = await self._finder.find(caller, identity, want)
        if isinstance(found, Known):
            return await self._hit(caller, identity, found, request_id)
        if not self.can_compute(caller):
            self._require_cache()
            raise TierRequiredError(
                "the features of this track are not cached yet, and computing them needs a paid "
                f"tier ({self._tiers.first_with('gpu').name} or higher); your tier is {caller.tier}"
            )
        self._audio_of(found)
        async with self.paying(caller, price, [found.key]) as misses:
            features = await self.compute(caller, found, whole=whole)
        return Found(identity, features, "miss", misses.charged, misses.balance)

    async def _hit(
        self, caller: Caller, identity: TrackIdentity, known: Known[T], request_id: str
    ) -> Found[T]:
        charge = await self._ledger.count_hit(
            caller.account, caller.tier, hit_id=f"hit:{request_id}"
        )
        return Found(identity, known.features, "hit", charge.credits, charge.balance)

    def _audio_of(self, missing: Missing) -> Source:
        if missing.source is None:
            self._require_cache()
            raise TrackNotFoundError(NO_AUDIO)
        return missing.source

    def _require_cache(self) -> None:
        if self._cache.is_away():
            raise ServiceUnavailableError(
                "what is cached of the track cannot be read at the moment; try again", 2
            )

    async def _compute_quick(self, caller: Caller, source: Source) -> QuickFeatures:
        tier = self._tiers[caller.tier]
        return accept(
            await self._quick.analyse(
                source,
                max_audio_s=tier.max_audio_s,
                max_bytes=tier.upload_bytes,
                with_key=True,
            )
        )
