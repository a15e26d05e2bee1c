"""Routes in AcousticBrainz's shape, so that its clients work with only their base URL changed."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse

from pipelines.analysis.records import TrackFeatures
from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import AssetWriter, Reader
from serve_app.api.door.request import Offered, Services, error_responses, request_id
from serve_app.api.services import ApiServices, Operations
from serve_app.api.wire.dialects.acousticbrainz import (
    DocumentCount,
    HighLevel,
    LowLevel,
    LowLevelSubmission,
    RecordingCount,
    Submitted,
)
from serve_app.api.wire.forms import PLAIN
from serve_app.api.wire.meta import meta_of, meta_of_batch
from serve_app.domain.errors import BadRequestError, TierRequiredError, TrackNotFoundError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.track_ids import InvalidTrackIdError, Platform, track_id_of
from serve_app.services.export.acousticbrainz import Document, high_level, low_level
from serve_app.services.lookup.find import Known, light

router = APIRouter(
    prefix="/acousticbrainz", tags=["AcousticBrainz-compatible"], route_class=IdempotentRoute
)

MOST_RECORDINGS = 25
"""At once, as AcousticBrainz allowed."""

ONE_DOCUMENT = "one document is kept of a recording; ask without n"

MBID_EXAMPLE = "afa00000-0000-4000-8000-000000000001"


async def read_mbid(
    mbid: Annotated[
        str,
        Path(
            min_length=1,
            max_length=64,
            description="MusicBrainz recording ID.",
            examples=[MBID_EXAMPLE],
        ),
    ],
) -> str:
    """Return the MusicBrainz ID of the path as we write it.

    Raises:
        TrackNotFoundError: It is none.
    """
    try:
        return track_id_of(Platform.MBID, mbid).value
    except InvalidTrackIdError as error:
        raise TrackNotFoundError(str(error)) from error


Mbid = Annotated[str, Depends(read_mbid)]
Offset = Annotated[
    int, Query(ge=0, description="Which document of the recording; the only one is 0."), PLAIN
]
RecordingIds = Annotated[
    str,
    Query(
        min_length=1,
        max_length=4096,
        description="Up to 25 MusicBrainz recording IDs with `;` between them; each may have an "
        "offset after it, as in `MBID:0`.",
        examples=[f"{MBID_EXAMPLE}:0"],
    ),
]
Shape = Callable[[TrackIdentity, TrackFeatures | None], Document]
ERRORS = error_responses(400, 401, 402, 404, 429, 500, 503)
BULK_ERRORS = error_responses(400, 401, 402, 429, 500, 503)


@router.get(
    "/low-level",
    response_model=dict[str, dict[str, LowLevel]],
    responses=BULK_ERRORS,
    summary="Low-level documents of several recordings",
)
async def several_low_level(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    recording_ids: RecordingIds,
) -> JSONResponse:
    """Get the low-level documents by MusicBrainz ID and offset; unknown recordings are left out.

    Charged like single look-ups: hits are free within the monthly allowance, misses cost credits.
    """
    return await documents(request, caller, services, offered, recording_ids, low_level)


@router.get(
    "/high-level",
    response_model=dict[str, dict[str, HighLevel]],
    responses=BULK_ERRORS,
    summary="High-level documents of several recordings",
)
async def several_high_level(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    recording_ids: RecordingIds,
) -> JSONResponse:
    """Get the high-level documents by MusicBrainz ID and offset; unknown recordings are left out.

    Charged like single look-ups: hits are free within the monthly allowance, misses cost credits.
    """
    return await documents(request, caller, services, offered, recording_ids, high_level)


@router.get(
    "/count",
    response_model=dict[str, DocumentCount],
    responses=error_responses(400, 401, 429, 500, 503),
    summary="Which of several recordings have documents",
)
async def several_counts(
    caller: Reader, offered: Offered, recording_ids: RecordingIds
) -> JSONResponse:
    """Count the documents by MusicBrainz ID; unknown recordings are left out. Free."""
    mbids = dict.fromkeys(mbid for mbid, _ in asked_for(recording_ids))
    counts = {mbid: await count_of(caller, offered, mbid) for mbid in mbids}
    return JSONResponse({mbid: {"count": count} for mbid, count in counts.items() if count})


@router.get(
    "/{mbid}/low-level", response_model=LowLevel, responses=ERRORS, summary="Low-level document"
)
async def one_low_level(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    mbid: Mbid,
    n: Offset = 0,
) -> JSONResponse:
    """Get tempo, beats, key and loudness of a recording.

    If afa has not analysed the recording and has no audio of it, the answer has the tempo and key
    that were submitted or imported, if any. Cache hits are free within the monthly allowance; a
    miss computes the recording and costs credits.
    """
    return await document(request, caller, services, offered, mbid, n, low_level)


@router.get(
    "/{mbid}/high-level", response_model=HighLevel, responses=ERRORS, summary="High-level document"
)
async def one_high_level(
    request: Request,
    caller: Reader,
    services: Services,
    offered: Offered,
    mbid: Mbid,
    n: Offset = 0,
) -> JSONResponse:
    """Get danceability, moods and voice of a recording.

    Cache hits are free within the monthly allowance; a miss computes the recording and costs
    credits.
    """
    return await document(request, caller, services, offered, mbid, n, high_level)


@router.get(
    "/{mbid}/count",
    response_model=RecordingCount,
    responses=error_responses(400, 401, 404, 429, 500, 503),
    summary="Whether a recording has a document",
)
async def one_count(caller: Reader, offered: Offered, mbid: Mbid) -> RecordingCount:
    """Count the documents of a recording: 0 or 1. Free."""
    return RecordingCount(mbid=mbid, count=await count_of(caller, offered, mbid))


@router.post(
    "/{mbid}/low-level",
    response_model=Submitted,
    responses=error_responses(400, 401, 403, 404, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(),
    summary="Submit a low-level document",
)
async def submit(
    caller: AssetWriter, services: Services, mbid: Mbid, body: LowLevelSubmission
) -> Submitted:
    """Keep the tempo, key and names that an extractor wrote, as a track of your own library.

    They answer for the recording until afa has analysed it. Free.
    """
    await services.library.submit(caller, mbid, body.model_dump())
    return Submitted(message="ok")


def asked_for(recording_ids: str) -> list[tuple[str, int]]:
    """Take the list apart into MusicBrainz IDs and offsets; none is twice in it.

    Raises:
        BadRequestError: One is no such ID, or there are too many.
    """
    wanted: dict[tuple[str, int], None] = {}
    for part in recording_ids.split(";"):
        mbid, _, offset = part.partition(":")
        try:
            known = track_id_of(Platform.MBID, mbid).value
        except InvalidTrackIdError as error:
            raise BadRequestError(f"recording_ids: {error.reason}") from error
        wanted[known, int(offset) if offset.isdecimal() else 0] = None
    if len(wanted) > MOST_RECORDINGS:
        raise BadRequestError(f"recording_ids: at most {MOST_RECORDINGS} at once")
    return list(wanted)


async def document(
    request: Request,
    caller: Caller,
    services: ApiServices,
    offered: Operations,
    mbid: str,
    n: int,
    shape: Shape,
) -> JSONResponse:
    """Answer with one document.

    Raises:
        TrackNotFoundError: Nothing is known of the recording.
        TierRequiredError: It must be computed, which the tier does not include.
    """
    if n:
        raise TrackNotFoundError(ONE_DOCUMENT)
    try:
        found = await offered.lookup.features(caller, f"mbid:{mbid}", request_id(request))
    except (TrackNotFoundError, TierRequiredError):
        identity = await measured_elsewhere(caller, offered, mbid)
        if identity is None:
            raise
        balance = await services.ledger.balance(caller.account, caller.tier)
        meta_of(request, "bypass", 0, balance.remaining)
        return JSONResponse(shape(identity, None))
    meta_of(request, found.cache, found.credits_used, found.balance.remaining)
    return JSONResponse(shape(found.identity, found.features))


async def documents(
    request: Request,
    caller: Caller,
    services: ApiServices,
    offered: Operations,
    recording_ids: str,
    shape: Shape,
) -> JSONResponse:
    """Answer with the documents of several recordings."""
    mbids = [mbid for mbid, n in asked_for(recording_ids) if n == 0]
    batch = await offered.batch.run(
        caller,
        [f"mbid:{mbid}" for mbid in mbids],
        services.prices.features_by_id_miss,
        request_id(request),
        cached_free=True,
    )
    meta_of_batch(request, batch)
    found: dict[str, Document] = {}
    for mbid, slot in zip(mbids, batch.slots, strict=True):
        if slot is not None:
            found[mbid] = shape(slot.identity, slot.features)
        elif identity := await measured_elsewhere(caller, offered, mbid):
            found[mbid] = shape(identity, None)
    return JSONResponse({mbid: {"0": one} for mbid, one in found.items()})


async def measured_elsewhere(
    caller: Caller, offered: Operations, mbid: str
) -> TrackIdentity | None:
    """Return a recording of which others measured tempo or key, None if there is none."""
    try:
        identity = await offered.lookup.identify(caller, f"mbid:{mbid}")
    except TrackNotFoundError:
        return None
    return None if identity.tempo is None and identity.key is None else identity


async def count_of(caller: Caller, offered: Operations, mbid: str) -> int:
    """Count the documents of a recording, without computing one."""
    try:
        identity = await offered.lookup.identify(caller, f"mbid:{mbid}")
    except TrackNotFoundError:
        return 0
    if identity.tempo is not None or identity.key is not None:
        return 1
    found = await offered.lookup.find(caller, identity, light)
    return int(isinstance(found, Known) or found.source is not None)
