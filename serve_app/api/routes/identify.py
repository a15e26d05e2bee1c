"""Identify a track from its audio."""

from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request

from serve_app.api.door.audio_body import check_length, is_json, read_asset_input
from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Computer
from serve_app.api.door.multipart import FORM_ROOM, file_bytes
from serve_app.api.door.request import Services, error_responses, request_id
from serve_app.api.wire.identification import EnrichmentBody, Identification
from serve_app.api.wire.meta import meta_of
from serve_app.services.identify.identify import IdentifyAnswer

router = APIRouter(tags=["Identification"], route_class=IdempotentRoute)

FORM_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "Audio, three seconds or more.",
                        }
                    },
                }
            },
            "application/json": {"schema": {"$ref": "#/components/schemas/AssetInput"}},
        },
    }
}


@router.post(
    "/v1/identify",
    response_model=Identification,
    responses=error_responses(400, 401, 402, 404, 409, 413, 415, 429, 500, 502, 503),
    openapi_extra=idempotent(FORM_BODY),
    summary="Identify a track",
)
async def identify(request: Request, caller: Computer, services: Services) -> Identification:
    """Send audio as the part `file` of a multipart form (or name an asset) and learn who it is.

    A fingerprint index of our own is asked first, then the services that the operator has set up.
    Three credits, also when nothing matches; the same audio again is a free cache hit. Nothing is
    charged when no service could answer (502) or the audio is unfit (400).
    """
    tier = services.tiers[caller.tier]
    charge_id = request_id(request)
    if is_json(request.headers.get("content-type", "")):
        asset_id = await read_asset_input(request)
        answer = await services.identify.identify_asset(caller, tier, asset_id, charge_id)
    else:
        check_length(request.headers.get("content-length"), tier.upload_bytes + FORM_ROOM)
        async with aclosing(file_bytes(request, tier.upload_bytes)) as chunks:
            answer = await services.identify.identify(caller, tier, chunks, charge_id)
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
