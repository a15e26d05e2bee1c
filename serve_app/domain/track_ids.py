"""Track identifiers: every form a caller may write, parsed into one platform and one value.

Invariant: ``parse_track_id(str(track_id))`` gives the same platform and value again. Everything is
matched whole and in ASCII classes, so that no look-alike digit or trailing newline gets through.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from serve_app.domain.ulid import ALPHABET, LENGTH

MAX_LENGTH = 2048
LIBRARY_PREFIX = "trk_"

FORMS = (
    "Accepted: a Spotify id (22 characters), MusicBrainz recording id (UUID), ISRC (like "
    "QZTST2100001), YouTube id (11 characters), Apple Music or Deezer id (digits; best written "
    "apple:ID or deezer:ID), the prefixed forms spotify:, mbid:, isrc:, apple:, deezer:, youtube:, "
    "acoustid:, the library's own id (trk_…, or what follows it), the URI spotify:track:ID or "
    "deezer:track:ID, or a track's web address on Spotify, MusicBrainz, Apple Music, Deezer or "
    "YouTube."
)


class InvalidTrackIdError(ValueError):
    """The text is no track identifier; the message says why and names the accepted forms."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason} {FORMS}"


class Platform(StrEnum):
    """Who issued an identifier; the value is the canonical prefix."""

    SPOTIFY = "spotify"
    MBID = "mbid"
    ISRC = "isrc"
    APPLE = "apple"
    DEEZER = "deezer"
    YOUTUBE = "youtube"
    ACOUSTID = "acoustid"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class TrackId:
    """One identifier of one platform.

    Attributes:
        value: Normalised: MBIDs lower-case, ISRCs upper-case without hyphens, numbers without
            leading zeros.
        country: The storefront of an Apple address, two lower-case letters.
    """

    platform: Platform
    value: str
    country: str | None = None

    def __str__(self) -> str:
        return f"{self.platform}:{self.value}"


@dataclass(frozen=True, slots=True)
class AmbiguousTrackId:
    """Bare digits: an Apple Music id or a Deezer id; only a look-up can tell which."""

    value: str

    @property
    def apple(self) -> TrackId:
        """The digits as an Apple Music id."""
        return TrackId(Platform.APPLE, self.value)

    @property
    def deezer(self) -> TrackId:
        """The digits as a Deezer id."""
        return TrackId(Platform.DEEZER, self.value)

    def __str__(self) -> str:
        return self.value


