"""Submit audio for analysis: bytes or a URL in, a job out."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect

from serve_app.api.deps import (
    Authenticated,
    Format,
    Services,
    error_responses,
    require_embedding,
    require_gpu,
)
from serve_app.api.job_wire import job_envelope
from serve_app.api.schemas import JobEnvelope, UrlAnalysisRequest
from serve_app.domain.errors import (
    BadRequestError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from serve_app.services.analysis import AnalysisOptions

router = APIRouter(tags=["Analysis"])

AUDIO_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            media_type: {"schema": {"type": "string", "format": "binary"}}
            for media_type in ("audio/*", "application/octet-stream")
        },
    }
}


def check_audio_type(content_type: str) -> str:
    """Return the bare media type if it is one that audio is sent as.

    Raises:
        UnsupportedMediaTypeError: It is not.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if not (media_type.startswith("audio/") or media_type == "application/octet-stream"):
        raise UnsupportedMediaTypeError(
            "send the raw audio bytes with Content-Type audio/* or application/octet-stream"
        )
    return media_type


def check_length(content_length: str | None, limit_bytes: int) -> None:
    """Refuse a body that says itself that it is too large or empty.

    Raises:
        PayloadTooLargeError: Over the tier's upload size.
        BadRequestError: Empty.
    """
    if content_length is None or not content_length.isdecimal():
        return
    if int(content_length) > limit_bytes:
        raise PayloadTooLargeError(
            f"the upload has {content_length} bytes; your tier allows {limit_bytes}"
        )
    if int(content_length) == 0:
        raise BadRequestError("the body is empty; send the raw audio bytes")


async def body_chunks(request: Request) -> AsyncIterator[bytes]:
    """Stream the body.

    Raises:
        BadRequestError: The client went away before the end.
    """
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect as error:
        raise BadRequestError("the upload broke off") from error


@router.post(
    "/v1/audio-features/upload",
    status_code=202,
    response_model=JobEnvelope,
    responses=error_responses(400, 401, 402, 413, 415, 429, 503),
    openapi_extra=AUDIO_BODY,
    summary="Analyse uploaded audio",
)
async def analyse_upload(
    request: Request,
    caller: Authenticated,
    services: Services,
    format: Format = None,
    include_embedding: Annotated[
        bool, Query(description="Adds a 768-d embedding to the result (PRO and Scale).")
    ] = False,
) -> JobEnvelope:
    """Send raw audio bytes (MP3, WAV, FLAC, OGG, M4A, AAC, AIFF, WebM) and get a job.

    Ten credits are reserved, and refunded if the job fails. Poll `GET /v1/jobs/{job_id}` until
    `status` is `complete` or `failed`.
    """
    tier = services.tiers[caller.tier]
    require_gpu(services.tiers, tier)
    if include_embedding:
        require_embedding(services.tiers, tier)
    media_type = check_audio_type(request.headers.get("content-type", ""))
    check_length(request.headers.get("content-length"), tier.upload_bytes)
    options = AnalysisOptions(format=format, include_embedding=include_embedding)
    job = await services.analysis.submit_upload(
        caller, tier, body_chunks(request), media_type, options
    )
    return await job_envelope(request, services, caller, job, format)


@router.post(
    "/v1/audio-features/url",
    status_code=202,
    response_model=JobEnvelope,
    responses=error_responses(400, 401, 402, 429, 503),
    summary="Analyse audio at a URL",
)
async def analyse_url(
    request: Request,
    caller: Authenticated,
    services: Services,
    body: UrlAnalysisRequest,
    format: Format = None,
) -> JobEnvelope:
    """Name a public HTTP(S) address that returns audio bytes directly, and get a job.

    No HTML page, no authentication, at most three redirects, no private addresses. Otherwise as the
    upload: ten credits reserved, refunded if the job fails, polled at `GET /v1/jobs/{job_id}`.
    """
    tier = services.tiers[caller.tier]
    require_gpu(services.tiers, tier)
    if body.include_embedding:
        require_embedding(services.tiers, tier)
    options = AnalysisOptions(format=format, include_embedding=body.include_embedding)
    job = await services.analysis.submit_url(caller, tier, body.url, options)
    return await job_envelope(request, services, caller, job, format)
