"""Routes in Spotify's shape, so that Spotify clients work with only their base URL changed."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.datastructures import URL
from fastapi.responses import JSONResponse

from pipelines.analysis.records import TrackFeatures
from serve_app.api.door.limits import Reader
from serve_app.api.door.request import Offered, Services, request_id
from serve_app.api.routes.tracks import features_of, identity_of, upload_of
from serve_app.api.services import ApiServices, Operations
from serve_app.api.wire.dialects.spotify import audio_analysis, search_page, track_object
from serve_app.api.wire.dialects.spotify_shapes import (
    AudioAnalysis,
    SpotifyBatch,
    SpotifySearch,
    SpotifyTrack,
    SpotifyTracks,
    spotify_error_responses,
)
from serve_app.api.wire.features import SpotifyFeatures, to_spotify
from serve_app.api.wire.forms import PLAIN, Form
from serve_app.api.wire.meta import meta_of_batch
from serve_app.domain.errors import (
    BadRequestError,
    NotFoundError,
)
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.track_ids import LIBRARY_PREFIX

router = APIRouter(prefix="/spotify/v1", tags=["Spotify-compatible"])

MAX_IDS = 100
MAX_TRACKS = 50
MAX_OFFSET = 1000
ISRC_QUERY = re.compile(r"""isrc:\s*"?([A-Za-z0-9-]{12,15})"?""", re.IGNORECASE)
TRACK_QUERY = re.compile(r"""track:\s*(?:"([^"]+)"|(.+?))(?=\s+\w+:|$)""", re.IGNORECASE)
ARTIST_QUERY = re.compile(r"""artist:\s*(?:"([^"]+)"|(.+?))(?=\s+\w+:|$)""", re.IGNORECASE)

SpotifyId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=2048,
        description="Any track id that `GET /v1/audio-features/{id}` accepts, or the id of a job.",
        examples=["0AfaDemoTrack000000001"],
    ),
]
Ids = Annotated[
    str,
    Form(r"[^,\s]", "should name an id, or several between commas"),
    Query(
        min_length=1,
        description="Comma-separated ids of tracks or of your own analyses.",
        examples=["0AfaDemoTrack000000001"],
    ),
]
ERRORS = spotify_error_responses(400, 401, 402, 403, 404, 429, 500, 503)


def split_ids(ids: str, most: int) -> list[str]:
    """Take the list apart.

    Raises:
        BadRequestError: Too many.
    """
    parts = [part.strip() for part in ids.split(",") if part.strip()]
    if len(parts) > most:
        raise BadRequestError(f"ids: at most {most} at once")
    return parts


def shaped(features: TrackFeatures, asked: str, services: ApiServices) -> dict[str, Any]:
    """Write features as Spotify does."""
    body = to_spotify(features, asked, services.public_url)
    return body.model_dump(exclude_none=True, exclude={"embedding", "embedding_model"})


@router.get(
    "/audio-features",
    response_model=SpotifyBatch,
    responses=ERRORS,
    summary="Audio features of several tracks",
)
@router.get("/audio-features/", include_in_schema=False)
async def several_features(
    request: Request, caller: Reader, services: Services, offered: Offered, ids: Ids
) -> JSONResponse:
    """Get the audio features of up to 100 tracks or of your uploads; a missing one is null.

    Charged like single look-ups: hits are free within the monthly allowance, misses cost credits.
    If one takes too long to compute, the answer has `Retry-After`.
    """
    wanted = split_ids(ids, MAX_IDS)
    batch = await offered.batch.run(
        caller,
        wanted,
        services.prices.features_by_id_miss,
        request_id(request),
        cached_free=True,
    )
    meta_of_batch(request, batch)
    slots = []
    for slot, asked in zip(batch.slots, wanted, strict=True):
        features = await upload_of(offered, caller, asked) if slot is None else slot.features
        slots.append(None if features is None else shaped(features, asked, services))
    return JSONResponse({"audio_features": slots})


@router.get(
    "/audio-features/{id}",
    response_model=SpotifyFeatures,
    responses=ERRORS,
    summary="Audio features of one track",
)
async def one_features(
    request: Request, caller: Reader, services: Services, offered: Offered, id: SpotifyId
) -> JSONResponse:
    """Get the audio features of a track, or of your own analysed upload by its job id."""
    found = await features_of(request, caller, services, offered, id, whole=False)
    return JSONResponse(shaped(found.features, id, services))


