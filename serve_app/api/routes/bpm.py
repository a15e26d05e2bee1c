"""Detect the tempo of audio."""

from fastapi import APIRouter, Request

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Computer
from serve_app.api.door.request import Offered, Services, Within, error_responses, request_id
from serve_app.api.door.sent_audio import AUDIO_BODY, SentAudio
from serve_app.api.wire.meta import meta_of
from serve_app.api.wire.tracks import Bpm

router = APIRouter(tags=["Analysis"], route_class=IdempotentRoute)


@router.post(
    "/v1/bpm",
    response_model=Bpm,
    response_model_exclude_unset=True,
    responses=error_responses(400, 401, 402, 404, 409, 413, 415, 429, 500, 503),
    openapi_extra=idempotent(AUDIO_BODY),
    summary="Detect the tempo",
)
async def detect_bpm(
    request: Request, caller: Computer, services: Services, offered: Offered, tempo_range: Within
) -> Bpm:
    """Send audio and get the tempo at once: raw bytes, a form's `file`, or JSON.

    As JSON, name an asset, `{"asset_id": "afa_…"}`, or a public address, `{"url": "https://…"}`.

    Runs on the CPU, for every tier. Audio that cannot be analysed is not charged.
    """
    tier = services.tiers[caller.tier]
    audio = SentAudio(request, services, caller, tier)
    answer = await offered.bpm.detect(caller, tier, audio, request_id(request), tempo_range)
    named = {}
    if answer.asset is not None:
        named = {
            "asset_id": answer.asset.asset_id,
            "asset_expires_at": answer.asset.expires_at,
        }
    return Bpm(
        tempo=round(answer.features.tempo, 3),
        confidence=round(answer.features.tempo_confidence, 6),
        meta=meta_of(request, "bypass", answer.credits_used, answer.balance.remaining),
        **named,
    )
