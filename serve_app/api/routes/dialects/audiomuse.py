"""Routes in AudioMuse-AI's shape, so that its plugins for media servers ask this server instead.

They lie at ``/api`` because the plugin for Jellyfin drops the path of the address it is given.

References:
    https://github.com/NeptuneHub/AudioMuse-AI (the server), AudioMuse-AI-NV-plugin (Navidrome),
    audiomuse-ai-plugin (Jellyfin), CDrummond/lms-audiomuse-mixer (Lyrion).
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Reader
from serve_app.api.door.request import Offered, Services, error_responses, request_id
from serve_app.api.wire.dialects.audiomuse import (
    MAX_ARTISTS,
    MAX_ITEMS,
    AlchemyRequest,
    Item,
    ItemId,
    ItemPath,
    ItemResults,
    N,
    SimilarArtist,
    SimilarItem,
    item_body,
    similar_artists,
    similar_items,
)
from serve_app.api.wire.forms import PLAIN
from serve_app.api.wire.meta import meta_of
from serve_app.api.wire.similar import MAX_PATH, MAX_SEEDS
from serve_app.domain.errors import BadRequestError
from serve_app.library.query import TrackQuery
from serve_app.services.similar.similar import Found
from serve_app.services.similar.wanted import Seed, Wanted

router = APIRouter(prefix="/api", tags=["AudioMuse-compatible"], route_class=IdempotentRoute)

ERRORS = error_responses(400, 401, 402, 404, 429, 500, 503)

Server = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        description="Name of the media server, if several are linked.",
    ),
]
Words = Annotated[str, Query(max_length=500)]


def tell_cost(request: Request, found: Found) -> None:
    """Say in the headers what an answer cost; the shape has no place for it."""
    meta_of(request, "bypass", found.credits_used, found.balance.remaining)


@router.get(
    "/similar_tracks",
    response_model=list[SimilarItem],
    responses=ERRORS,
    summary="Tracks that sound like a track of a media server",
)
async def similar_tracks(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    item_id: Annotated[
        ItemId | None, Query(description="Id of a track at the media server.")
    ] = None,
    title: Annotated[Words, Query(description="With `artist`, instead of `item_id`.")] = "",
    artist: Annotated[Words, Query(description="With `title`, instead of `item_id`.")] = "",
    n: Annotated[N, Query()] = 10,
    server: Server = None,
) -> list[SimilarItem]:
    """Get the tracks of the media server that sound most like one of its own, nearest first.

    Link the server with `afa link` first. Each recording appears once. Other parameters of
    AudioMuse-AI are accepted and ignored. Costs what `GET /v1/similar/{id}` costs.
    """
    if item_id is not None:
        track, server = services.library.of_item(caller, item_id, server)
    elif title and artist:
        server = services.library.server(server)
        track = services.library.named(caller, artist, title)
    else:
        raise BadRequestError("send item_id, or title and artist")
    wanted = Wanted(
        min(n, MAX_ITEMS), [Seed(track=track.track_id)], query=TrackQuery(server=server)
    )
    found = await offered.similar.similar(caller, wanted, request_id(request))
    tell_cost(request, found)
    return similar_items(found.items, server)


@router.post(
    "/alchemy",
    response_model=ItemResults,
    responses=error_responses(400, 401, 402, 404, 409, 413, 415, 429, 500, 503),
    openapi_extra=idempotent(),
    summary="Tracks that sound like several of a media server, and unlike others",
)
async def alchemy(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    body: AlchemyRequest,
    server: Server = None,
) -> ItemResults:
    """Search around the mean of some songs and away from others, as `POST /v1/similar` does."""
    seeds: dict[str, list[Seed]] = {"ADD": [], "SUBTRACT": []}
    for one in body.items:
        track, server = services.library.of_item(caller, one.id, server)
        seeds[one.op].append(Seed(track=track.track_id))
    if not seeds["ADD"] or max(map(len, seeds.values())) > MAX_SEEDS:
        raise BadRequestError(f"items: name 1 to {MAX_SEEDS} to ADD, and {MAX_SEEDS} to SUBTRACT")
    query = TrackQuery(server=server or "")
    wanted = Wanted(min(body.n, MAX_ITEMS), seeds["ADD"], seeds["SUBTRACT"], query=query)
    found = await offered.similar.similar(caller, wanted, request_id(request))
    tell_cost(request, found)
    return ItemResults(results=similar_items(found.items, server or ""))


@router.get(
    "/find_path",
    response_model=ItemPath,
    responses=ERRORS,
    summary="A path from one track of a media server to another",
)
async def find_path(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    start_song_id: Annotated[ItemId, Query()],
    end_song_id: Annotated[ItemId, Query()],
    max_steps: Annotated[
        int, Query(ge=2, description=f"How many tracks; at most {MAX_PATH} are returned."), PLAIN
    ] = 25,
    server: Server = None,
) -> ItemPath:
    """Get a path on which sound, tempo and key change little, as `GET /v1/path` does."""
    start, server = services.library.of_item(caller, start_song_id, server)
    end, server = services.library.of_item(caller, end_song_id, server)
    found = await offered.similar.path(
        caller,
        (start.track_id, end.track_id),
        min(max_steps, MAX_PATH),
        None,
        request_id(request),
        TrackQuery(server=server),
    )
    tell_cost(request, found)
    path = similar_items(found.items, server)
    return ItemPath(path=path, total_distance=sum(one.distance for one in path))


@router.get(
    "/similar_artists",
    response_model=list[SimilarArtist],
    responses=ERRORS,
    summary="Artists that sound like an artist of a media server",
)
async def artists_like(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    artist: Annotated[
        Words,
        Query(
            description="Id of an artist at the media server, or a name.",
            examples=["The afa Demo Band"],
        ),
    ],
    n: Annotated[
        int, Query(ge=1, description="How many artists; at most 100 are returned."), PLAIN
    ] = 10,
    include_component_matches: Annotated[
        bool, Query(description="Include the similar songs.")
    ] = False,
    server: Server = None,
) -> list[SimilarArtist]:
    """Get the artists whose tracks are near the mean of an artist's own tracks, nearest first.

    The mean is that of up to 20 tracks. Costs what `POST /v1/similar` costs.
    """
    own, server = await services.library.of_artist(caller, artist, server)
    own = own[:MAX_SEEDS]
    seeds = [Seed(track=track.track_id) for track in own]
    wanted = Wanted(MAX_ITEMS, seeds, query=TrackQuery(server=server))
    found = await offered.similar.similar(caller, wanted, request_id(request))
    tell_cost(request, found)
    artists = similar_artists(found.items, own, server, with_songs=include_component_matches)
    return artists[: min(n, MAX_ARTISTS)]


@router.get(
    "/search_tracks",
    response_model=list[Item],
    responses=error_responses(400, 401, 404, 429, 500, 503),
    summary="Search the tracks of a media server",
)
async def search_tracks(
    caller: Reader,
    services: Services,
    search_query: Annotated[
        Words, Query(description="Words of artist, title, album or tags; all must match.")
    ] = "",
    title: Annotated[Words, Query(description="More words, if there is no query.")] = "",
    artist: Annotated[Words, Query(description="More words, if there is no query.")] = "",
    start: Annotated[
        int, Query(ge=0, le=MAX_ITEMS, description="Tracks to skip first."), PLAIN
    ] = 0,
    end: Annotated[
        int | None,
        Query(ge=0, le=2 * MAX_ITEMS, description="Where to stop; by default 20 after `start`."),
        PLAIN,
    ] = None,
    server: Server = None,
) -> list[Item]:
    """Find tracks by words in their names, newest first. Free."""
    words = search_query.strip() or f"{artist} {title}".strip()
    end = start + 20 if end is None else end
    if not words or end <= start:
        return []
    server = services.library.server(server)
    query = TrackQuery(text=words, server=server)
    page = await services.library.page(caller, query, end, None)
    described = [item_body(track, server) for track in page.items[start:]]
    return [item for item in described if item is not None]
