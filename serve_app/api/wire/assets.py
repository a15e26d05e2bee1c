"""Assets on the wire."""

from datetime import datetime

from pydantic import Field

from serve_app.api.wire.bodies import RequestModel, WireModel
from serve_app.api.wire.forms import AssetId


class AssetUpload(WireModel):
    """A stored asset."""

    asset_id: str = Field(
        description="Id of the asset; send it instead of the audio.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    sha256: str = Field(description="Hex SHA-256 of the stored bytes.")
    size_bytes: int = Field(ge=0, description="Size of the stored file in bytes.")
    expires_at: datetime = Field(description="When the asset is deleted.")


class AssetInput(RequestModel):
    """An uploaded asset instead of the audio itself."""

    asset_id: AssetId = Field(
        description="As returned by `POST /v1/assets/upload`.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )


class UrlInput(RequestModel):
    """A public address that returns audio bytes, instead of the audio itself."""

    url: str = Field(
        min_length=1,
        max_length=4096,
        description="Public HTTP(S) address that returns audio bytes directly: no HTML page, no "
        "login.",
        json_schema_extra={"format": "uri"},
        examples=["https://example.org/track.mp3"],
    )


class AssetMetadata(AssetUpload):
    """What is known about an asset."""

    content_type: str = Field(description="MIME type of the uploaded file.")
    created_at: datetime = Field(description="When it was first uploaded.")


class AssetListResponse(WireModel):
    """One page of assets, newest first."""

    items: list[AssetMetadata] = Field(description="Assets that have not expired.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(ge=0, description="Number of items in this page.")
