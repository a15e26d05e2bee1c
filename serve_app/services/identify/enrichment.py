"""Adds what other sources know to an identified track: identifiers, release facts, tempo and key.

Everything is optional. A source that is down or slow, or has no answer, leaves its fields as they
are; the enrichment itself never fails and never exceeds its time budget.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pipelines.analysis.tonality.notes import camelot, pitch_class
from serve_app.domain.identification import Recognition, ReleaseFacts, ReleaseIds, TempoAndKey
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import AmbiguousIdError, ProviderError, ProvidersFailedError
from serve_app.providers.identities.resolution import Resolution
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.recognisers.coverart import CoverArtArchive
from serve_app.providers.recognisers.discogs import Discogs
from serve_app.providers.recognisers.releases import MusicBrainzReleases

logger = logging.getLogger(__name__)

BUDGET_S = 4.0
"""Seconds at most; the rest of the request's whole budget may be less."""

T = TypeVar("T")
Measure = Callable[[], Awaitable[TempoAndKey | None]]
CachedMeasure = Callable[[TrackIdentity], Awaitable[TempoAndKey | None]]


@dataclass(frozen=True, slots=True)
class Enrichment:
    """What is known about an identified track besides its names.

    Attributes:
        bpm: None when unknown; never 0.
        key: Pitch class name; whether it is major or minor shows in ``camelot``.
        failures: Source name to why it could not answer.
    """

    bpm: float | None = None
    key: str | None = None
    camelot: str | None = None
    label: str | None = None
    genre: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    spotify_id: str | None = None
    apple_id: str | None = None
    deezer_id: str | None = None
    youtube_id: str | None = None
    artwork_url: str | None = None
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Enriched:
    """A track's identity as far as it is known now, and its enrichment."""

    identity: TrackIdentity
    enrichment: Enrichment


@dataclass(slots=True)
class _Findings:
    """What sources have returned so far; read whenever the time is up."""

    identity: TrackIdentity
    release: ReleaseIds | None = None
    facts: ReleaseFacts = field(default_factory=ReleaseFacts)
    cached: TempoAndKey | None = None
    measured: TempoAndKey | None = None
    artwork_url: str | None = None
    failures: dict[str, str] = field(default_factory=dict)


