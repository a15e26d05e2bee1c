"""The account and its webhook on the wire."""

from datetime import datetime

from pydantic import Field

from serve_app.api.wire.bodies import WireModel


class Credits(WireModel):
    """The account's credits."""

    remaining: int = Field(description="Grant plus packs minus debt; negative inside the grace.")
    monthly_grant: int = Field(description="Left of this month's grant.")
    packs: int = Field(description="Prepaid; never expire.")
    debt: int = Field(description="Used of the grace buffer.")
    held: int = Field(description="Set aside for what runs now; not part of the others.")


class Usage(WireModel):
    """What was used in this period."""

    period: str = Field(description="UTC month.", examples=["2026-11"])
    period_ends: datetime
    credits_granted: int
    cache_lookups_used: int
    cache_lookups_included: int
    open_jobs: int
    stored_bytes: int = Field(description="Of the assets that live; the same bytes count once.")


class TierLimits(WireModel):
    """What the tier allows."""

    upload_bytes: int
    asset_lifetime_s: int
    storage_bytes: int = Field(description="Most that all assets may have together.")
    max_audio_s: int
    gpu: bool = Field(description="Whether full analysis is included.")
    embedding: bool
    grace_credits: int
    requests_per_minute: dict[str, int] = Field(description="By class of request.")
    identify_in_flight: int
    uploads_in_flight: int = Field(description="Bodies on their way at once; JSON does not count.")
    job_polls_per_second: int = Field(description="Of one job.")
    job_polls_at_once: int = Field(description="Of one job, after a pause.")
    failed_authentications_per_minute: int = Field(description="From one address.")


class AutoTopup(WireModel):
    """Packs bought automatically; amounts in the currency's minor unit."""

    enabled: bool
    off_reason: str | None = Field(description="Why it is off; null while it is on.")
    threshold: int = Field(description="A pack is bought when fewer credits are left.")
    pack_credits: int
    price_minor: int = Field(description="Price of a pack.")
    cap_minor: int = Field(description="Most that a UTC month's charges come to.")
    spent_minor: int = Field(description="This month's charges, with the one under way.")


class Account(WireModel):
    """The account of the API key."""

    account: str
    key_id: str
    is_test: bool = Field(description="A test key: simulated answers and credits.")
    tier: str
    scopes: list[str]
    credits: Credits
    usage: Usage
    limits: TierLimits
    prices: dict[str, int] = Field(description="Credits per operation.")
    auto_topup: AutoTopup | None = Field(description="Automatic top-up; null if never set up.")
    grace_ends: datetime | None = Field(
        description="When the open debt must be repaid; null without debt."
    )


class WebhookRequest(WireModel):
    """Where to tell that a job has ended."""

    url: str = Field(
        min_length=1,
        max_length=2048,
        description="Public HTTPS or HTTP address that takes POST requests.",
        json_schema_extra={"format": "uri"},
        examples=["https://example.org/afa"],
    )


class WebhookBody(WireModel):
    """The account's webhook (Standard Webhooks)."""

    url: str
    secret: str = Field(description="Messages are signed with it; starts with `whsec_`.")
