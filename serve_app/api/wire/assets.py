"""Assets on the wire."""

from datetime import datetime

from pydantic import Field

from serve_app.api.wire.bodies import WireModel


class AssetUpload(WireModel):
    """A stored asset."""

    asset_id: str = Field(examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"])
    sha256: str = Field(description="Hex SHA-256 of the stored bytes.")
    size_bytes: int
    expires_at: datetime = Field(description="When the asset is deleted.")


class AssetInput(WireModel):
    """An uploaded asset instead of the audio itself."""

    asset_id: str = Field(
        pattern="^afa_",
        max_length=64,
        description="As returned by `POST /v1/assets/upload`.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )


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
