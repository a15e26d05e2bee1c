"""Identify a track from its audio."""

from fastapi import APIRouter, Request

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Computer
from serve_app.api.door.request import Offered, Services, error_responses, request_id
from serve_app.api.door.sent_audio import AUDIO_BODY, SentAudio
from serve_app.api.wire.identification import EnrichmentBody, Identification
from serve_app.api.wire.meta import meta_of
from serve_app.services.identify.identify import IdentifyAnswer

router = APIRouter(tags=["Identification"], route_class=IdempotentRoute)


@router.post(
    "/v1/identify",
    response_model=Identification,
    responses=error_responses(400, 401, 402, 404, 409, 413, 415, 429, 500, 502, 503),
    openapi_extra=idempotent(AUDIO_BODY),
    summary="Identify a track",
)
async def identify(
    request: Request, caller: Computer, services: Services, offered: Offered
) -> Identification:
    """Send three seconds of audio or more and get its track: a form's `file`, bytes, or JSON.

    As JSON, name an asset, `{"asset_id": "afa_…"}`, or a public address, `{"url": "https://…"}`.

    afa asks its own fingerprint index first, then the services that the operator has set up. Costs
    three credits, even if nothing matches. Audio that your account has asked about before, or a
    copy of it, is a free cache hit. An answer is not kept if a service that it needed failed or
    could not be asked; one without a match is forgotten after six hours, or when the index changes.
    Nothing is charged if no service could answer (502) or the audio cannot be used (400).
    """
    tier = services.tiers[caller.tier]
    audio = SentAudio(request, services, caller, tier)
    answer = await offered.identify.identify(caller, tier, audio, request_id(request))
    return to_wire(request, answer)


def to_wire(request: Request, answer: IdentifyAnswer) -> Identification:
    """Write an answer."""
    found = answer.identified
    enrichment = None
    if found.enrichment is not None:
        enrichment = EnrichmentBody.model_validate(found.enrichment)
    return Identification(
        matched=found.matched,
        artist=found.artist,
        title=found.title,
        album=found.album,
        year=found.year,
        isrc=found.isrc,
        confidence=found.confidence,
        source_service=found.source_service,
        services_tried=dict(found.services_tried),
        enrichment=enrichment,
        meta=meta_of(request, answer.cache, answer.credits_used, answer.balance.remaining),
    )
