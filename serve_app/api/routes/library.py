"""The tracks this server knows: list, add, change and remove them."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import AssetWriter, Computer, Reader
from serve_app.api.door.request import (
    Offered,
    Services,
    Within,
    error_responses,
    request_id,
    require_gpu,
)
from serve_app.api.door.sent_audio import SentAudio, address_of, audio_body
from serve_app.api.door.unknown import tell_unknown_fields
from serve_app.api.services import ApiServices
from serve_app.api.wire.forms import A_CURSOR, PLAIN, Form
from serve_app.api.wire.library import (
    CamelotKey,
    LibraryAdded,
    LibraryAddRequest,
    LibraryAnswer,
    LibraryChangeRequest,
    LibraryList,
    LibraryMapBody,
    LibraryNames,
    Tag,
    TrackNames,
    map_body,
    track_body,
)
from serve_app.api.wire.meta import meta_of
from serve_app.domain.errors import BadRequestError
from serve_app.domain.identity import TrackIdentity, fields_of_ids
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.library.query import CURSOR, NEWEST, Sort, TrackQuery
from serve_app.library.track import Place, TrackFile
from serve_app.services.audio.audio import Audio, AudioAsset
from serve_app.services.jobs.submit import AnalysisOptions

router = APIRouter(tags=["Library"], route_class=IdempotentRoute)

LibraryId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=64,
        description="Id of the track, as in the list.",
        examples=["trk_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    ),
]
Tempo = Annotated[
    float | None,
    Query(
        ge=0,
        le=1000,
        description="BPM; tracks without an analysis or a beat are left out.",
    ),
    PLAIN,
]
Energy = Annotated[
    int | None,
    Query(ge=0, le=100, description="Inclusive; tracks without an analysis are left out."),
    PLAIN,
]
YearBound = Annotated[
    int | None, Query(ge=0, le=9999, description="Year of the release; inclusive."), PLAIN
]
PICTURE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The picture.",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("image/jpeg", "image/png", "image/webp")
        },
    }
}
KEPT = {"Cache-Control": "private, max-age=3600"}
"""A browser need not ask again for an hour."""


def said_in(body: TrackNames) -> dict[str, object]:
    """Return the fields of the identity that a body says something of; None where it is null.

    Raises:
        BadRequestError: One of the identifiers is none.
    """
    names = body.model_fields_set & {"artist", "title", "album", "year"}
    return {name: getattr(body, name) for name in names} | fields_of_ids(body.ids)


@router.post(
    "/v1/library",
    status_code=202,
    response_model=LibraryAdded,
    responses=error_responses(400, 401, 402, 403, 404, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(audio_body("LibraryAddRequest")),
    summary="Add a track to your library",
)
async def add_track(
    request: Request,
    caller: Computer,
    services: Services,
    offered: Offered,
    names: Annotated[LibraryNames, Query()],
    tempo_range: Within,
) -> LibraryAdded:
    """Send audio, or name an asset or an address, with what you know; a job analyses it.

    Bytes or a form's `file` become an asset; put what you know into the query then. With JSON, put
    it into the body. If you leave out artist or title, they come from the tags of the file.

    The track is yours alone: your look-ups by its identifiers or names find it at once. If one of
    your tracks already has the audio or an identifier, the data is added to that track. Costs what
    an analysis costs; without enough credits no track is added.
    """
    tier = services.tiers[caller.tier]
    require_gpu(services.tiers, tier)
    body = await added_in(request, services, caller, tier, names)
    said = {name: value for name, value in said_in(body).items() if value is not None}
    audio, file = await audio_and_file(services, caller, body)
    identity = TrackIdentity(**said)  # type: ignore[arg-type]  # names are those of its fields
    track, is_new = await services.library.add(caller, identity, body.tags, file)
    options = AnalysisOptions(
        request_id=request_id(request), library_id=track.track_id, tempo_range=tempo_range
    )
    try:
        job = await offered.analysis.submit(caller, tier, audio, options)
    except BaseException:
        if is_new:
            await services.library.remove(caller, track.track_id)
        raise
    balance = job.balance or await services.ledger.balance(caller.account, caller.tier)
    return LibraryAdded(
        track=track_body(track),
        status=job.state.value,
        job_id=job.job_id,
        meta=meta_of(request, "bypass", job.credits_used, balance.remaining),
    )


async def added_in(
    request: Request, services: ApiServices, caller: Caller, tier: Tier, names: LibraryNames
) -> LibraryAddRequest:
    """Read what a request adds; audio that it sends is kept as an asset.

    Raises:
        RequestValidationError: It is not as it must be.
        BadRequestError: The body is neither a JSON object nor audio.
        UnsupportedMediaTypeError: The body is no audio.
    """
    said = names.model_dump(exclude_unset=True)
    async with SentAudio(request, services, caller, tier).body() as body:
        if body.json is None:
            services.library.check_open()
            asset = await services.assets.upload(caller, tier, body.chunks)
            return LibraryAddRequest(**said, asset_id=asset.asset_id)
    try:
        sent = json.loads(body.json)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise BadRequestError("body: send a JSON object, as /docs shows it, or audio")
    tell_unknown_fields(request, LibraryAddRequest, sent)
    try:
        told = {name: value for name, value in sent.items() if value is not None}
        return LibraryAddRequest.model_validate(said | told)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


async def audio_and_file(
    services: ApiServices, caller: Caller, body: LibraryAddRequest
) -> tuple[Audio, TrackFile]:
    """Return the audio that a body names, and how the library remembers where it is.

    Raises:
        AssetNotFoundError: The asset expired, never existed, or is another owner's.
    """
    tier = services.tiers[caller.tier]
    if body.url is not None:
        return address_of(services, caller, tier, body.url), TrackFile(Place.URL, body.url)
    asset = await services.assets.get(caller, body.asset_id or "")
    audio = AudioAsset(services.objects, services.assets, asset.asset_id, caller, tier)
    return audio, TrackFile.of_asset(asset)


@router.get(
    "/v1/library",
    response_model=LibraryList,
    responses=error_responses(400, 401, 429, 503),
    summary="List the library",
)
async def list_tracks(
    request: Request,
    caller: Reader,
    services: Services,
    tempo_min: Tempo = None,
    tempo_max: Tempo = None,
    year_min: YearBound = None,
    year_max: YearBound = None,
    energy_min: Energy = None,
    energy_max: Energy = None,
    key: Annotated[
        list[CamelotKey] | None,
        Query(max_length=24, description="Camelot name; if you give several, any may match."),
    ] = None,
    tag: Annotated[
        list[Tag] | None,
        Query(
            max_length=16,
            description="Tag of the owner, a genre, or from the analysis; several must all match.",
        ),
    ] = None,
    q: Annotated[
        str,
        Query(max_length=200, description="Words of artist, title, album or tags; all must match."),
    ] = "",
    sort: Annotated[
        Sort,
        Query(
            description="Field to sort by; with `-` before it, descending. `-added` is newest "
            "first, `key` goes round the Camelot wheel. Tracks without a value come last."
        ),
    ] = NEWEST,
    limit: Annotated[int, Query(ge=1, le=200, description="Items per page."), PLAIN] = 50,
    cursor: Annotated[
        Annotated[str, Form(f"^{CURSOR}$", A_CURSOR)] | None,
        Query(
            description="`next_cursor` of the previous page of the same query; exclusive.",
        ),
    ] = None,
) -> LibraryList:
    """List your tracks and the operator's. Free."""
    query = TrackQuery(
        tempo_min=tempo_min,
        tempo_max=tempo_max,
        year_min=year_min,
        year_max=year_max,
        keys=key or (),
        tags=tag or (),
        text=q,
        energy_min=energy_min,
        energy_max=energy_max,
        sort=sort,
    )
    page = await services.library.page(caller, query, limit, cursor)
    balance = await services.ledger.balance(caller.account, caller.tier)
    return LibraryList(
        items=[track_body(track) for track in page.items],
        next_cursor=page.next_cursor,
        count=len(page.items),
        meta=meta_of(request, "bypass", 0, balance.remaining),
    )


