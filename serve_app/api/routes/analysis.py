"""Submit audio for analysis: bytes or a URL in, a job out."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Computer
from serve_app.api.door.request import (
    EmbeddingModel,
    Format,
    Offered,
    Services,
    Within,
    error_responses,
    request_id,
    require_embedding,
    require_gpu,
)
from serve_app.api.door.sent_audio import AUDIO_BODY, SentAudio, address_of
from serve_app.api.services import Operations
from serve_app.api.wire.forms import PLAIN
from serve_app.api.wire.jobs import JobEnvelope, UrlAnalysisRequest, job_envelope
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.ledger.jobs.types import JobRecord
from serve_app.services.audio.audio import Audio
from serve_app.services.jobs.submit import AnalysisOptions

router = APIRouter(tags=["Analysis"], route_class=IdempotentRoute)

Wait = Annotated[
    float,
    Query(
        ge=0,
        le=60,
        description="Seconds to wait for the job to end. If it ends in time the answer is 200 with "
        "the result, else 202.",
    ),
    PLAIN,
]
IncludeEmbedding = Annotated[
    bool, Query(description="Adds a 768-d embedding to the result (PRO and Scale).")
]
DONE: dict[int | str, dict[str, Any]] = {
    200: {"model": JobEnvelope, "description": "The job ended within `wait` seconds."}
}


async def submit(
    offered: Operations,
    caller: Caller,
    tier: Tier,
    audio: Audio,
    options: AnalysisOptions,
    wait_s: float,
) -> JobRecord:
    """Queue a job, and give it as it is after ``wait_s`` seconds or when it ends before."""
    job = await offered.analysis.submit(caller, tier, audio, options)
    if wait_s == 0:
        return job
    try:
        return await offered.analysis.get_job(caller, job.job_id, wait_s)
    except ServiceUnavailableError:
        return job  # it was taken in: the answer must not fail any more


@router.post(
    "/v1/audio-features/upload",
    status_code=202,
    response_model=JobEnvelope,
    responses=DONE | error_responses(400, 401, 402, 404, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(AUDIO_BODY),
    summary="Analyse uploaded audio",
)
async def analyse_upload(
    request: Request,
    response: Response,
    caller: Computer,
    services: Services,
    offered: Offered,
    tempo_range: Within,
    embedding_model: EmbeddingModel,
    format: Format = None,
    include_embedding: IncludeEmbedding = False,
    wait: Wait = 0,
) -> JobEnvelope:
    """Send audio and get a job: raw bytes, the `file` of a form, or JSON.

    MP3, WAV, FLAC, OGG, Opus, M4A, ALAC, AAC, 3GP, AIFF, WebM, MKA, WMA, AC-3, E-AC-3, WavPack,
    TTA, AU, CAF, W64, APE, Musepack, DSF, DFF and AMR are read; tracker formats (MOD, XM, IT,
    S3M) are not.

    As JSON, name an uploaded asset, `{"asset_id": "afa_…"}`, or a public address,
    `{"url": "https://…"}`.

    Ten credits are reserved, and refunded if the job fails. With `?wait=30` the answer is 200 with
    the result if the job ends in time. Otherwise poll `GET /v1/jobs/{job_id}` until `status` is
    `complete` or `failed`.
    """
    tier = services.tiers[caller.tier]
    include_embedding = include_embedding or embedding_model is not None
    if include_embedding:
        require_embedding(services.tiers, tier)
    require_gpu(services.tiers, tier)
    audio = SentAudio(request, services, caller, tier)
    options = AnalysisOptions(
        request_id(request),
        format,
        include_embedding,
        tempo_range=tempo_range,
        embedding_model=embedding_model or "",
    )
    job = await submit(offered, caller, tier, audio, options, wait)
    response.status_code = 200 if job.state.is_terminal else 202
    return await job_envelope(request, services, caller, job, format)


@router.post(
    "/v1/audio-features/url",
    status_code=202,
    response_model=JobEnvelope,
    responses=DONE | error_responses(400, 401, 402, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(),
    summary="Analyse audio at a URL",
)
async def analyse_url(
    request: Request,
    response: Response,
    caller: Computer,
    services: Services,
    offered: Offered,
    body: UrlAnalysisRequest,
    tempo_range: Within,
    embedding_model: EmbeddingModel,
    format: Format = None,
    include_embedding: IncludeEmbedding = False,
    wait: Wait = 0,
) -> JobEnvelope:
    """Send a public HTTP(S) address that returns audio bytes directly, and get a job.

    No HTML page, no authentication, at most three redirects, no private addresses. The rest is as
    for an upload: ten credits are reserved, and refunded if the job fails; poll the job at
    `GET /v1/jobs/{job_id}`.
    """
    tier = services.tiers[caller.tier]
    include_embedding = include_embedding or body.include_embedding or embedding_model is not None
    if include_embedding:
        require_embedding(services.tiers, tier)
    require_gpu(services.tiers, tier)
    options = AnalysisOptions(
        request_id(request),
        format,
        include_embedding,
        tempo_range=tempo_range,
        embedding_model=embedding_model or "",
    )
    audio = address_of(services, caller, tier, body.url)
    job = await submit(offered, caller, tier, audio, options, wait)
    response.status_code = 200 if job.state.is_terminal else 202
    return await job_envelope(request, services, caller, job, format)
