"""Routes in Spotify's shape, so that Spotify clients work with only their base URL changed."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse

from pipelines.analysis.records import TrackFeatures
from serve_app.api.door.limits import Reader, let_read
from serve_app.api.door.request import Offered, Services, request_id
from serve_app.api.routes.tracks import identity_of
from serve_app.api.services import ApiServices, Operations
from serve_app.api.wire.features import SpotifyFeatures, to_spotify
from serve_app.api.wire.meta import meta_of
from serve_app.api.wire.spotify import audio_analysis, search_page, track_object
from serve_app.api.wire.spotify_shapes import (
    AudioAnalysis,
    SpotifyBatch,
    SpotifySearch,
    SpotifyTrack,
    SpotifyTracks,
    spotify_error_responses,
)
from serve_app.domain.errors import (
    BadRequestError,
    JobNotFoundError,
    NotFoundError,
    TrackNotFoundError,
)
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller

router = APIRouter(prefix="/spotify/v1", tags=["Spotify-compatible"])

MAX_IDS = 100
MAX_TRACKS = 50
ISRC_QUERY = re.compile(r"""isrc:\s*"?([A-Za-z0-9-]{12,15})"?""", re.IGNORECASE)
TRACK_QUERY = re.compile(r"""track:\s*(?:"([^"]+)"|(.+?))(?=\s+\w+:|$)""", re.IGNORECASE)
ARTIST_QUERY = re.compile(r"""artist:\s*(?:"([^"]+)"|(.+?))(?=\s+\w+:|$)""", re.IGNORECASE)

SpotifyId = Annotated[str, Path(min_length=1, max_length=2048, examples=["0AfaDemoTrack000000001"])]
Ids = Annotated[
    str,
    Query(
        min_length=1,
        pattern=r"[^,\s]",
        description="Comma-separated ids.",
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
    """Give the audio features of up to 100 tracks; a missing track is a null slot.

    Charged as single look-ups: hits are free within the monthly allowance, misses cost credits.
    """
    wanted = split_ids(ids, MAX_IDS)
    batch = await offered.batch.run(
        caller,
        wanted,
        services.prices.features_by_id_miss,
        request_id(request),
        cached_free=True,
    )
    meta_of(request, batch.cache, batch.credits_used, batch.balance.remaining)
    slots = [
        to_spotify(slot.features, asked, services.public_url).model_dump(exclude_none=True)
        if slot is not None
        else None
        for slot, asked in zip(batch.slots, wanted, strict=True)
    ]
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
    """Give the audio features of a track, or of an own analysed upload by its job id."""
    features = await _features(request, caller, services, offered, id, whole=False)
    body = to_spotify(features, id, services.public_url)
    return JSONResponse(body.model_dump(exclude_none=True, exclude={"embedding"}))


@router.get(
    "/audio-analysis/{id}",
    response_model=AudioAnalysis,
    responses=ERRORS,
    summary="Audio analysis of one track",
)
async def one_analysis(
    request: Request, caller: Reader, services: Services, offered: Offered, id: SpotifyId
) -> JSONResponse:
    """Give bars, beats, tatums, sections and segments of a track or an own analysed upload."""
    return JSONResponse(
        audio_analysis(await _features(request, caller, services, offered, id, whole=True))
    )


async def _features(
    request: Request,
    caller: Caller,
    services: ApiServices,
    offered: Operations,
    id: str,
    *,
    whole: bool,
) -> TrackFeatures:
    job_id = id.removeprefix("afa:track:")
    if job_id.startswith("job_"):
        features = await _job_features(caller, offered, job_id)
        balance = await services.ledger.balance(caller.account, caller.tier)
        meta_of(request, "bypass", 0, balance.remaining)
        return features
    look_up = offered.lookup.analysis if whole else offered.lookup.features
    found = await look_up(caller, id, request_id(request))
    meta_of(request, found.cache, found.credits_used, found.balance.remaining)
    return found.features


async def _job_features(caller: Caller, offered: Operations, job_id: str) -> TrackFeatures:
    try:
        job = await offered.analysis.get_job(caller, job_id)
    except JobNotFoundError as error:
        raise TrackNotFoundError("analysis not found") from error
    features = offered.analysis.features_of(job)
    if features is None:
        raise TrackNotFoundError("analysis not found: the job has not completed")
    return features


@router.get("/tracks", response_model=SpotifyTracks, responses=ERRORS, summary="Several tracks")
@router.get("/tracks/", include_in_schema=False)
async def several_tracks(
    caller: Reader, services: Services, offered: Offered, ids: Ids
) -> JSONResponse:
    """Give up to 50 tracks; a missing one is null. Free."""
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
    """Give artist, title, album and identifiers of a track. Free."""
    identity = await identity_of(offered, caller, id)
    return JSONResponse(track_object(identity, id, services.public_url))


@router.get(
    "/search",
    response_model=SpotifySearch,
    responses=ERRORS,
    summary="Search",
    dependencies=[Depends(let_read)],
)
@router.get("/search/", include_in_schema=False, dependencies=[Depends(let_read)])
async def search(
    request: Request,
    services: Services,
    offered: Offered,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=500,
            description="`isrc:CODE`, `artist:NAME track:TITLE` or `NAME - TITLE`; anything else "
            "finds nothing.",
            examples=["isrc:QZAFA2600001"],
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=50)] = 20,
    offset: Annotated[int, Query(ge=0, le=1000)] = 0,
) -> JSONResponse:
    """Find a track by ISRC, or by artist and title. Free."""
    try:
        identity = await _search(offered, q)
    except NotFoundError:
        identity = None
    tracks = []
    if identity is not None:
        track_id = identity.spotify_id or next((str(one) for one in identity.ids()), "")
        tracks.append(track_object(identity, track_id, services.public_url))
    return JSONResponse(search_page(tracks, str(request.url), limit, offset))


async def _search(offered: Operations, q: str) -> TrackIdentity | None:
    isrc = ISRC_QUERY.search(q)
    if isrc is not None:
        return await offered.lookup.identify(f"isrc:{isrc[1]}")
    track, artist = TRACK_QUERY.search(q), ARTIST_QUERY.search(q)
    if track is not None and artist is not None:
        names = (artist[1] or artist[2], track[1] or track[2])
    else:
        before, _, after = q.partition(" - ")
        names = (before.strip(), after.strip())
    if not all(names):
        return None
    return await offered.lookup.identify_name(*names)
