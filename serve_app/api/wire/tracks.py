"""Wire shapes of look-ups, assets, tempo and beat grids, letter for letter the specification's."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from serve_app.api.wire.schemas import (
    AssetUpload,
    ExtendedFeatures,
    Features,
    KeyName,
    Meta,
    MoodTagBody,
    SpotifyFeatures,
    Unit,
    WireModel,
)

TRACK_ID_EXAMPLE = "0AfaDemoTrack000000001"


class FeaturesAnswer(Features):
    """Audio features in the canonical shape."""

    meta: Meta = Field(alias="_meta")


class ExtendedSpotifyFeatures(SpotifyFeatures):
    """Audio features in Spotify's shape with the service's own fields."""

    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="By falling score.")
    tempo_confidence: Unit
    key_confidence: Unit
    models: dict[str, str] = Field(description="Role to id of the checkpoint that made it.")


def _id_list(value: Any) -> Any:
    """Tell a missing list from a malformed one in words that help."""
    if not isinstance(value, list):
        raise ValueError("must be an array of 1 to 100 track ids")
    return value


class BatchRequest(WireModel):
    """Which tracks to look up."""

    ids: Annotated[
        list[Annotated[str, Field(strict=True, max_length=2048)]], BeforeValidator(_id_list)
    ] = Field(
        min_length=1,
        max_length=100,
        description="Track IDs in any supported form; duplicates are allowed.",
        examples=[[TRACK_ID_EXAMPLE, "isrc:QZAFA2600001"]],
    )
    extended: bool = Field(
        False,
        description="Adds fields beyond the Spotify-compatible set: camelot, mix_in, mix_out, "
        "mood_tags and more.",
    )


class BatchResponse(WireModel):
    """Features of many tracks, in the order of the request."""

    audio_features: list[
        ExtendedSpotifyFeatures | SpotifyFeatures | ExtendedFeatures | Features | None
    ] = Field(description="null where an ID could not be resolved; such slots are not charged.")
    meta: Meta = Field(alias="_meta")


class KeyBpm(WireModel):
    """Tempo and key alone."""

    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.", examples=[124.0])
    key: KeyName | None = Field(description="Musical key; null when there is none.")
    mode: str | None = Field(description="`major` or `minor`; null when there is no key.")
    camelot: str | None = Field(
        description="Camelot wheel notation; null when there is no key.", examples=["8A"]
    )
    meta: Meta = Field(alias="_meta")


class ResolvedTrack(WireModel):
    """One track's identifiers on every platform; null where unknown."""

    mbid: str | None = Field(description="MusicBrainz recording ID.")
    isrc: str | None = Field(examples=["QZAFA2600001"])
    spotify_id: str | None
    apple_id: str | None
    deezer_id: str | None
    youtube_id: str | None
    artist: str = Field(description="Empty when unknown (uploads).")
    title: str = Field(description="Empty when unknown (uploads).")
    meta: Meta = Field(alias="_meta")


class BeatGridBody(WireModel):
    """Where the beats of a track are."""

    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.")
    downbeat: float = Field(ge=0, description="Seconds of the first downbeat.")
    beats: list[float] = Field(description="Seconds of every beat.")
    downbeats: list[float] = Field(description="Seconds of the first beat of every bar.")
    tempo_source: str = Field(
        description="`verified`: a person checked the tempo, and the grid follows it; "
        "`computed`: from the audio.",
        examples=["verified"],
    )
    meta: Meta = Field(alias="_meta")


class AssetInput(WireModel):
    """An uploaded asset instead of the audio itself."""

    asset_id: str = Field(
        pattern="^afa_",
        max_length=64,
        description="As returned by `POST /v1/assets/upload`.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )


class Bpm(WireModel):
    """The tempo of the audio that was sent."""

    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.", examples=[128.0])
    confidence: Unit
    asset_id: str | None = Field(None, description="The asset used; only when one was named.")
    asset_expires_at: datetime | None = Field(None, description="Only when an asset was named.")
    meta: Meta = Field(alias="_meta")


class AssetMetadata(AssetUpload):
    """What is known of an asset."""

    content_type: str = Field(description="MIME type of the uploaded file.")
    created_at: datetime


class AssetListResponse(WireModel):
    """One page of assets, newest first."""

    items: list[AssetMetadata]
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(ge=0, description="Number of items in this page.")


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


class TierLimits(WireModel):
    """What the tier allows."""

    upload_bytes: int
    asset_lifetime_s: int
    max_audio_s: int
    gpu: bool = Field(description="Whether full analysis is included.")
    embedding: bool
    grace_credits: int
    requests_per_minute: dict[str, int] = Field(description="By class of request.")
    identify_in_flight: int


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
