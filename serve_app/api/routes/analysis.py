"""Submit audio for analysis: bytes or a URL in, a job out."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from serve_app.api.door.audio_body import AUDIO_OR_ASSET_BODY, audio_of
from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Computer
from serve_app.api.door.request import (
    Format,
    Offered,
    Services,
    error_responses,
    request_id,
    require_embedding,
    require_gpu,
)
from serve_app.api.wire.jobs import JobEnvelope, UrlAnalysisRequest, job_envelope
from serve_app.services.audio.audio import AudioAddress
from serve_app.services.jobs.submit import AnalysisOptions

router = APIRouter(tags=["Analysis"], route_class=IdempotentRoute)


@router.post(
    "/v1/audio-features/upload",
    status_code=202,
    response_model=JobEnvelope,
    responses=error_responses(400, 401, 402, 404, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(AUDIO_OR_ASSET_BODY),
    summary="Analyse uploaded audio",
)
async def analyse_upload(
    request: Request,
    caller: Computer,
    services: Services,
    offered: Offered,
    format: Format = None,
    include_embedding: Annotated[
        bool, Query(description="Adds a 768-d embedding to the result (PRO and Scale).")
    ] = False,
) -> JobEnvelope:
    """Send raw audio bytes and get a job.

    MP3, WAV, FLAC, OGG, Opus, M4A, ALAC, AAC, 3GP, AIFF, WebM, MKA, WMA, AC-3, E-AC-3, WavPack,
    TTA, AU, CAF, W64, APE and AMR are read; tracker formats (MOD, XM, IT, S3M) are not.

    Or name an uploaded asset as JSON: `{"asset_id": "afa_…"}`.

    Ten credits are reserved, and refunded if the job fails. Poll `GET /v1/jobs/{job_id}` until
    `status` is `complete` or `failed`.
    """
    tier = services.tiers[caller.tier]
    require_gpu(services.tiers, tier)
    if include_embedding:
        require_embedding(services.tiers, tier)
    audio = audio_of(request, services, caller, tier)
    options = AnalysisOptions(format, include_embedding, request_id(request))
    job = await offered.analysis.submit(caller, tier, audio, options)
    return await job_envelope(request, services, caller, job, format)


@router.post(
    "/v1/audio-features/url",
    status_code=202,
    response_model=JobEnvelope,
    responses=error_responses(400, 401, 402, 409, 413, 429, 503),
    openapi_extra=idempotent(),
    summary="Analyse audio at a URL",
)
async def analyse_url(
    request: Request,
    caller: Computer,
    services: Services,
    offered: Offered,
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
    options = AnalysisOptions(format, body.include_embedding, request_id(request))
    audio = AudioAddress(services.url_guard, body.url)
    job = await offered.analysis.submit(caller, tier, audio, options)
    return await job_envelope(request, services, caller, job, format)
