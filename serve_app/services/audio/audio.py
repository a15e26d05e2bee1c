"""Audio that a request brings, as one lazy value: a body, an asset, or an address.

Invariant: nothing of it is read before a service asks for it, so that a refusal at a gate costs
neither a body nor a look at the store.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from serve_app.domain.assets import AssetRecord
from serve_app.domain.errors import AssetNotFoundError, BadRequestError
from serve_app.domain.keys import Caller
from serve_app.domain.objects import ObjectNotFoundError, StoredObject
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.jobs.types import ObjectSource, UrlSource
from serve_app.providers.web.url_guard import InvalidUrlError, UrlGuard
from serve_app.services.audio.assets import NO_ASSET, AssetsService
from serve_app.services.audio.intake import UPLOADS, store_body
from serve_app.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class StoredAudio:
    """Audio that lies in the object store; ``asset`` is the one that the request named."""

    key: str
    sha256: str
    asset: AssetRecord | None = None


class Audio(Protocol):
    """Bytes that a request sends or names."""

    def stored(self) -> AbstractAsyncContextManager[StoredAudio]:
        """Have the bytes in the object store while the block runs.

        Raises:
            PayloadTooLargeError: Over the tier's upload size.
            AssetNotFoundError: The asset expired, never existed, or is another owner's.
            BadRequestError: There are none.
        """
        ...

    async def source(self, job_id: str) -> ObjectSource:
        """Keep the bytes for a job, which may outlive the asset; raises as `stored`."""
        ...


class AudioBody:
    """Raw bytes, or the file of a form."""

    def __init__(
        self,
        objects: ObjectStore,
        chunks: Callable[[], AsyncGenerator[bytes, None]],
        tier: Tier,
        media_type: str = "",
    ) -> None:
        self._objects = objects
        self._chunks = chunks
        self._tier = tier
        self._media_type = media_type

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[StoredAudio]:
        """See `Audio.stored`."""
        key = f"{UPLOADS}/body_{new_ulid()}"
        body = await self._store(key)
        try:
            yield StoredAudio(key, body.sha256)
        finally:
            await self._objects.delete(key)

    async def source(self, job_id: str) -> ObjectSource:
        """See `Audio.source`."""
        key = f"{UPLOADS}/{job_id}"
        body = await self._store(key)
        return ObjectSource(key, body.sha256, self._media_type)

    async def _store(self, key: str) -> StoredObject:
        async with aclosing(self._chunks()) as chunks:
            return await store_body(self._objects, key, chunks, self._tier)


class AudioAsset:
    """The asset that a JSON body names."""

    def __init__(
        self,
        objects: ObjectStore,
        assets: AssetsService,
        read_asset_id: Callable[[], Awaitable[str]],
        caller: Caller,
        tier: Tier,
    ) -> None:
        self._objects = objects
        self._assets = assets
        self._read_asset_id = read_asset_id
        self._caller = caller
        self._tier = tier

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[StoredAudio]:
        """See `Audio.stored`."""
        asset = await self._assets.get(self._caller, await self._read_asset_id())
        yield StoredAudio(asset.object_key, asset.sha256, asset)

    async def source(self, job_id: str) -> ObjectSource:
        """See `Audio.source`; raises `PayloadTooLargeError` also when the tier allows less now."""
        asset = await self._assets.get(self._caller, await self._read_asset_id())
        key = f"{UPLOADS}/{job_id}"
        try:
            await store_body(self._objects, key, self._objects.read(asset.object_key), self._tier)
        except ObjectNotFoundError as error:
            raise AssetNotFoundError(NO_ASSET) from error
        return ObjectSource(key, asset.sha256, asset.content_type)


class AudioAddress:
    """A public address; the worker fetches what is there."""

    def __init__(self, guard: UrlGuard, url: str) -> None:
        self._guard = guard
        self._url = url

    async def source(self, job_id: str) -> UrlSource:
        """Check the address's form.

        Raises:
            BadRequestError: Not a fetchable public HTTP(S) address.
        """
        del job_id  # nothing is kept
        try:
            self._guard.check(self._url)
        except InvalidUrlError as error:
            raise BadRequestError(f"url: {error}") from error
        return UrlSource(self._url, urlsplit(self._url).hostname)