@router.get(
    "/v1/library/map",
    response_model=LibraryMapBody,
    responses=error_responses(401, 429, 503),
    summary="The library as a map",
)
async def map_tracks(request: Request, caller: Reader, services: Services) -> LibraryMapBody:
    """Get a map of your tracks and the operator's: those that sound alike are close. Free.

    The map is a principal component analysis of their embeddings, redrawn when the library changes.
    """
    drawn = await services.library.map(caller)
    balance = await services.ledger.balance(caller.account, caller.tier)
    return map_body(drawn, meta_of(request, "bypass", 0, balance.remaining))


@router.get(
    "/v1/library/{id}",
    response_model=LibraryAnswer,
    responses=error_responses(400, 401, 404, 429, 503),
    summary="Read a track of the library",
)
async def get_track(
    request: Request, caller: Reader, services: Services, id: LibraryId
) -> LibraryAnswer:
    """Get what is known about one of your tracks, or of the operator's. Free."""
    track = services.library.get(caller, id)
    balance = await services.ledger.balance(caller.account, caller.tier)
    return LibraryAnswer(
        track=track_body(track), meta=meta_of(request, "bypass", 0, balance.remaining)
    )


@router.get(
    "/v1/library/{id}/cover",
    response_class=Response,
    responses=PICTURE | error_responses(400, 401, 404, 429, 503),
    summary="The cover of a track",
)
async def get_cover(caller: Reader, services: Services, id: LibraryId) -> Response:
    """Get the picture in the tags of the track's file, unchanged. Free.

    Only for tracks of the operator whose files this server can read.
    """
    cover = await services.library.cover(caller, id)
    return Response(cover.data, headers=KEPT, media_type=cover.media_type)


@router.patch(
    "/v1/library/{id}",
    response_model=LibraryAnswer,
    responses=error_responses(400, 401, 403, 404, 413, 415, 429, 503),
    summary="Change a track of your library",
)
async def change_track(
    request: Request,
    caller: AssetWriter,
    services: Services,
    id: LibraryId,
    body: LibraryChangeRequest,
) -> LibraryAnswer:
    """Correct names, identifiers and tags. Free; the audio stays and is not analysed again."""
    track = await services.library.change(caller, id, said_in(body), body.tags)
    balance = await services.ledger.balance(caller.account, caller.tier)
    return LibraryAnswer(
        track=track_body(track), meta=meta_of(request, "bypass", 0, balance.remaining)
    )


@router.delete(
    "/v1/library/{id}",
    status_code=204,
    responses=error_responses(400, 401, 403, 404, 429, 503),
    summary="Remove a track from your library",
)
async def remove_track(caller: AssetWriter, services: Services, id: LibraryId) -> Response:
    """Remove the track with all results of its analysis. The asset stays until it expires."""
    await services.library.remove(caller, id)
    return Response(status_code=204)