class EnrichmentService:
    """Enriches identified tracks from the sources that it is given; each may be missing."""

    def __init__(
        self,
        resolver: Resolver | None = None,
        discography: Discogs | None = None,
        releases: MusicBrainzReleases | None = None,
        cover_art: CoverArtArchive | None = None,
        cached_measure: CachedMeasure | None = None,
        budget_s: float = BUDGET_S,
    ) -> None:
        """Use these sources.

        Args:
            resolver: The catalog and identity providers.
            discography: Label, genres and styles.
            releases: Finds the release that a recording is on, for its cover.
            cover_art: Front covers.
            cached_measure: Tempo and key of a track that was analysed before.
            budget_s: Seconds for all together, at most.
        """
        self._resolver = resolver
        self._discography = discography
        self._releases = releases
        self._cover_art = cover_art
        self._cached_measure = cached_measure
        self._budget_s = budget_s

    async def enrich(
        self,
        recognition: Recognition,
        measure: Measure | None = None,
        left_s: float | None = None,
    ) -> Enriched:
        """Enrich a recognised track.

        Args:
            recognition: What was recognised.
            measure: Measures tempo and key of the clip itself, if nothing better is known.
            left_s: Seconds left of the request's budget.
        """
        findings = _Findings(recognition.identity, recognition.release)
        budget_s = self._budget_s if left_s is None else max(0.0, min(self._budget_s, left_s))
        tasks = {
            asyncio.create_task(self._identify_further(findings), name="identity"),
            asyncio.create_task(self._find_facts(findings), name="discography"),
            asyncio.create_task(self._find_measure(findings, measure), name="analysis"),
        }
        try:
            done, late = await asyncio.wait(tasks, timeout=budget_s)
        finally:
            for task in tasks:
                task.cancel()
        for task in late:
            findings.failures.setdefault(task.get_name(), "too slow")
        await asyncio.gather(*late, return_exceptions=True)
        for task in done:
            task.result()  # a bug of ours must not be hidden
        return Enriched(findings.identity, _enrichment(findings))

    async def _identify_further(self, findings: _Findings) -> None:
        """Complete the identity; then, with all that is known, find a cover if none was found."""
        if self._resolver is not None:
            call = resolved(self._resolver, findings.identity)
            found = await _guarded(findings, "identity", call)
            if found is not None:
                findings.identity = findings.identity.filled_from(found.identity)
        await self._find_cover(findings)

    async def _find_cover(self, findings: _Findings) -> None:
        if self._cover_art is None or findings.identity.artwork_url is not None:
            return
        release, mbid = findings.release, findings.identity.mbid
        if release is None and mbid is not None and self._releases is not None:
            release = await _guarded(findings, "musicbrainz", self._releases.release_of(mbid))
        if release is not None:
            findings.artwork_url = await _guarded(
                findings, "coverart", self._cover_art.front(release)
            )

    async def _find_facts(self, findings: _Findings) -> None:
        if self._discography is None:
            return
        facts = await _guarded(findings, "discography", self._discography.facts(findings.identity))
        if facts is not None:
            findings.facts = facts

    async def _find_measure(self, findings: _Findings, measure: Measure | None) -> None:
        """Use an earlier analysis, else measure the clip unless a catalog has tempo and key."""
        if self._cached_measure is not None:
            findings.cached = await _guarded(
                findings, "features", self._cached_measure(findings.identity)
            )
        identity = findings.identity
        is_known = findings.cached is not None or (
            identity.tempo is not None and identity.key is not None
        )
        if not is_known and measure is not None:
            findings.measured = await _guarded(findings, "analysis", measure())


async def _guarded(findings: _Findings, source: str, call: Awaitable[T]) -> T | None:
    """Await a source; its failure is noted but does not fail the request."""
    try:
        return await call
    except ProvidersFailedError as error:
        findings.failures.update(error.failures)
    except ProviderError as error:
        findings.failures[source] = error.problem
    except AmbiguousIdError as error:
        findings.failures[source] = str(error)
    logger.warning("enrichment source failed", extra={"provider": source})
    return None


async def resolved(resolver: Resolver, identity: TrackIdentity) -> Resolution | None:
    """Resolve a track by its best identifier, else by name.

    Raises:
        ProvidersFailedError: Nothing was found, but a provider could not answer.
    """
    track_id = next(identity.ids(), None)
    if track_id is not None:
        found = await resolver.resolve(track_id)
        if found is not None:
            return found
    if identity.artist and identity.title:
        return await resolver.search(identity.artist, identity.title)
    return None


def _enrichment(findings: _Findings) -> Enrichment:
    identity, facts = findings.identity, findings.facts
    tempo, key, mode = _tempo_and_key(findings)
    return Enrichment(
        bpm=round(tempo, 3) if tempo else None,
        key=None if key is None else pitch_class(key),
        camelot=camelot(key, mode) or None if key is not None and mode is not None else None,
        label=facts.label or identity.label,
        genre=facts.genres or identity.genres,
        styles=facts.styles,
        spotify_id=identity.spotify_id,
        apple_id=identity.apple_id,
        deezer_id=identity.deezer_id,
        youtube_id=identity.youtube_id,
        artwork_url=identity.artwork_url or findings.artwork_url,
        failures=findings.failures,
    )


def _tempo_and_key(findings: _Findings) -> tuple[float | None, int | None, int | None]:
    """Choose the first of: a curator's values, our analysis, the catalog's, the clip's."""
    identity = findings.identity
    stated = (identity.tempo, identity.key, identity.mode)
    if identity.is_verified:
        return stated
    for found in (findings.cached, findings.measured):
        if found is not None:
            return found.tempo, found.key, found.mode
        if identity.tempo is not None or identity.key is not None:
            return stated
    return stated