# The patterns and the order they are tried in are those of the platforms' published addresses.
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_BARE_UUID = re.compile(r"[0-9a-fA-F]{32}")
_VALUES = {
    Platform.SPOTIFY: re.compile(r"[0-9A-Za-z]{22}"),
    Platform.MBID: re.compile(_UUID),
    Platform.ISRC: re.compile(r"[A-Z]{2}[A-Z0-9]{3}[0-9]{7}"),
    Platform.APPLE: re.compile(r"[0-9]{5,12}"),
    Platform.DEEZER: re.compile(r"[0-9]{1,12}"),
    Platform.YOUTUBE: re.compile(r"[0-9A-Za-z_-]{11}"),
    Platform.ACOUSTID: re.compile(_UUID),
    Platform.LIBRARY: re.compile(rf"{LIBRARY_PREFIX}[{ALPHABET}]{{{LENGTH}}}"),
}
_PREFIXES = {
    "spotify": Platform.SPOTIFY,
    "mbid": Platform.MBID,
    "musicbrainz": Platform.MBID,
    "mb": Platform.MBID,
    "isrc": Platform.ISRC,
    "apple": Platform.APPLE,
    "applemusic": Platform.APPLE,
    "itunes": Platform.APPLE,
    "deezer": Platform.DEEZER,
    "youtube": Platform.YOUTUBE,
    "yt": Platform.YOUTUBE,
    "youtubemusic": Platform.YOUTUBE,
    "acoustid": Platform.ACOUSTID,
    "library": Platform.LIBRARY,
}
_TAIL = r"(?:[/?#].*)?"
_URLS = [
    (Platform.SPOTIFY, r"(?i:(?:open|play|embed)\.spotify\.com)"
     r"/(?:intl-[A-Za-z]{2}(?:-[A-Za-z]{2})?/)?(?:embed/)?track/(?P<id>[0-9A-Za-z]{22})" + _TAIL),
    (Platform.MBID, r"(?i:(?:beta\.|www\.)?musicbrainz\.org)"
     rf"/recording/(?P<id>{_UUID})" + _TAIL),
    (Platform.APPLE, r"(?i:(?:geo\.)?(?:music|itunes)\.apple\.com)/(?:(?P<country>[A-Za-z]{2})/)?"
     r"album/(?:[^/?#]+/)?(?:id)?[0-9]+\?(?:[^#]*&)?i=(?P<id>[0-9]{5,12})(?:[&#].*)?"),
    (Platform.APPLE, r"(?i:(?:geo\.)?(?:music|itunes|embed\.music)\.apple\.com)"
     r"/(?:(?P<country>[A-Za-z]{2})/)?song/(?:[^/?#]+/)?(?P<id>[0-9]{5,12})(?:[?#].*)?"),
    (Platform.DEEZER, r"(?i:(?:www\.)?deezer\.com)/(?:[a-z]{2}(?:-[a-z]{2})?/)?"
     r"track/(?P<id>[0-9]{1,12})" + _TAIL),
    (Platform.YOUTUBE, r"(?i:(?:www\.|m\.|music\.)?(?:youtube(?:-nocookie)?\.com"
     r"/(?:watch\?(?:[^#]*&)?v=|embed/|shorts/|live/|v/)|youtu\.be/))"
     r"(?P<id>[0-9A-Za-z_-]{11})(?:[?&/#].*)?"),
]  # fmt: skip
_URL_PATTERNS = [
    (platform, re.compile(r"(?:(?i:https?)://)?" + pattern, re.ASCII | re.DOTALL))
    for platform, pattern in _URLS
]
_KNOWN_HOST = re.compile(
    r"(?i:(?:[a-z]+\.)*(?:spotify\.com|spotify\.link|musicbrainz\.org|apple\.com|deezer\.com"
    r"|deezer\.page\.link|youtube(?:-nocookie)?\.com|youtu\.be))(?:[/?#].*)?",
    re.ASCII | re.DOTALL,
)
_SHORT_LINK = re.compile(
    r"(?:(?i:https?)://)?(?i:spotify\.link|link\.deezer\.com|deezer\.page\.link)(?:[/?#].*)?",
    re.ASCII | re.DOTALL,
)
_OWN = re.compile(r"(?i:afa):(?:(?i:track):)?(?P<id>.+)", re.ASCII)
_URI = re.compile(r"(?i:spotify|deezer):(?i:track):(?P<id>[^:]+)", re.ASCII)


def parse_track_id(text: str) -> TrackId | AmbiguousTrackId:
    """Parse an identifier in any supported form.

    Args:
        text: An id, a prefixed id, a platform's URI or web address; spaces around it are ignored.

    Returns:
        The identifier, or `AmbiguousTrackId` for bare digits that both Apple and Deezer may use.

    Raises:
        InvalidTrackIdError: None of the forms.
    """
    text = text.strip()
    if not text:
        raise InvalidTrackIdError("The track identifier is empty.")
    if len(text) > MAX_LENGTH:
        raise InvalidTrackIdError("The track identifier is too long.")
    own = _OWN.fullmatch(text)
    if own is not None:
        text = own["id"]
        if _OWN.fullmatch(text):
            raise InvalidTrackIdError("An afa:track: URI cannot hold another.")
    if "://" in text or _KNOWN_HOST.fullmatch(text):
        return _parse_url(text)
    if not text.isascii():
        raise InvalidTrackIdError("The track identifier has letters that no platform uses.")
    return _parse_prefixed(text) if ":" in text else _parse_bare(text)


