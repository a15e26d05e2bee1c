"""Assets: uploaded audio that its owner may refer to until it expires."""

import re
from dataclasses import dataclass
from datetime import datetime

from serve_app.domain.ulid import ALPHABET, LENGTH

PREFIX = "afa_"
ID_PATTERN = re.compile(rf"{PREFIX}[{ALPHABET}]{{{LENGTH}}}")


@dataclass(frozen=True, slots=True)
class AssetRecord:
    """One stored file. ``track`` is the recording that its owner says it holds, if any."""

    asset_id: str
    owner: str
    sha256: str
    size_bytes: int
    content_type: str
    created_at: datetime
    expires_at: datetime
    track: str | None = None

    @property
    def object_key(self) -> str:
        """Object key of the asset's bytes."""
        return asset_object_key(self.owner, self.asset_id)


@dataclass(frozen=True, slots=True)
class NewAsset:
    """A file that has just been stored, before its record exists.

    Attributes:
        quota_bytes: Most bytes of all the owner's living assets together, this one included.
    """

    asset_id: str
    owner: str
    sha256: str
    size_bytes: int
    content_type: str
    lifetime_s: int
    quota_bytes: int
    track: str | None = None


def is_asset_id(text: str) -> bool:
    """Return whether ``text`` has the form of an asset id."""
    return ID_PATTERN.fullmatch(text) is not None


def asset_object_key(owner: str, asset_id: str) -> str:
    """Return the object key of an asset; the owner's name is in hex, so any name works."""
    return f"assets/{owner.encode().hex()}/{asset_id}"


def parse_object_key(key: str) -> tuple[str, str]:
    """Return the owner and asset id of an asset's object key.

    Raises:
        ValueError: It is not the key of an asset.
    """
    prefix, owner, asset_id = key.split("/")
    if prefix != "assets" or not is_asset_id(asset_id):
        raise ValueError(f"not an asset's object key: {key!r}")
    return bytes.fromhex(owner).decode(), asset_id
