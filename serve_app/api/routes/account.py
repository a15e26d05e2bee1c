"""The caller's account and its webhook."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from serve_app.api.door.idempotency import IdempotentRoute
from serve_app.api.door.limits import Door, Reader
from serve_app.api.door.request import Services, error_responses
from serve_app.api.wire.account import (
    Account,
    AutoTopup,
    Credits,
    TierLimits,
    Usage,
    WebhookBody,
    WebhookRequest,
)
from serve_app.domain.errors import BadRequestError, NotFoundError
from serve_app.domain.keys import Caller
from serve_app.domain.payments import TopupStatus
from serve_app.providers.web.url_guard import InvalidUrlError
from serve_app.services import bpm, embedding
from serve_app.services.gate import share_of
from serve_app.store.limits import FAILED_AUTH_PER_MINUTE, JOB_POLL_BURST, JOB_POLLS_PER_S

router = APIRouter(tags=["Account"], route_class=IdempotentRoute)

WebhookOwner = Annotated[Caller, Depends(Door("read", "compute"))]


@router.get(
    "/v1/account",
    response_model=Account,
    responses=error_responses(401, 429, 503),
    summary="Balance, usage and limits",
)
async def get_account(caller: Reader, services: Services) -> Account:
    """Describe the account of the API key: credits by bucket, usage of this month, limits. Free."""
    tier = services.tiers[caller.tier]
    balance = await services.ledger.balance(caller.account, caller.tier)
    topup = await services.topups.status(caller.account)
    return Account(
        account=caller.account,
        key_id=caller.key_id,
        is_test=caller.is_test,
        tier=tier.name,
        scopes=sorted(caller.scopes),
        credits=Credits(
            remaining=balance.remaining,
            monthly_grant=balance.grant,
            packs=balance.packs,
            debt=balance.debt,
            held=balance.held,
        ),
        usage=Usage(
            period=balance.period,
            period_ends=balance.period_ends,
            credits_granted=balance.granted,
            cache_lookups_used=balance.lookups_used,
            cache_lookups_included=tier.cache_lookups,
            open_jobs=balance.open_jobs,
            stored_bytes=await services.assets.stored_bytes(caller),
        ),
        limits=TierLimits(
            upload_bytes=tier.upload_bytes,
            asset_lifetime_s=tier.asset_lifetime_s,
            storage_bytes=tier.storage_bytes,
            max_audio_s=tier.max_audio_s,
            gpu=tier.gpu,
            embedding=tier.embedding,
            grace_credits=tier.grace_credits,
            requests_per_minute=dict(tier.rate),
            identify_in_flight=tier.identify_in_flight,
            uploads_in_flight=tier.uploads_in_flight,
            bpm_in_flight=share_of(bpm.MAX_IN_FLIGHT, tier.name),
            embed_in_flight=share_of(embedding.MAX_IN_FLIGHT, tier.name),
            job_polls_per_second=JOB_POLLS_PER_S,
            job_polls_at_once=JOB_POLL_BURST,
            failed_authentications_per_minute=FAILED_AUTH_PER_MINUTE,
        ),
        prices=asdict(services.prices),
        auto_topup=None if topup is None else auto_topup(topup),
        grace_ends=balance.grace_ends,
    )


def auto_topup(status: TopupStatus) -> AutoTopup:
    """Write automatic top-up as the API shows it."""
    return AutoTopup(
        enabled=status.is_enabled,
        off_reason=None if status.is_enabled else status.off_reason,
        threshold=status.settings.threshold,
        pack_credits=status.settings.pack_credits,
        price_minor=status.settings.price_minor,
        cap_minor=status.settings.cap_minor,
        spent_minor=status.spent_minor,
    )


@router.put(
    "/v1/account/webhook",
    response_model=WebhookBody,
    responses=error_responses(400, 401, 413, 415, 429, 503),
    summary="Set the webhook",
)
async def put_webhook(
    caller: WebhookOwner, services: Services, body: WebhookRequest
) -> WebhookBody:
    """Have the end of every job posted to a URL, signed as Standard Webhooks says.

    The secret stays the same when the URL changes; delete the webhook first to get a new one.
    """
    try:
        services.url_guard.check(body.url)
    except InvalidUrlError as error:
        raise BadRequestError(f"url: {error}") from error
    hook = await services.webhooks.register(caller.account, body.url)
    return WebhookBody(url=hook.url, secret=hook.secret)


@router.get(
    "/v1/account/webhook",
    response_model=WebhookBody,
    responses=error_responses(401, 404, 429, 503),
    summary="Read the webhook",
)
async def get_webhook(caller: WebhookOwner, services: Services) -> WebhookBody:
    """Get the webhook's URL and secret."""
    hook = await services.webhooks.get(caller.account)
    if hook is None:
        raise NotFoundError("no webhook is set; PUT /v1/account/webhook sets one")
    return WebhookBody(url=hook.url, secret=hook.secret)


@router.delete(
    "/v1/account/webhook",
    status_code=204,
    response_class=Response,
    responses=error_responses(401, 429, 503),
    summary="Remove the webhook",
)
async def delete_webhook(caller: WebhookOwner, services: Services) -> None:
    """Stop the messages; it is no error if there is no webhook."""
    await services.webhooks.remove(caller.account)
