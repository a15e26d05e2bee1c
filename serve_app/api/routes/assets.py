"""Upload audio once and refer to it until it expires."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import AssetReader, AssetWriter
from serve_app.api.door.request import Services, error_responses
from serve_app.api.door.sent_audio import (
    AUDIO_BODY,
    HOW_TO_SEND,
    SentAudio,
    audio_type,
    media_type,
)
from serve_app.api.wire.assets import AssetListResponse, AssetMetadata, AssetUpload
from serve_app.api.wire.forms import A_CURSOR, PLAIN, Form
from serve_app.domain.assets import ID_PATTERN, AssetRecord
from serve_app.domain.errors import BadRequestError, TrackNotFoundError, UnsupportedMediaTypeError
from serve_app.domain.track_ids import AmbiguousTrackId, InvalidTrackIdError, parse_track_id

AssetId = Annotated[
    str,
    Path(
        description="Id of the asset, as returned by the upload.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    ),
]

router = APIRouter(tags=["Assets"], route_class=IdempotentRoute)


CARRIERS = frozenset(
    {
        *("", "application/json", "application/octet-stream", "application/ogg"),
        *("application/x-www-form-urlencoded", "multipart/form-data"),
    }
)
"""What audio comes as, beside ``audio/*`` and ``video/*``; the form of a page is curl's default."""


def check_kind(request: Request) -> None:
    """Refuse what says itself that it is something else, as the specification of assets wants.

    Raises:
        UnsupportedMediaTypeError: It does.
    """
    named = media_type(request)
    if not (named in CARRIERS or named.startswith(("audio/", "video/"))):
        raise UnsupportedMediaTypeError(
            f"the Content-Type {named} is of no audio; leave it out, and {HOW_TO_SEND}"
        )


def metadata(asset: AssetRecord) -> AssetMetadata:
    """Describe an asset."""
    return AssetMetadata(
        asset_id=asset.asset_id,
        sha256=asset.sha256,
        size_bytes=asset.size_bytes,
        content_type=asset.content_type,
        created_at=asset.created_at,
        expires_at=asset.expires_at,
    )


def track_name(text: str | None) -> str | None:
    """Return the one written form of a track id.

    Raises:
        TrackNotFoundError: It is none.
        BadRequestError: It names two tracks.
    """
    if text is None:
        return None
    try:
        track_id = parse_track_id(text)
    except InvalidTrackIdError as error:
        raise TrackNotFoundError(f"track: {error}") from error
    if isinstance(track_id, AmbiguousTrackId):
        raise BadRequestError(f"track: write {track_id.apple} or {track_id.deezer}")
    return str(track_id)


@router.post(
    "/v1/assets/upload",
    status_code=201,
    response_model=AssetUpload,
    responses=error_responses(400, 401, 404, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(AUDIO_BODY),
    summary="Upload audio",
)
async def upload_asset(
    request: Request,
    caller: AssetWriter,
    services: Services,
    track: Annotated[
        str | None,
        Query(
            max_length=2048,
            description="ID of the track that this audio belongs to: your look-ups then know the "
            "track, and compute it from this audio.",
        ),
    ] = None,
) -> AssetUpload:
    """Send audio and get an `asset_id` to use instead of the audio. Free.

    Raw bytes, the `file` of a form, or JSON that names a public address: `{"url": "https://…"}`.

    The first seconds are decoded: anything that is not audio, or a file without the part that says
    how to read it, is refused. Every format that `POST /v1/audio-features/upload` names is
    accepted, of any length.

    The same bytes again give the same asset, with its first expiry. Assets are deleted at the end
    of the lifetime that the tier allows. Together they may take at most `limits.storage_bytes` of
    `GET /v1/account`.
    """
    tier = services.tiers[caller.tier]
    check_kind(request)
    name = track_name(track)
    async with SentAudio(request, services, caller, tier).chunks() as chunks:
        asset = await services.assets.upload(caller, tier, chunks, audio_type(request), name)
    await services.library.link(caller, asset, name)
    return AssetUpload(
        asset_id=asset.asset_id,
        sha256=asset.sha256,
        size_bytes=asset.size_bytes,
        expires_at=asset.expires_at,
    )


@router.get(
    "/v1/assets",
    response_model=AssetListResponse,
    responses=error_responses(400, 401, 429, 503),
    summary="List assets",
)
async def list_assets(
    caller: AssetReader,
    services: Services,
    limit: Annotated[int, Query(ge=1, le=200, description="Items per page."), PLAIN] = 50,
    cursor: Annotated[
        Annotated[str, Form(f"^{ID_PATTERN.pattern}$", A_CURSOR)] | None,
        Query(description="`next_cursor` of the previous page; exclusive."),
    ] = None,
) -> AssetListResponse:
    """List your assets that have not expired, newest first."""
    page = await services.assets.page(caller, limit, cursor)
    return AssetListResponse(
        items=[metadata(asset) for asset in page.items],
        next_cursor=page.next_cursor,
        count=len(page.items),
    )


@router.get(
    "/v1/assets/{id}",
    response_model=AssetMetadata,
    responses=error_responses(400, 401, 404, 429, 503),
    summary="Read an asset's metadata",
)
async def get_asset(
    caller: AssetReader,
    services: Services,
    id: AssetId,
) -> AssetMetadata:
    """Describe an asset; the audio itself is not returned."""
    return metadata(await services.assets.get(caller, id))


@router.delete(
    "/v1/assets/{id}",
    status_code=204,
    responses=error_responses(400, 401, 404, 429, 503),
    summary="Delete an asset",
)
async def delete_asset(
    caller: AssetWriter,
    services: Services,
    id: AssetId,
) -> Response:
    """Delete the audio before it expires; its bytes no longer count. Free.

    Jobs that were submitted with it continue to their end, and a track of your library keeps its
    analysis.
    """
    await services.assets.delete(caller, id)
    return Response(status_code=204)
