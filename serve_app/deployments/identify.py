"""Identifies recordings on the CPU: first by its own index, then by configured services."""

import asyncio
from functools import partial

import torch
from ray import serve

from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.checkpoints.exchange import ids_by_role
from serve_app.checkpoints.watch import ChoiceWatch
from serve_app.composition.options import (
    LibraryOptions,
    ModelOptions,
    StoreOptions,
    TrackOptions,
)
from serve_app.composition.stores import open_stores
from serve_app.deployments.following import QUICK_ROLES, follow, quick_exchange
from serve_app.deployments.placement import assigned_cpus
from serve_app.deployments.telemetry import tell_operators
from serve_app.domain.identification import TempoAndKey
from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.manifest import generation_of
from serve_app.providers.fingerprints.track_keys import identity_of_key
from serve_app.providers.identities.memo import Memo
from serve_app.providers.identities.registry import build_providers
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.own_index import LocalRecogniser
from serve_app.providers.recognisers.registry import build_sources
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.services.audio.refusal import Refusal
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.cascade import IdentifyCascade
from serve_app.services.identify.clip_identifier import ClipIdentifier
from serve_app.services.identify.enrichment import EnrichmentService
from serve_app.services.identify.identified import Identified
from serve_app.services.lookup.feature_cache import FeatureCache, track_key
from serve_app.store.spend import SharedRateLimiter, SpendCap


@serve.deployment
class Identify:
    """Wires a `ClipIdentifier`."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it; loading must not block its loop
        self,
        options: ModelOptions,
        stores: StoreOptions,
        tracks: TrackOptions,
        library: LibraryOptions,
    ) -> None:
        tell_operators()
        torch.set_num_threads(assigned_cpus())
        opened = open_stores(stores)
        limiter = SharedRateLimiter(opened.cache_store, LocalRateLimiter())
        settings = tracks.recogniser_settings()
        cap = SpendCap(
            opened.ledger_store, settings.monthly_calls, MonthlyCap(settings.monthly_calls)
        )
        await asyncio.to_thread(tracks.follow)
        catalog = Catalog.open(tracks.catalog_dir)
        known = library.open()
        local = LocalRecogniser(
            tracks.fingerprint_dir, lambda key: identity_of_key(catalog, key, known)
        )
        await asyncio.to_thread(local.warm)
        sources = build_sources(settings, limiter, cap, local)
        providers = build_providers(tracks.provider_settings(), limiter)
        watch = ChoiceWatch(stores.ledger_url, ids_by_role(options.cards()))
        self._features = FeatureCache(opened.cache, watch.name)
        self._exchange = quick_exchange(options)
        self._follower = await follow(options, stores, QUICK_ROLES, self._exchange)
        self._identifier = ClipIdentifier(
            opened.objects,
            Fingerprinter().make_clip,
            IdentifyCache(opened.cache, partial(generation_of, tracks.fingerprint_dir)),
            IdentifyCascade(sources.recognisers, sources.order),
            EnrichmentService(
                resolver=Resolver(catalog, providers.identities, Memo(opened.cache)),
                discography=sources.discography,
                releases=sources.releases,
                cover_art=sources.cover_art,
                cached_measure=self._cached,
            ),
            self._measure,
            at_once=assigned_cpus() + 1,
        )

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified | Refusal:
        """See `IdentifyBackend`."""
        return await self._identifier.identify(key, sha256, max_audio_s)

    async def _cached(self, identity: TrackIdentity) -> TempoAndKey | None:
        found = await self._features.light(self._features.shared_key(track_key(identity)))
        return None if found is None else TempoAndKey(found.tempo, found.key, found.mode)

    async def _measure(self, waveform: Waveform) -> TempoAndKey:
        analyzer = self._exchange.current
        found = await asyncio.to_thread(analyzer.analyse, waveform, with_key=True)
        return TempoAndKey(found.tempo, found.key, found.mode)

    async def ready(self) -> bool:
        """Answer once everything is loaded."""
        return True
