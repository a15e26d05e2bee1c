"""Look up audio features by identifier, by name, or many at once."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse

from pipelines.analysis.records import TrackFeatures
from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import LookupReader, Reader, admission_to_read
from serve_app.api.door.request import Format, Offered, Services, error_responses, request_id
from serve_app.api.services import ApiServices
from serve_app.api.wire.features import (
    TRACK_ID_EXAMPLE,
    BatchRequest,
    BatchResponse,
    ExtendedFeatures,
    Features,
    FeaturesAnswer,
    SpotifyFeatures,
    first_id,
    to_canonical,
    to_extended,
    to_extended_spotify,
    to_spotify,
)
from serve_app.api.wire.meta import meta_of, meta_of_batch
from serve_app.services.lookup.batch import Slot
from serve_app.services.lookup.lookup import Found

router = APIRouter(tags=["Look-ups"], route_class=IdempotentRoute)

TrackIdPath = Annotated[
    str,
    Path(
        min_length=1,
        max_length=2048,
        description="Spotify, MusicBrainz, ISRC, Apple Music, Deezer or YouTube ID, a prefixed ID "
        "such as `isrc:QZAFA2600001`, or a track's web address (percent-encoded).",
        examples=[TRACK_ID_EXAMPLE],
    ),
]
Song = Annotated[
    str, Query(min_length=1, max_length=500, description="Title.", examples=["Demo in A minor"])
]
Artist = Annotated[
    str,
    Query(min_length=1, max_length=500, description="Artist.", examples=["The afa Demo Band"]),
]
LOOKUP_ERRORS = error_responses(400, 401, 402, 404, 429, 500, 503)


def features_answer(
    request: Request,
    services: ApiServices,
    found: Found[TrackFeatures],
    asked: str,
    format: str | None,
) -> JSONResponse:
    """Return what was found in the shape that was asked for."""
    meta = meta_of(request, found.cache, found.credits_used, found.balance.remaining)
    if format == "spotify":
        spotify = to_spotify(found.features, asked, services.public_url)
        return JSONResponse(spotify.model_dump(exclude_none=True))
    canonical = to_canonical(found.features, found.identity.artist, found.identity.title)
    return JSONResponse(canonical.model_dump() | {"_meta": meta.model_dump()})


@router.get(
    "/v1/audio-features",
    response_model=FeaturesAnswer | SpotifyFeatures,
    responses=LOOKUP_ERRORS,
    summary="Features by song and artist",
)
async def features_by_name(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    song: Song,
    artist: Artist,
    format: Format = None,
) -> JSONResponse:
    """Find a track by title and artist, and get its audio features.

    Case, accents, punctuation, "feat." and small typing errors do not matter. Cache hits are free
    within the monthly allowance; a miss computes the features and costs credits.
    """
    found = await offered.lookup.by_name(caller, artist, song, request_id(request))
    asked = first_id(found.identity)
    return features_answer(request, services, found, asked, format)


@router.get(
    "/v1/audio-features/{id:path}",
    response_model=FeaturesAnswer | SpotifyFeatures,
    responses=LOOKUP_ERRORS,
    summary="Features by track ID",
)
async def features_by_id(
    request: Request,
    caller: LookupReader,
    services: Services,
    offered: Offered,
    id: TrackIdPath,
    format: Format = None,
) -> JSONResponse:
    """Get the audio features of a track.

    Cache hits are free within the monthly allowance; a miss computes the features and costs
    credits, once per account and track: `credits_used` is 0 if another request of yours pays. If it
    takes too long the answer is 503 with `Retry-After`; nothing is charged, and the computation
    continues.
    """
    admission = admission_to_read(request, caller, services)
    found = await offered.lookup.by_id(caller, id, request_id(request), admission)
    return features_answer(request, services, found, id, format)


def slot_body(
    services: ApiServices, slot: Slot, asked: str, format: str | None, *, extended: bool
) -> Features | ExtendedFeatures | SpotifyFeatures:
    """Return a slot in the shape that was asked for."""
    if format == "spotify":
        shape = to_extended_spotify if extended else to_spotify
        return shape(slot.features, asked, services.public_url)
    canonical = to_extended if extended else to_canonical
    return canonical(slot.features, slot.identity.artist, slot.identity.title)


@router.post(
    "/v1/audio-features",
    response_model=BatchResponse,
    responses=error_responses(400, 401, 402, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(),
    summary="Features of up to 100 tracks",
)
async def features_of_many(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    body: BatchRequest,
    format: Format = None,
) -> JSONResponse:
    """Look up at most 100 tracks at once; the answer has the length and order of the request.

    Each resolved slot costs credits, cached or not; `null` slots cost nothing. Your balance must
    cover the price of all slots beforehand. With `extended`, `reasons` says why a slot is `null`.
    If one takes too long to compute, the answer has `Retry-After`: ask for those slots again then.
    """
    batch = await offered.batch.run(
        caller, body.ids, services.prices.batch_slot, request_id(request)
    )
    meta = meta_of_batch(request, batch)
    slots = [
        slot_body(services, slot, asked, format, extended=body.extended).model_dump(
            exclude_none=format == "spotify"
        )
        if slot is not None
        else None
        for slot, asked in zip(batch.slots, body.ids, strict=True)
    ]
    reasons = {"reasons": batch.reasons} if body.extended else {}
    return JSONResponse({"audio_features": slots, **reasons, "_meta": meta.model_dump()})
