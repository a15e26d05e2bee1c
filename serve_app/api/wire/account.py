"""The account and its webhook on the wire."""

from datetime import datetime

from pydantic import Field

from serve_app.api.wire.bodies import RequestModel, WireModel


class Credits(WireModel):
    """The account's credits."""

    remaining: int = Field(
        description="Grant plus packs minus debt; negative within the grace buffer."
    )
    monthly_grant: int = Field(description="What is left of this month's grant.")
    packs: int = Field(description="Prepaid credits; they never expire.")
    debt: int = Field(description="How much of the grace buffer is used.")
    held: int = Field(description="Reserved for work in progress; not included in the others.")


class Usage(WireModel):
    """What was used in this period."""

    period: str = Field(description="UTC month.", examples=["2026-11"])
    period_ends: datetime = Field(description="When the next period and its grant begin.")
    credits_granted: int = Field(description="Credits of this month's grant, used or not.")
    cache_lookups_used: int = Field(description="Cache hits of this period.")
    cache_lookups_included: int = Field(description="Cache hits that cost nothing in a period.")
    open_jobs: int = Field(description="Jobs that are queued or running.")
    stored_bytes: int = Field(
        description="Bytes of assets that have not expired; the same bytes count once."
    )


class TierLimits(WireModel):
    """What the tier allows."""

    upload_bytes: int = Field(description="Largest upload in bytes.")
    asset_lifetime_s: int = Field(description="Seconds until an asset is deleted.")
    storage_bytes: int = Field(description="Most bytes that all assets may have together.")
    max_audio_s: int = Field(description="Longest audio in seconds.")
    gpu: bool = Field(description="Whether full analysis is included.")
    embedding: bool = Field(description="Whether `include_embedding` is included.")
    grace_credits: int = Field(description="How far below zero the balance may go for 24 hours.")
    requests_per_minute: dict[str, int] = Field(description="Requests allowed, by class.")
    identify_in_flight: int = Field(description="Identifications at once.")
    uploads_in_flight: int = Field(
        description="Request bodies being sent at once; short JSON does not count."
    )
    bpm_in_flight: int = Field(description="Requests for tempo worked on at once.")
    embed_in_flight: int = Field(description="Requests for embeddings worked on at once.")
    job_polls_per_second: int = Field(description="Polls of one job.")
    job_polls_at_once: int = Field(description="Polls of one job after a pause.")
    failed_authentications_per_minute: int = Field(description="Failed attempts from one address.")


class AutoTopup(WireModel):
    """Packs bought automatically; amounts in the currency's minor unit."""

    enabled: bool = Field(description="Whether packs are bought.")
    off_reason: str | None = Field(description="Why it is off; null while it is on.")
    threshold: int = Field(description="A pack is bought when fewer credits are left.")
    pack_credits: int = Field(description="Credits of a pack.")
    price_minor: int = Field(description="Price of a pack.")
    cap_minor: int = Field(description="Most that is charged in a UTC month.")
    spent_minor: int = Field(description="This month's charges, including one in progress.")


class Account(WireModel):
    """The account of the API key."""

    account: str = Field(description="Name of the account.")
    key_id: str = Field(description="Id of the API key; it is not secret.")
    is_test: bool = Field(
        description="Whether it is a test key: answers and credits are simulated."
    )
    tier: str = Field(description="Plan of the account.")
    scopes: list[str] = Field(description="What the key may do: `read`, `compute`, `assets`.")
    credits: Credits = Field(description="The balance.")
    usage: Usage = Field(description="Usage of this period.")
    limits: TierLimits = Field(description="Limits of the tier.")
    prices: dict[str, int] = Field(description="Credits per operation.")
    auto_topup: AutoTopup | None = Field(description="Automatic top-up; null if never set up.")
    grace_ends: datetime | None = Field(
        description="When the open debt must be repaid; null without debt."
    )


class WebhookRequest(RequestModel):
    """Where to report that a job has ended."""

    url: str = Field(
        min_length=1,
        max_length=2048,
        description="Public HTTPS or HTTP address that accepts POST requests.",
        json_schema_extra={"format": "uri"},
        examples=["https://example.org/afa"],
    )


class WebhookBody(WireModel):
    """The account's webhook (Standard Webhooks)."""

    url: str = Field(description="Where the end of each job is posted.")
    secret: str = Field(description="Messages are signed with it; starts with `whsec_`.")
