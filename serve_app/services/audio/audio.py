"""Audio that comes with a request: a body, an asset, or an address.

Invariant: none of it is read before a service asks for it, so that a refusal at a gate costs
neither an upload nor a query of the store.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from urllib.parse import urlsplit

from serve_app.domain.assets import AssetRecord
from serve_app.domain.errors import (
    AssetNotFoundError,
    BadRequestError,
    ServiceUnavailableError,
    UrlFetchError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.objects import ObjectNotFoundError
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.jobs.types import ObjectSource, UrlSource
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.url_guard import InvalidUrlError, UrlError
from serve_app.services.audio.assets import NO_ASSET, AssetsService
from serve_app.services.audio.intake import UPLOADS, store_body
from serve_app.services.gate import BodyPlaces
from serve_app.store.objects import READ_BYTES, ObjectStore


@dataclass(frozen=True, slots=True)
class StoredAudio:
    """Audio in the object store; ``asset`` is the one that the request named."""

    key: str
    sha256: str
    asset: AssetRecord | None = None


class Audio(Protocol):
    """Bytes that a request sends or names."""

    def chunks(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Provide the bytes, to be read once; raises as `stored`."""
        ...

    def stored(self) -> AbstractAsyncContextManager[StoredAudio]:
        """Keep the bytes in the object store while the block runs.

        Raises:
            PayloadTooLargeError: Larger than the tier's upload size.
            AssetNotFoundError: The asset expired, never existed, or is another owner's.
            UrlFetchError: The address returns no audio.
            BadRequestError: There are no bytes.
        """
        ...

    async def source(self, job_id: str) -> ObjectSource | UrlSource:
        """Store the bytes for a job, which may outlive the asset; raises as `stored`."""
        ...


class AudioBody:
    """Raw bytes, or the file of a form."""

    def __init__(
        self,
        objects: ObjectStore,
        chunks: AsyncIterator[bytes],
        tier: Tier,
        media_type: str = "",
    ) -> None:
        self._objects = objects
        self._chunks = chunks
        self._tier = tier
        self._media_type = media_type

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Audio.chunks`."""
        yield self._chunks

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[StoredAudio]:
        """See `Audio.stored`."""
        async with temporarily_stored(self._objects, self._chunks, self._tier) as stored:
            yield stored

    async def source(self, job_id: str) -> ObjectSource:
        """See `Audio.source`."""
        key = f"{UPLOADS}/{job_id}"
        body = await store_body(self._objects, key, self._chunks, self._tier)
        return ObjectSource(key, body.sha256, self._media_type)


class AudioAsset:
    """An uploaded asset."""

    def __init__(
        self,
        objects: ObjectStore,
        assets: AssetsService,
        asset_id: str,
        caller: Caller,
        tier: Tier,
    ) -> None:
        self._objects = objects
        self._assets = assets
        self._asset_id = asset_id
        self._caller = caller
        self._tier = tier

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Audio.chunks`."""
        asset = await self._asset()
        try:
            yield self._objects.read(asset.object_key)
        except ObjectNotFoundError as error:
            raise AssetNotFoundError(NO_ASSET) from error

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[StoredAudio]:
        """See `Audio.stored`."""
        asset = await self._asset()
        yield StoredAudio(asset.object_key, asset.sha256, asset)

    async def source(self, job_id: str) -> ObjectSource:
        """See `Audio.source`; raises `PayloadTooLargeError` also if the tier now allows less."""
        asset = await self._asset()
        key = f"{UPLOADS}/{job_id}"
        async with self.chunks() as chunks:
            await store_body(self._objects, key, chunks, self._tier)
        return ObjectSource(key, asset.sha256, asset.content_type)

    async def _asset(self) -> AssetRecord:
        return await self._assets.get(self._caller, self._asset_id)


class AudioAddress:
    """A public address: a job's worker fetches from it; for all else it is fetched here.

    Invariant: while it is fetched here, or waits to be, it holds one of its owner's places for
    bodies.
    """

    def __init__(
        self,
        objects: ObjectStore,
        urls: AudioUrlFetcher,
        places: BodyPlaces,
        caller: Caller,
        tier: Tier,
        url: str,
    ) -> None:
        self._objects = objects
        self._urls = urls
        self._places = places
        self._caller = caller
        self._tier = tier
        self._url = url

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Audio.chunks`; for a test key the address's text is the audio, unfetched."""
        self._check()
        if self._caller.is_test:
            yield one_chunk(self._url.encode())
            return
        with TemporaryDirectory(prefix="afa-url-") as folder:
            path = Path(folder) / "audio"
            async with self._places.fetching(self._caller.owner, self._tier.uploads_in_flight):
                try:
                    await self._urls.fetch(self._url, path, self._tier.upload_bytes)
                except UrlError as error:
                    raise UrlFetchError(f"url: {error}") from error
            yield file_chunks(path)

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[StoredAudio]:
        """See `Audio.stored`."""
        async with AsyncExitStack() as kept:
            async with self.chunks() as chunks:
                stored = await kept.enter_async_context(
                    temporarily_stored(self._objects, chunks, self._tier)
                )
            yield stored

    async def source(self, job_id: str) -> UrlSource:
        """See `Audio.source`; only the address's form is checked."""
        del job_id  # nothing is kept
        self._check()
        return UrlSource(self._url, urlsplit(self._url).hostname)

    def _check(self) -> None:
        try:
            self._urls.check(self._url)
        except InvalidUrlError as error:
            raise BadRequestError(f"url: {error} You can upload the file instead.") from error


@asynccontextmanager
async def temporarily_stored(
    objects: ObjectStore, chunks: AsyncIterator[bytes], tier: Tier
) -> AsyncIterator[StoredAudio]:
    """Keep bytes in the object store while the block runs; raises as `store_body`.

    If they cannot be deleted then, they are swept later: a charged answer must still be given.
    """
    key = f"{UPLOADS}/body_{new_ulid()}"
    body = await store_body(objects, key, chunks, tier)
    try:
        yield StoredAudio(key, body.sha256)
    finally:
        with suppress(ServiceUnavailableError):
            await objects.delete(key)


async def one_chunk(content: bytes) -> AsyncIterator[bytes]:
    """Yield bytes as a stream."""
    yield content


async def file_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yield the bytes of a file as a stream."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, READ_BYTES):
            yield chunk
