"""Builds the outside services that the settings name, in order to examine them."""

from pathlib import Path

from configs.settings import Settings
from serve_app.composition.options import TrackOptions
from serve_app.providers.identities.registry import Providers, build_providers
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.own_index import LocalRecogniser
from serve_app.providers.recognisers.registry import Sources, build_sources
from serve_app.providers.web.http_client import LocalRateLimiter


def outside_services(settings: Settings) -> tuple[Providers, Sources]:
    """Build the services that the settings enable, without a catalog or an index.

    Raises:
        ValueError: A setting names an unknown service, or one that cannot be built.
    """
    tracks = TrackOptions(
        catalog_dir=Path(),
        fingerprint_dir=Path(),
        providers=settings.providers,
        recognisers=settings.recognisers,
    )
    limiter = LocalRateLimiter()
    local = LocalRecogniser(Path(), lambda _: None)
    return (
        build_providers(tracks.provider_settings(), limiter),
        build_sources(tracks.recogniser_settings(), limiter, MonthlyCap(0), local),
    )
