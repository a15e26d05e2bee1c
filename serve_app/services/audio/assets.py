"""Keep uploaded audio for its owner until it expires.

Invariant: an asset whose record is gone is at once treated as one that never existed; the next
sweep deletes its bytes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pipelines.audio.decode import DecodeLimits, check_head
from pipelines.audio.waveform import AudioError
from serve_app.domain.assets import (
    PREFIX,
    AssetRecord,
    NewAsset,
    asset_object_key,
    is_asset_id,
)
from serve_app.domain.errors import (
    AssetNotFoundError,
    BadRequestError,
    PayloadTooLargeError,
    UnprocessableAudioError,
    UnsupportedMediaTypeError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.services.audio.decoding import counted_decoding
from serve_app.services.audio.intake import UPLOADS, store_body
from serve_app.services.audio.signatures import HEAD_BYTES, is_surely_no_audio, media_type_of
from serve_app.store.assets import Assets
from serve_app.store.objects import ObjectStore

logger = logging.getLogger(__name__)

CHECK_LIMITS = DecodeLimits(cpu_s=5, wall_s=20.0, address_space_bytes=1 << 29)
"""Limits for decoding an upload's first seconds, which takes some hundredths of a second."""

NO_ASSET = "no such asset; assets expire with their tier's lifetime"
ORPHAN_AGE = timedelta(hours=2)
"""Older uploads belong to no job, as none waits and runs that long."""


@dataclass(frozen=True, slots=True)
class AssetPage:
    """One page of a listing; ``next_cursor`` is None at the end."""

    items: list[AssetRecord]
    next_cursor: str | None


class AssetsService:
    """Stores, lists and reads assets, and deletes what has expired."""

    def __init__(self, assets: Assets, objects: ObjectStore) -> None:
        self._assets = assets
        self._objects = objects

    async def upload(
        self,
        caller: Caller,
        tier: Tier,
        chunks: AsyncIterator[bytes],
        media_type: str = "",
        track: str | None = None,
    ) -> AssetRecord:
        """Store a body; sending the same bytes again returns the existing asset, unchanged.

        Args:
            caller: Whose asset it becomes.
            tier: Sets size limit and lifetime.
            chunks: The bytes.
            media_type: As sent; determined from the bytes if it is not that of audio.
            track: The recording that it is, according to its owner.

        Raises:
            PayloadTooLargeError: The body exceeded the tier's upload size, or the caller's assets
                would exceed its storage; nothing was stored.
            BadRequestError: The body is empty.
            UnsupportedMediaTypeError: It is text, an image or the like; nothing was stored.
            UnprocessableAudioError: Its beginning cannot be decoded; nothing is kept.
        """
        asset_id = PREFIX + new_ulid()
        key = asset_object_key(caller.owner, asset_id)
        body = CheckedBody(chunks)
        stored = await store_body(self._objects, key, body.chunks(), tier)
        await self._check_audio(key)
        # Without an answer this may still have been done: bytes without a record are swept, but a
        # record without bytes would block every later upload of them.
        new = NewAsset(
            asset_id=asset_id,
            owner=caller.owner,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            content_type=media_type or media_type_of(body.head),
            lifetime_s=tier.asset_lifetime_s,
            quota_bytes=tier.storage_bytes,
            track=track,
        )
        try:
            record = await self._assets.put(new)
        except PayloadTooLargeError:
            await self._objects.delete(key)
            raise
        if record.asset_id != asset_id:
            await self._objects.delete(key)
        return record

    async def _check_audio(self, key: str) -> None:
        """Decode the first seconds in the decoder's sandbox; delete the audio if that fails."""
        try:
            async with self._objects.at_hand(key) as path:
                with counted_decoding():
                    await asyncio.to_thread(check_head, path, CHECK_LIMITS)
        except AudioError as error:
            await self._objects.delete(key)
            raise UnprocessableAudioError(str(error), error.code) from error

    async def get(self, caller: Caller, asset_id: str) -> AssetRecord:
        """Read an asset's record.

        Raises:
            AssetNotFoundError: It expired, never existed, or is another owner's.
        """
        record = None
        if is_asset_id(asset_id):
            record = await self._assets.get(caller.owner, asset_id)
        if record is None:
            raise AssetNotFoundError(NO_ASSET)
        return record

    async def delete(self, caller: Caller, asset_id: str) -> None:
        """Delete an asset and its bytes; a job that uses it has its own copy.

        Raises:
            AssetNotFoundError: It expired, never existed, or is another owner's.
        """
        asset = await self.get(caller, asset_id)
        if not await self._assets.delete(asset):
            raise AssetNotFoundError(NO_ASSET)
        await self._objects.delete(asset.object_key)
        await self._assets.forget(asset.owner, asset.asset_id)

    async def page(self, caller: Caller, limit: int, cursor: str | None) -> AssetPage:
        """List the caller's assets, newest first.

        Raises:
            BadRequestError: The cursor is not an asset id.
        """
        if cursor is not None and not is_asset_id(cursor):
            raise BadRequestError("cursor: pass the next_cursor of the page before")
        items = await self._assets.page(caller.owner, limit + 1, cursor)
        if len(items) <= limit:
            return AssetPage(items, None)
        return AssetPage(items[:limit], items[limit - 1].asset_id)

    async def stored_bytes(self, caller: Caller) -> int:
        """Return the total size of the caller's assets, as the quota counts it."""
        return await self._assets.stored_bytes(caller.owner)

    async def of_track(self, caller: Caller, track: str) -> AssetRecord | None:
        """Return the asset that the caller linked to a recording, if any."""
        return await self._assets.of_track(caller.owner, track)

    async def delete_expired(self) -> int:
        """Delete the bytes of expired assets; return how many."""
        due = await self._assets.due()
        for owner, asset_id in due:
            await self._objects.delete(asset_object_key(owner, asset_id))
            await self._assets.forget(owner, asset_id)
        for owner in {owner for owner, _ in due}:
            await self._assets.stored_bytes(owner)  # drops their sizes, so that they never pile up
        return len(due)

    async def delete_orphans(self, now: datetime | None = None) -> int:
        """Delete old objects that no record or job refers to; return how many."""
        before = (now or datetime.now(UTC)) - ORPHAN_AGE
        n_assets = await self._objects.sweep("assets/", before, self._assets.referenced)
        return n_assets + await self._objects.sweep(f"{UPLOADS}/", before, _keep_none)


class CheckedBody:
    """A body that is passed on only if its beginning, ``head``, may be audio."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.head = b""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Pass the body on.

        Raises:
            UnsupportedMediaTypeError: It cannot be audio.
        """
        waiting = b""
        async for chunk in self._chunks:
            if self.head:
                yield chunk
                continue
            waiting += chunk
            if len(waiting) >= HEAD_BYTES:
                yield self._checked(waiting)
        if not self.head and waiting:
            yield self._checked(waiting)

    def _checked(self, beginning: bytes) -> bytes:
        self.head = beginning[:HEAD_BYTES]
        if is_surely_no_audio(self.head):
            raise UnsupportedMediaTypeError(
                "the body is not audio; send the bytes of an MP3, WAV, FLAC, OGG or M4A file"
            )
        return beginning


async def _keep_none(_keys: Collection[str]) -> Collection[str]:
    return ()
