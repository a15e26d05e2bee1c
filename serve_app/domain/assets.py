"""Assets: uploaded audio that its owner may refer to until it expires."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

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
        """Where its bytes are."""
        return asset_object_key(self.owner, self.asset_id)


@dataclass(frozen=True, slots=True)
class NewAsset:
    """A file that has just been stored, before its record exists."""

    asset_id: str
    owner: str
    sha256: str
    size_bytes: int
    content_type: str
    lifetime_s: int
    track: str | None = None


def is_asset_id(text: str) -> bool:
    """Tell whether ``text`` has the form of an asset id."""
    return ID_PATTERN.fullmatch(text) is not None


def asset_object_key(owner: str, asset_id: str) -> str:
    """Give the object key of an asset; the owner's name is hex, so that any name is a key."""
    return f"assets/{owner.encode().hex()}/{asset_id}"


def parse_object_key(key: str) -> tuple[str, str]:
    """Give owner and asset id of an asset's object key.

    Raises:
        ValueError: Not such a key.
    """
    prefix, owner, asset_id = key.split("/")
    if prefix != "assets" or not is_asset_id(asset_id):
        raise ValueError(f"not an asset's object key: {key!r}")
    return bytes.fromhex(owner).decode(), asset_id


class AssetsPort(Protocol):
    """The records of assets; the owner is part of every key, so a foreign one is absent."""

    async def put(self, asset: NewAsset) -> AssetRecord:
        """Write the record, or give the one its owner already has of the same bytes."""
        ...

    async def get(self, owner: str, asset_id: str) -> AssetRecord | None:
        """Read a record; None when expired, foreign or never written."""
        ...

    async def page(self, owner: str, limit: int, cursor: str | None) -> list[AssetRecord]:
        """Give up to ``limit`` records, newest first, of those older than ``cursor``."""
        ...

    async def of_track(self, owner: str, track: str) -> AssetRecord | None:
        """Give the asset that its owner linked to a recording."""
        ...

    async def due(self) -> list[tuple[str, str]]:
        """Give owner and id of expired assets whose bytes are still to be deleted."""
        ...

    async def forget(self, owner: str, asset_id: str) -> None:
        """Drop an expired asset from the indexes, after its bytes are gone."""
        ...

    async def referenced(self, keys: Collection[str]) -> Collection[str]:
        """Tell which of these object keys belong to a living record."""
        ...
