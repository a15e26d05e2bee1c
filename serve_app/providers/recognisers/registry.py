"""The enabled identification services and enrichment sources: built from settings.

Invariant: a service that needs credentials is off until it has them.
"""

from dataclasses import dataclass

from serve_app.domain.identification import Recogniser, SpendCap
from serve_app.domain.providers import RateLimiter
from serve_app.providers.identities.musicbrainz import MusicBrainz
from serve_app.providers.installed import Installed
from serve_app.providers.recognisers.acoustid import AcoustId
from serve_app.providers.recognisers.acrcloud import AcrCloud
from serve_app.providers.recognisers.audd import Audd
from serve_app.providers.recognisers.coverart import CoverArtArchive
from serve_app.providers.recognisers.discogs import Discogs
from serve_app.providers.recognisers.own_index import LocalRecogniser
from serve_app.providers.recognisers.releases import MusicBrainzReleases
from serve_app.providers.recognisers.shazam import Shazam, installed_signer

KINDS = (LocalRecogniser, AcoustId, Audd, AcrCloud, Shazam)
"""In the order of the cascade: the local index first, then by price."""

ORDER = tuple(kind.name for kind in KINDS)


@dataclass(frozen=True, slots=True)
class RecogniserSettings:
    """Credentials and addresses; a service without credentials is off.

    Attributes:
        version: afa's version, for the User-Agent.
        contact: An address or page of the operator, for the User-Agent.
        shazam_enabled: Also ask Shazam, an unsupported interface; needs ``shazamio-core``.
        monthly_calls: Maximum billed calls in a UTC month, to each of AudD and ACRCloud.
        others: Recognisers of other packages; these are asked last.
    """

    version: str
    others: tuple[Installed, ...] = ()
    contact: str = ""
    acoustid_key: str = ""
    acoustid_base_url: str = "https://api.acoustid.org/v2"
    audd_token: str = ""
    audd_base_url: str = "https://api.audd.io"
    acrcloud_key: str = ""
    acrcloud_secret: str = ""
    acrcloud_base_url: str = "https://identify-eu-west-1.acrcloud.com"
    monthly_calls: int = 10_000
    shazam_enabled: bool = False
    shazam_base_url: str = "https://amp.shazam.com"
    discogs_token: str = ""
    discogs_base_url: str = "https://api.discogs.com"
    coverart_base_url: str = "https://coverartarchive.org"
    musicbrainz_base_url: str = "https://musicbrainz.org/ws/2"

    def __repr__(self) -> str:
        """Leave out the credentials."""
        return f"RecogniserSettings(contact={self.contact!r})"


@dataclass(frozen=True, slots=True)
class Sources:
    """What identifies, in the order of its names (also those that are off), and what enriches."""

    recognisers: list[Recogniser]
    order: tuple[str, ...]
    discography: Discogs | None
    releases: MusicBrainzReleases | None
    cover_art: CoverArtArchive | None


def build_sources(
    settings: RecogniserSettings,
    limiter: RateLimiter,
    cap: SpendCap,
    local: LocalRecogniser,
) -> Sources:
    """Build what the settings enable; the local index is always included.

    Args:
        settings: Credentials and addresses.
        limiter: Limits the rate of calls.
        cap: Books the billed calls.
        local: The local index.
    """
    recognisers: list[Recogniser] = [local]
    if settings.acoustid_key:
        recognisers.append(AcoustId(settings.acoustid_base_url, settings.acoustid_key, limiter))
    if settings.audd_token:
        recognisers.append(Audd(settings.audd_base_url, settings.audd_token, limiter, cap))
    if settings.acrcloud_key and settings.acrcloud_secret:
        recognisers.append(
            AcrCloud(
                settings.acrcloud_base_url,
                settings.acrcloud_key,
                settings.acrcloud_secret,
                limiter,
                cap,
            )
        )
    signer = installed_signer() if settings.shazam_enabled else None
    if signer is not None:
        recognisers.append(Shazam(settings.shazam_base_url, signer, limiter))
    recognisers += [other.make(limiter, cap) for other in settings.others if other.settings]
    contact, version = settings.contact, settings.version
    discography = releases = cover_art = None
    if contact:
        cover_art = CoverArtArchive(settings.coverart_base_url, contact, version, limiter)
        musicbrainz = MusicBrainz(settings.musicbrainz_base_url, contact, version, limiter)
        releases = MusicBrainzReleases(musicbrainz)
        if settings.discogs_token:
            discography = Discogs(
                settings.discogs_base_url, settings.discogs_token, contact, version, limiter
            )
    order = (*ORDER, *(other.kind.name for other in settings.others))
    return Sources(recognisers, order, discography, releases, cover_art)
