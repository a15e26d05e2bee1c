"""What identity providers, audio sources and rate limiters look like, and how they fail.

ProviderError
├── ProviderUnavailableError   no connection, too slow, 5xx, or a body that makes no sense
├── ProviderBusyError          its rate limit is reached; ``retry_after_s`` says how long
├── ProviderRefusedError       wrong or missing credentials, blocked, quota used up
└── ProviderSkippedError       not asked: the circuit is open, or the wait would be too long
ProvidersFailedError           nothing found, and some providers could not answer
AmbiguousIdError               one number names two tracks
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import AmbiguousTrackId, Platform, TrackId


class ProviderError(Exception):
    """A provider could not answer; says nothing about whether the track exists."""

    def __init__(self, provider: str, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(provider, problem, retry_after_s)
        self.provider = provider
        self.problem = problem
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.provider}: {self.problem}"


class ProviderUnavailableError(ProviderError):
    """No connection, too slow, a server error, or an answer that makes no sense."""


class ProviderBusyError(ProviderError):
    """The provider says that we ask too often."""


class ProviderRefusedError(ProviderError):
    """Credentials, permission or quota: asking again does not help."""


class ProviderSkippedError(ProviderError):
    """The provider was not asked: ``retry_after_s`` says for how long, None for longer than that.

    Its circuit is open, its turn would come too late, or the month's calls are used up.
    """


class ProvidersFailedError(Exception):
    """Nothing was found, but not every provider could answer, so it may exist all the same."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__(dict(failures))
        self.failures = dict(failures)

    def __str__(self) -> str:
        return "; ".join(f"{name}: {problem}" for name, problem in self.failures.items())


class AmbiguousIdError(ValueError):
    """Apple Music and Deezer both have a track of that number, and they are not the same."""

    def __init__(self, track_id: AmbiguousTrackId) -> None:
        super().__init__(track_id)
        self.track_id = track_id

    def __str__(self) -> str:
        return (
            f"{self.track_id} names one track on Apple Music and another on Deezer: write "
            f"{self.track_id.apple} or {self.track_id.deezer}."
        )


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most ``n_calls`` in any window of ``window_s`` seconds."""

    n_calls: int
    window_s: float


class RateLimiter(Protocol):
    """Spreads calls so that all replicas together stay below a provider's limit."""

    async def acquire(self, provider: str, limit: RateLimit, max_wait_s: float) -> bool:
        """Wait for a turn; False, at once, when that would take longer than ``max_wait_s``."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderTerms:
    """What an operator should know before turning a provider on.

    Attributes:
        enabled_by: What turns it on: the settings' names, and what else it needs.
        terms: What the provider's terms allow, in one sentence.
    """

    enabled_by: str
    terms: str


@dataclass(frozen=True, slots=True)
class Match:
    """One answer to a search by name; ``score`` is 0.8 to 1, and 1 is an equal spelling."""

    identity: TrackIdentity
    score: float


class IdentityProvider(Protocol):
    """Knows tracks by identifier, by name, or both."""

    @property
    def name(self) -> str:
        """Short and stable: it appears in logs and ``afa status``."""
        ...

    @property
    def terms(self) -> ProviderTerms:
        """How it is turned on and what it may be used for."""
        ...

    @property
    def platforms(self) -> Sequence[Platform]:
        """The identifiers that `by_id` understands; `search` finds the first of them."""
        ...

    @property
    def can_search(self) -> bool:
        """Whether `search` finds anything at all."""
        ...

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """Return the track with that identifier, or None if the provider certainly has none.

        Raises:
            ProviderError: The provider could not answer.
        """
        ...

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """Return tracks with similar names (and lengths, if both are known), best first.

        Raises:
            ProviderError: The provider could not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class AudioLocation:
    """Where lawful audio of a track is.

    Attributes:
        url: ``https://…``, ``http://…`` or ``file:///…``. Web addresses must go through the guarded
            fetcher like any other.
        source: ``catalog``, ``jamendo`` or ``deezer_preview``.
        is_preview: Only an excerpt, so whole-track values (duration, sections) do not hold.
        is_transient: The address expires and the audio must not be kept.
        licence: The licence's address, when the source names one.
    """

    url: str
    source: str
    is_preview: bool = False
    is_transient: bool = False
    licence: str | None = None


class AudioSource(Protocol):
    """Finds audio that may be analysed."""

    @property
    def name(self) -> str:
        """Short and stable."""
        ...

    @property
    def terms(self) -> ProviderTerms:
        """How it is turned on and what it may be used for."""
        ...

    async def locate(self, identity: TrackIdentity) -> AudioLocation | None:
        """Return where the track's audio is, or None.

        Raises:
            ProviderError: The source could not answer.
        """
        ...