@router.get(
    "/audio-analysis/{id}",
    response_model=AudioAnalysis,
    responses=ERRORS,
    summary="Audio analysis of one track",
)
async def one_analysis(
    request: Request, caller: Reader, services: Services, offered: Offered, id: SpotifyId
) -> JSONResponse:
    """Get bars, beats, tatums, sections and segments of a track or your own analysed upload."""
    found = await features_of(request, caller, services, offered, id, whole=True)
    return JSONResponse(audio_analysis(found.features))


@router.get("/tracks", response_model=SpotifyTracks, responses=ERRORS, summary="Several tracks")
@router.get("/tracks/", include_in_schema=False)
async def several_tracks(
    caller: Reader, services: Services, offered: Offered, ids: Ids
) -> JSONResponse:
    """Get up to 50 tracks; a missing one is null. Free."""
    tracks: list[dict[str, Any] | None] = []
    for asked in split_ids(ids, MAX_TRACKS):
        try:
            identity = await identity_of(offered, caller, asked)
        except (NotFoundError, BadRequestError):
            tracks.append(None)
            continue
        tracks.append(track_object(identity, asked, services.public_url))
    return JSONResponse({"tracks": tracks})


@router.get("/tracks/{id}", response_model=SpotifyTrack, responses=ERRORS, summary="One track")
async def one_track(
    caller: Reader, services: Services, offered: Offered, id: SpotifyId
) -> JSONResponse:
    """Get artist, title, album and identifiers of a track. Free."""
    identity = await identity_of(offered, caller, id)
    return JSONResponse(track_object(identity, id, services.public_url))


@router.get(
    "/search",
    response_model=SpotifySearch,
    responses=ERRORS,
    summary="Search",
)
@router.get("/search/", include_in_schema=False)
async def search(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=500,
            description="Words of title and artist, in any order; `artist:NAME` and `track:NAME` "
            "limit words to one of these, `isrc:CODE` names one recording.",
            examples=["demo minor afa"],
        ),
    ],
    type: Annotated[
        Literal["track"], Query(description="What to search for; only tracks are supported.")
    ] = "track",
    limit: Annotated[int, Query(ge=1, le=50, description="Tracks per page."), PLAIN] = 20,
    offset: Annotated[
        int, Query(ge=0, le=MAX_OFFSET, description="Tracks to skip first."), PLAIN
    ] = 0,
) -> JSONResponse:
    """Find tracks of library and catalog by words in their names, or one by its ISRC. Free.

    If they have no match, `artist:NAME track:NAME` and `NAME - TITLE` are looked up with the
    providers that are on.
    """
    del type  # there is but one
    end = offset + limit
    found = await _search(offered, caller, q, end + 1 if end <= MAX_OFFSET else end)
    tracks = [track_object(one, _id_of(one), services.public_url) for one in found]
    address = URL(f"{services.public_url}{request.url.path}?{request.url.query}")
    return JSONResponse(search_page(tracks, address, limit, offset))


def _id_of(identity: TrackIdentity) -> str:
    """Return an id of letters and digits alone: spotipy refuses others before it asks."""
    plain = (
        identity.spotify_id,
        (identity.library_id or "").removeprefix(LIBRARY_PREFIX),
        identity.isrc,
        (identity.mbid or "").replace("-", ""),
        *map(str, identity.ids()),
    )
    return next((one for one in plain if one), "")


async def _search(offered: Operations, caller: Caller, q: str, limit: int) -> list[TrackIdentity]:
    try:
        isrc = ISRC_QUERY.search(q)
        if isrc is not None:
            return [await offered.lookup.identify(caller, f"isrc:{isrc[1]}")]
        track, artist = _named(TRACK_QUERY, q), _named(ARTIST_QUERY, q)
        words = ARTIST_QUERY.sub(" ", TRACK_QUERY.sub(" ", q)).strip()
        found = await offered.lookup.find_text(caller, words, artist, track, limit)
        if found:
            return found
        if not (track and artist):
            artist, _, track = (part.strip() for part in q.partition(" - "))
        if track and artist:
            return [await offered.lookup.identify_name(caller, artist, track)]
    except NotFoundError:
        pass
    return []


def _named(query: re.Pattern[str], q: str) -> str:
    match = query.search(q)
    return "" if match is None else match[1] or match[2]
