"""The enabled providers: built from settings, and described for ``afa status``.

Invariant: a provider whose terms forbid general use, or that needs credentials, is off until the
operator enables it.
"""

from dataclasses import dataclass

from serve_app.domain.providers import (
    AudioSource,
    IdentityProvider,
    ProviderTerms,
    RateLimiter,
)
from serve_app.providers.identities.audio_sources import CatalogAudio
from serve_app.providers.identities.deezer import Deezer, DeezerPreviews
from serve_app.providers.identities.itunes import ITunes
from serve_app.providers.identities.jamendo import JamendoAudio
from serve_app.providers.identities.listenbrainz import ListenBrainz
from serve_app.providers.identities.musicbrainz import MusicBrainz
from serve_app.providers.identities.spotify import Spotify
from serve_app.providers.identities.youtube import YouTube
from serve_app.providers.installed import Installed


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Settings that enable providers and say where they are.

    Attributes:
        version: afa's version, for the User-Agent.
        contact: An address or page of the operator, for the User-Agent. MusicBrainz and
            ListenBrainz require one, so they are off without it.
        listenbrainz_token: Also search at ListenBrainz by artist and title.
        jamendo_allow_restricted: Also use tracks whose licence forbids derivatives or commercial
            use.
        others: Providers of other packages.
    """

    version: str
    others: tuple[Installed, ...] = ()
    contact: str = ""
    musicbrainz_base_url: str = "https://musicbrainz.org/ws/2"
    listenbrainz_token: str = ""
    listenbrainz_base_url: str = "https://api.listenbrainz.org"
    youtube_enabled: bool = False
    youtube_oembed_url: str = "https://www.youtube.com/oembed"
    deezer_enabled: bool = False
    deezer_previews_enabled: bool = False
    deezer_base_url: str = "https://api.deezer.com"
    itunes_enabled: bool = False
    itunes_base_url: str = "https://itunes.apple.com"
    spotify_client_id: str = ""
    spotify_client_secret: str = ""
    spotify_base_url: str = "https://api.spotify.com/v1"
    spotify_token_url: str = "https://accounts.spotify.com/api/token"  # noqa: S105  # an address
    jamendo_client_id: str = ""
    jamendo_allow_restricted: bool = False
    jamendo_base_url: str = "https://api.jamendo.com/v3.0"

    def __repr__(self) -> str:
        """Leave out the credentials."""
        return f"ProviderSettings(contact={self.contact!r})"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """One line of ``afa status``."""

    name: str
    is_on: bool
    terms: ProviderTerms


@dataclass(frozen=True, slots=True)
class Providers:
    """The enabled providers, in the order in which they are asked."""

    identities: list[IdentityProvider]
    audio: list[AudioSource]
    statuses: list[ProviderStatus]


def build_providers(settings: ProviderSettings, limiter: RateLimiter) -> Providers:
    """Build the providers that the settings enable.

    Raises:
        ValueError: Previews are enabled without Deezer.
    """
    if settings.deezer_previews_enabled and not settings.deezer_enabled:
        raise ValueError("Deezer previews need Deezer to be on")
    identities: list[IdentityProvider] = []
    audio: list[AudioSource] = [CatalogAudio()]
    contact, version = settings.contact, settings.version
    if contact:
        identities += [
            ListenBrainz(
                settings.listenbrainz_base_url,
                contact,
                version,
                limiter,
                settings.listenbrainz_token,
            ),
            MusicBrainz(settings.musicbrainz_base_url, contact, version, limiter),
        ]
    if settings.jamendo_client_id:
        audio.append(
            JamendoAudio(
                settings.jamendo_base_url,
                settings.jamendo_client_id,
                settings.jamendo_allow_restricted,
                limiter,
            )
        )
    if settings.deezer_enabled:
        deezer = Deezer(settings.deezer_base_url, limiter)
        identities.append(deezer)
        if settings.deezer_previews_enabled:
            audio.append(DeezerPreviews(deezer))
    if settings.itunes_enabled:
        identities.append(ITunes(settings.itunes_base_url, limiter))
    if settings.spotify_client_id and settings.spotify_client_secret:
        identities.append(
            Spotify(
                settings.spotify_base_url,
                settings.spotify_token_url,
                settings.spotify_client_id,
                settings.spotify_client_secret,
                limiter,
            )
        )
    if settings.youtube_enabled:
        identities.append(YouTube(settings.youtube_oembed_url, limiter))
    others, other_audio = _installed(settings, limiter)
    identities += others
    audio += other_audio
    on = {one.name for one in identities} | {one.name for one in audio}
    statuses = [ProviderStatus(one.name, one.name in on, one.terms) for one in ALL]
    statuses += [
        ProviderStatus(other.name, bool(other.settings), other.kind.terms)
        for other in settings.others
    ]
    return Providers(identities, audio, statuses)


def _installed(
    settings: ProviderSettings, limiter: RateLimiter
) -> tuple[list[IdentityProvider], list[AudioSource]]:
    """Make the providers of other packages that the settings enable, by what they can do."""
    made = [other.make(limiter) for other in settings.others if other.settings]
    return (
        [one for one in made if hasattr(one, "by_id")],
        [one for one in made if not hasattr(one, "by_id")],
    )


ALL = (
    CatalogAudio,
    MusicBrainz,
    ListenBrainz,
    YouTube,
    JamendoAudio,
    Deezer,
    DeezerPreviews,
    ITunes,
    Spotify,
)
"""All providers, on or off."""