def readings(text: str) -> list[TrackId]:
    """Return the identifiers that a text may be: one, or two for bare digits.

    Raises:
        InvalidTrackIdError: None of the forms.
    """
    track_id = parse_track_id(text)
    if isinstance(track_id, AmbiguousTrackId):
        return [track_id.apple, track_id.deezer]
    return [track_id]


def track_id_of(platform: Platform, text: str) -> TrackId:
    """Validate and normalise an id whose platform is known.

    Raises:
        InvalidTrackIdError: It is not an id of that platform.
    """
    value = normalise_isrc(text) if platform is Platform.ISRC else text
    if platform in (Platform.MBID, Platform.ACOUSTID) and _BARE_UUID.fullmatch(text):
        value = str(UUID(text))
    if not _VALUES[platform].fullmatch(value):
        raise InvalidTrackIdError(f"That is not a valid {platform.value} identifier.")
    if platform in (Platform.MBID, Platform.ACOUSTID):
        value = value.lower()
    elif platform in (Platform.APPLE, Platform.DEEZER):
        value = value.lstrip("0")
        if not _VALUES[platform].fullmatch(value):
            raise InvalidTrackIdError(f"That is not a valid {platform.value} identifier.")
    return TrackId(platform, value)


def normalise_isrc(text: str) -> str:
    """Upper-case an ISRC and drop hyphens, spaces and a leading ``ISRC``, without validation."""
    if not text.isascii():
        return text
    code = text.upper().replace("-", "").replace(" ", "")
    if len(code) > 12 and code.startswith("ISRC"):
        code = code.removeprefix("ISRC").removeprefix(":")
    return code


def _parse_url(text: str) -> TrackId:
    if _SHORT_LINK.fullmatch(text):
        raise InvalidTrackIdError("Short links hide the identifier: open it, use the full address.")
    for platform, pattern in _URL_PATTERNS:
        match = pattern.fullmatch(text)
        if match is not None:
            found = track_id_of(platform, match["id"])
            country = match.groupdict().get("country")
            return TrackId(platform, found.value, country.lower() if country else None)
    fault = "That address does not name a track on a supported platform."
    if "?" not in text:
        fault += " In a path its ? is written %3F, and = as %3D."
    raise InvalidTrackIdError(fault)


def _parse_prefixed(text: str) -> TrackId:
    prefix, _, rest = text.partition(":")
    # `/v1/resolve` names them `spotify_id` and so on.
    name = prefix.strip().lower().replace("-", "_").removesuffix("_id").replace("_", "")
    platform = _PREFIXES.get(name)
    if platform is None:
        raise InvalidTrackIdError("The part before the colon is not a supported platform.")
    uri = _URI.fullmatch(text)
    return track_id_of(platform, uri["id"] if uri is not None else rest.strip())


def _parse_bare(text: str) -> TrackId | AmbiguousTrackId:
    if _VALUES[Platform.MBID].fullmatch(text) or _BARE_UUID.fullmatch(text):
        return track_id_of(Platform.MBID, text)
    if _VALUES[Platform.ISRC].fullmatch(normalise_isrc(text)):
        return track_id_of(Platform.ISRC, text)
    if _VALUES[Platform.SPOTIFY].fullmatch(text):
        return TrackId(Platform.SPOTIFY, text)
    if _VALUES[Platform.DEEZER].fullmatch(text):
        deezer = track_id_of(Platform.DEEZER, text)
        if _VALUES[Platform.APPLE].fullmatch(deezer.value):
            return AmbiguousTrackId(deezer.value)
        return deezer
    if _VALUES[Platform.YOUTUBE].fullmatch(text):
        return TrackId(Platform.YOUTUBE, text)
    own = LIBRARY_PREFIX + text.removeprefix(LIBRARY_PREFIX)
    if _VALUES[Platform.LIBRARY].fullmatch(own):
        return TrackId(Platform.LIBRARY, own)
    raise InvalidTrackIdError("That is not a track identifier.")
