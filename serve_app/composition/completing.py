"""Assemble what completes the library's tracks in the background, if a service is enabled."""

from serve_app.composition.options import TrackOptions
from serve_app.composition.stores import Stores
from serve_app.library.library import Library
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.identities.memo import Memo
from serve_app.providers.identities.registry import build_providers
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.recognisers.acoustid import AcoustId
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.services.identify.completion import Completion
from serve_app.store.spend import SharedRateLimiter


def completing(library: Library, tracks: TrackOptions, stores: Stores) -> Completion | None:
    """Return what looks up tracks; None if no service is enabled."""
    limiter = SharedRateLimiter(stores.cache_store, LocalRateLimiter())
    providers = build_providers(tracks.provider_settings(), limiter).identities
    settings = tracks.recogniser_settings()
    acoustid = None
    if settings.acoustid_key:
        acoustid = AcoustId(settings.acoustid_base_url, settings.acoustid_key, limiter)
    services = [one.name for one in (acoustid, *providers) if one is not None]
    if not services:
        return None
    resolver = Resolver(Catalog.open(tracks.catalog_dir), providers, Memo(stores.cache))
    return Completion(library, resolver, acoustid, services)
