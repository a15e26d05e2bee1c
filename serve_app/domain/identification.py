"""What identifying a recording needs from others, and what it returns."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderTerms


class Outcome(StrEnum):
    """What one service answered; the values are those of the API."""

    MATCH = "match"
    NO_MATCH = "no_match"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ReleaseIds:
    """The MusicBrainz release that a recording is on, and its group."""

    release_id: str | None = None
    group_id: str | None = None


@dataclass(frozen=True, slots=True)
class Recognition:
    """A track that a service recognised.

    Attributes:
        confidence: 0 to 100.
        release: What the service said about the release.
    """

    identity: TrackIdentity
    confidence: int
    release: ReleaseIds | None = None


class Recogniser(Protocol):
    """A service that recognises recordings."""

    @property
    def name(self) -> str:
        """Short and stable: a key of ``services_tried``."""
        ...

    @property
    def terms(self) -> ProviderTerms:
        """How to turn it on and what it may be used for."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long it may take; what is left of the whole budget may be less."""
        ...

    def accepts(self, clip: Clip) -> bool:
        """Return whether the service is of any use for such a recording."""
        ...

    async def recognise(self, clip: Clip) -> Recognition | None:
        """Return the track, or None if the service certainly does not know it.

        Raises:
            ProviderSkippedError: It was not asked.
            ProviderError: It could not answer.
        """
        ...


class SpendCap(Protocol):
    """Keeps the cost of billed calls within the operator's limit, across all replicas."""

    async def take(self, provider: str) -> bool:
        """Count one call; False, and not counted, if it would exceed this month's limit."""
        ...


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """What a discography knows about the release that a track is on."""

    label: str | None = None
    genres: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TempoAndKey:
    """Tempo and key of audio.

    Attributes:
        tempo: BPM; 0 when there is no beat.
        key: Pitch class, C = 0 … B = 11, or -1.
        mode: 1 major, 0 minor, -1 unknown.
    """

    tempo: float
    key: int
    mode: int
