"""Find music that sounds like other music, and a way from one track to another.

Invariant: vectors of two models are never compared, no recording is returned twice, and nobody sees
another account's tracks. A caller who gets no answer pays nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from serve_app.domain.credits import Balance
from serve_app.domain.errors import BadRequestError, TrackNotFoundError
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.library.query import TrackQuery
from serve_app.library.track import LibraryTrack
from serve_app.services.audio.assets import AssetsService
from serve_app.services.charging import Charging
from serve_app.services.jobs.heard import heard_track
from serve_app.services.jobs.submit import AnalysisService
from serve_app.services.lookup.lookup import LookupService
from serve_app.services.similar.neighbours import LibraryNeighbours
from serve_app.services.similar.search import Search, Similar
from serve_app.services.similar.wanted import Seed, Wanted
from serve_app.services.similar.words import Words
from serve_app.services.simulation.neighbours import SimulatedNeighbours, SimulatedWords

ANY = TrackQuery()

NO_ANALYSIS = (
    "the library has no embedding of {name}: it is silent, or not analysed; then add it with "
    "POST /v1/library, wait for its job, and ask again"
)
NO_EMBEDDING = (
    "the result of {name} has no embedding: it is silent, or its job has not ended, or was "
    "submitted without include_embedding=true"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found, by which model, and its cost."""

    model: str
    items: list[Similar]
    credits_used: int
    balance: Balance


class SimilarService:
    """Searches for one caller at a time."""

    def __init__(
        self,
        neighbours: LibraryNeighbours | SimulatedNeighbours,
        words: Words | SimulatedWords,
        lookup: LookupService,
        assets: AssetsService,
        analysis: AnalysisService,
        charging: Charging,
        prices: Prices,
    ) -> None:
        self._neighbours = neighbours
        self._search = Search(neighbours)
        self._words = words
        self._lookup = lookup
        self._assets = assets
        self._analysis = analysis
        self._charging = charging
        self._prices = prices

    async def similar(self, caller: Caller, wanted: Wanted, request_id: str) -> Found:
        """Find the tracks that are most like what is wanted.

        Raises:
            TrackNotFoundError: A seed is not known, or has no analysis.
            AssetNotFoundError: The asset expired, never existed, or is another owner's.
            JobNotFoundError: Likewise for the job.
            BadRequestError: No such model, or it has no vector of a seed, or a seed has no key.
            InsufficientCreditsError: The balance does not cover the cost.
        """
        seeds = [await self._track(caller, seed) for seed in wanted.seeds]
        unlike = [await self._track(caller, seed) for seed in wanted.unlike]

        def search() -> tuple[str, list[Similar]]:
            return self._search.similar(caller.owner, wanted, seeds, unlike)

        return await self._paid(caller, self._prices.similar, request_id, search)

    async def described(self, caller: Caller, text: str, wanted: Wanted, request_id: str) -> Found:
        """Find the tracks that sound most like a description.

        Raises:
            BadRequestError: The model does not read text, or the library has no vectors of it.
            InsufficientCreditsError: The balance does not cover the cost.
            ServiceUnavailableError: No model could read the text now.
        """
        model, vector = await self._words.vector(text, wanted.model)
        said = replace(wanted, vector=vector, model=model)
        return await self.similar(caller, said, request_id)

    async def path(
        self,
        caller: Caller,
        ends: tuple[str, str],
        n: int,
        model: str | None,
        request_id: str,
        query: TrackQuery = ANY,
    ) -> Found:
        """Walk from one track to another over ``n`` tracks that match a query; see `similar`."""
        tracks = [await self._track(caller, Seed(track=end)) for end in ends]

        def search() -> tuple[str, list[Similar]]:
            return self._search.walk(caller.owner, tracks, n, model, query)

        return await self._paid(caller, self._prices.path, request_id, search)

    async def _paid(
        self,
        caller: Caller,
        price: int,
        request_id: str,
        search: Callable[[], tuple[str, list[Similar]]],
    ) -> Found:
        async with self._charging.hold(caller, price, request_id) as hold:
            model, items = await asyncio.to_thread(search)
        return Found(model, items, hold.charged, hold.balance)

    async def _track(self, caller: Caller, seed: Seed) -> LibraryTrack:
        """Return the library's track of a seed, which has an analysis; for a job, its result."""
        if seed.job_id is not None:
            return await self._heard_by(caller, seed.job_id)
        if seed.asset_id is not None:
            asset = await self._assets.get(caller, seed.asset_id)
            track = await asyncio.to_thread(self._neighbours.of_audio, caller.owner, asset.sha256)
        else:
            identity = await self._lookup.identify(caller, seed.track or "")
            track = await asyncio.to_thread(self._neighbours.of_identity, caller.owner, identity)
        if track is None or not track.embeddings:
            raise TrackNotFoundError(NO_ANALYSIS.format(name=seed.name))
        return track

    async def _heard_by(self, caller: Caller, job_id: str) -> LibraryTrack:
        job = await self._analysis.get_job(caller, job_id)
        features = self._analysis.features_of(job)
        if features is None or not any(features.embedding):
            raise BadRequestError(NO_EMBEDDING.format(name=job_id))
        return heard_track(job_id, features, job.finished_at or job.created_at)
