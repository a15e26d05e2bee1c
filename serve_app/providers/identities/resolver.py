"""Finds all that is known about a track from one identifier, or from an artist and a title.

The library answers first, then the catalog. For what they lack the providers are asked: each one
about every identifier that it understands, round by round, since an answer may bring new
identifiers (the ISRC is the hub); then by name if identifiers lead no further. All this has one
time budget; what is known at its end is the answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    AmbiguousIdError,
    IdentityProvider,
    ProviderError,
    ProvidersFailedError,
)
from serve_app.domain.track_ids import AmbiguousTrackId, Platform, TrackId
from serve_app.library.library import Library, LibraryHit
from serve_app.library.query import TrackQuery
from serve_app.library.spelling import ranked, text_key
from serve_app.library.track import OPERATOR
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.dumps.acousticbrainz import SOURCE as SUBMITTED
from serve_app.providers.identities.memo import Memo
from serve_app.providers.identities.resolution import Resolution, is_same_name

logger = logging.getLogger(__name__)

BUDGET_S = 8.0
MAX_ROUNDS = 4


class Resolver:
    """Resolves tracks through the library, the catalog and the enabled providers."""

    def __init__(
        self,
        catalog: Catalog,
        providers: Sequence[IdentityProvider],
        memo: Memo,
        budget_s: float = BUDGET_S,
        library: Library | None = None,
    ) -> None:
        self._library = library
        self._catalog = catalog
        self._providers = list(providers)
        self._memo = memo
        self._budget_s = budget_s

    def knows(self, owner: str) -> str:
        """Return where a track was looked for, and what to do if it was not found."""
        n_library = 0 if self._library is None else self._library.count(visible_to(owner))
        names = ", ".join(provider.name for provider in self._providers)
        providers = f"providers that are on: {names}" if names else "no provider is on"
        return (
            f"not in this server's library (tracks: {n_library:,}) or catalog "
            f"({self._catalog.n_tracks:,}); {providers}. Upload the audio with its id: POST "
            "/v1/assets/upload?track=ID. The operator can add music (`afa scan FOLDER`), import a "
            "catalog (`afa catalog import`) or turn providers on (AFA_PROVIDERS)"
        )

    def at_hand(
        self, track_id: TrackId | AmbiguousTrackId, owner: str = OPERATOR
    ) -> TrackIdentity | None:
        """Return the track of an identifier, if library and catalog alone can decide."""
        if isinstance(track_id, AmbiguousTrackId):
            return None
        local = self._local(track_id, owner)
        return local if local is not None and local.artist and local.title else None

    def _local(self, track_id: TrackId, owner: str) -> TrackIdentity | None:
        """Return a track from the library (the owner's before the operator's) and the catalog."""
        found = [] if self._library is None else self._library.by_id(track_id, visible_to(owner))
        if not found:
            return self._catalog.by_id(track_id)
        identity = best_of(found)
        if identity.artist and identity.title:
            return identity
        known = self._catalog.by_id(track_id)
        return identity if known is None else identity.filled_from(known)

    async def resolve(
        self, track_id: TrackId | AmbiguousTrackId, owner: str = OPERATOR
    ) -> Resolution | None:
        """Return all that is known about an identifier's track; None if no source knows it.

        Args:
            track_id: The identifier.
            owner: Whose tracks of the library may be used in addition to the operator's.

        Raises:
            AmbiguousIdError: Bare digits name different tracks on Apple Music and Deezer.
            ProvidersFailedError: Nothing was found, but a provider could not answer.
        """
        if isinstance(track_id, AmbiguousTrackId):
            return await self._resolve_number(track_id, owner)
        local = self._local(track_id, owner)
        if local is not None and local.artist and local.title:
            return Resolution(local, is_empty=False)
        resolution = Resolution() if local is None else Resolution(local, is_empty=False)
        await self._within_budget(resolution, lambda: self._expand(resolution, [track_id]))
        return _answer(resolution)

    async def search(self, artist: str, title: str, owner: str = OPERATOR) -> Resolution | None:
        """Return the track of that artist and title; None if no source knows it.

        Raises:
            ProvidersFailedError: Nothing was found, but a provider could not answer.
        """
        if self._library is not None:
            named = await asyncio.to_thread(self._library.named, artist, title, visible_to(owner))
            if named:
                return Resolution(best_of(named), is_empty=False)
        matches = self._catalog.find_exact(artist, title, limit=1)
        if not matches:
            matches = await asyncio.to_thread(self._catalog.find, artist, title, 1)
        if matches:
            return Resolution(matches[0].identity, is_empty=False)
        resolution = Resolution()

        async def ask() -> None:
            await self._ask_by_name(resolution, artist, title)
            if not resolution.is_empty:
                await self._expand(resolution, [])

        await self._within_budget(resolution, ask)
        return _answer(resolution)

    async def find_text(
        self, text: str, artist: str, title: str, limit: int, owner: str = OPERATOR
    ) -> list[TrackIdentity]:
        """Return tracks by words in their names, the library's before the catalog's, best first."""
        return await asyncio.to_thread(self._find_text, text, artist, title, limit, owner)

    def _find_text(
        self, text: str, artist: str, title: str, limit: int, owner: str
    ) -> list[TrackIdentity]:
        query = TrackQuery(text=text, artist=artist, title=title)
        found: list[TrackIdentity] = []
        if self._library is not None and query.has_conditions:
            items = self._library.page(query, visible_to(owner), limit).items
            found = [replace(item.identity, library_id=item.track_id) for item in items]
        known = {track_id for one in found for track_id in one.ids()}
        found += [
            one
            for one in self._catalog.find_text(text, artist, title, limit + len(found))
            if known.isdisjoint(one.ids())
        ]
        return found[:limit]

    async def _resolve_number(self, number: AmbiguousTrackId, owner: str) -> Resolution | None:
        """Resolve bare digits: by library and catalog if they know a reading, else by providers."""
        readings = (number.deezer, number.apple)
        local = [found for one in readings if (found := self._local(one, owner)) is not None]
        if local:
            return Resolution(_only(number, local), is_empty=False)
        resolution = Resolution()
        calls = [(provider, one) for one in readings for provider in self._home(one)]

        async def ask() -> None:
            answers = await asyncio.gather(*(self._ask(resolution, *call) for call in calls))
            found = [identity for identity in answers if identity is not None]
            if resolution.failures or not found:
                return
            _only(number, found)
            for identity in found:
                resolution.add_exact(identity)
            known = [one for (_, one), answer in zip(calls, answers, strict=True) if answer]
            await self._expand(resolution, known)

        await self._within_budget(resolution, ask)
        return _answer(resolution)

    def _home(self, track_id: TrackId) -> list[IdentityProvider]:
        """Return the platform's own provider, or else all that understand its identifiers."""
        own = [one for one in self._providers if one.platforms[0] is track_id.platform]
        return own or [one for one in self._providers if track_id.platform in one.platforms]

    async def _within_budget(
        self, resolution: Resolution, work: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            async with asyncio.timeout(self._budget_s):
                await work()
        except TimeoutError:
            resolution.failures["all"] = f"no more time after {self._budget_s:g} s"

    async def _expand(self, resolution: Resolution, start: Sequence[TrackId]) -> None:
        """Follow identifiers, then names, then the identifiers found by name."""
        progress = _Progress()
        await self._follow_ids(resolution, start, progress)
        identity = resolution.identity
        if identity.artist and identity.title:
            await self._ask_by_name(resolution, identity.artist, identity.title)
            await self._follow_ids(resolution, [], progress)

    async def _follow_ids(
        self, resolution: Resolution, start: Sequence[TrackId], progress: "_Progress"
    ) -> None:
        """Ask each provider for one identifier at a time until it knows the track."""
        for _ in range(MAX_ROUNDS):
            ids = [*start, *resolution.identity.ids()]
            calls = [
                (provider, track_id)
                for provider in self._providers
                if (track_id := progress.next_for(provider, ids)) is not None
            ]
            if not calls:
                return
            answers = await asyncio.gather(*(self._ask(resolution, *call) for call in calls))
            for (provider, _), found in zip(calls, answers, strict=True):
                if found is not None:
                    progress.answered.add(provider.name)
                    resolution.add_exact(found)

    async def _ask_by_name(self, resolution: Resolution, artist: str, title: str) -> None:
        """Search by name on each platform whose identifier is still unknown."""
        wanted: dict[Platform, list[IdentityProvider]] = {}
        for provider in self._providers:
            home = provider.platforms[0]
            if provider.can_search and resolution.identity.id_of(home) is None:
                wanted.setdefault(home, []).append(provider)
        duration_s = resolution.identity.duration_s
        answers = await asyncio.gather(
            *(
                self._first_match(resolution, providers, artist, title, duration_s)
                for providers in wanted.values()
            )
        )
        for answer in answers:
            if answer is not None:
                resolution.add_named(answer)

    async def _first_match(
        self,
        resolution: Resolution,
        providers: list[IdentityProvider],
        artist: str,
        title: str,
        duration_s: float | None,
    ) -> TrackIdentity | None:
        """Search one provider after another until one knows the name."""
        for provider in providers:

            async def search(provider: IdentityProvider = provider) -> TrackIdentity | None:
                matches = await provider.search(artist, title, duration_s)
                return matches[0].identity if matches else None

            length = "" if duration_s is None else f"{duration_s:.0f}"
            key = f"{provider.name}:name:{text_key(artist, title)}:{length}"
            found = await self._guarded(resolution, provider, key, search)
            matches = ranked([found], artist, title) if found else []
            if matches:
                return matches[0].identity
        return None

    async def _ask(
        self, resolution: Resolution, provider: IdentityProvider, track_id: TrackId
    ) -> TrackIdentity | None:
        key = f"{provider.name}:{track_id}:{track_id.country or ''}"
        return await self._guarded(resolution, provider, key, lambda: provider.by_id(track_id))

    async def _guarded(
        self,
        resolution: Resolution,
        provider: IdentityProvider,
        key: str,
        ask: Callable[[], Awaitable[TrackIdentity | None]],
    ) -> TrackIdentity | None:
        """Ask through the memo; a provider's failure is noted but does not fail the request."""
        try:
            return await self._memo.remember(key, ask)
        except ProviderError as error:
            logger.warning("provider failed", extra={"provider": provider.name})
            resolution.failures[provider.name] = error.problem
            return None


@dataclass(slots=True)
class _Progress:
    """Who was asked for what, so that no provider is asked twice or more than is useful."""

    asked: set[tuple[str, str]] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)

    def next_for(self, provider: IdentityProvider, ids: Sequence[TrackId]) -> TrackId | None:
        """Return the next identifier to ask a provider for, its own kind first; None if done."""
        if provider.name in self.answered:
            return None
        for platform in provider.platforms:
            for track_id in ids:
                call = (provider.name, str(track_id))
                if track_id.platform is platform and call not in self.asked:
                    self.asked.add(call)
                    return track_id
        return None


def visible_to(owner: str) -> tuple[str, str]:
    """Return the owners whose tracks an owner's keys can see."""
    return owner, OPERATOR


def best_of(hits: Sequence[LibraryHit]) -> TrackIdentity:
    """Return the owner's first track, else the first; a merely submitted one comes last."""
    hit = min(hits, key=lambda one: (one.identity.source == SUBMITTED, one.owner == OPERATOR))
    return replace(hit.identity, library_id=hit.track_id)


def _only(number: AmbiguousTrackId, found: list[TrackIdentity]) -> TrackIdentity:
    """Return the one track that was found, or both as one if they are the same recording.

    Raises:
        AmbiguousIdError: They are different recordings.
    """
    identity = found[0]
    for other in found[1:]:
        same_isrc = identity.isrc is not None and identity.isrc == other.isrc
        if not same_isrc and not is_same_name(identity, other):
            raise AmbiguousIdError(number)
        identity = identity.filled_from(other)
    return identity


def _answer(resolution: Resolution) -> Resolution | None:
    if not resolution.is_empty:
        return resolution
    if resolution.failures:
        raise ProvidersFailedError(resolution.failures)
    return None
