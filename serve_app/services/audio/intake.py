"""Store a request's body in the object store, within the tier's upload size."""

from collections.abc import AsyncIterator

from serve_app.domain.errors import BadRequestError, PayloadTooLargeError
from serve_app.domain.objects import StoredObject, TooLargeError
from serve_app.domain.tiers import Tier
from serve_app.store.objects import ObjectStore

UPLOADS = "uploads"
"""Objects below this prefix belong to one request or job and are deleted with it."""

EMPTY = "there is no audio: the body or its file is empty (0 bytes)"


async def store_body(
    objects: ObjectStore, key: str, chunks: AsyncIterator[bytes], tier: Tier
) -> StoredObject:
    """Store a body under ``key``.

    Raises:
        PayloadTooLargeError: It exceeded the tier's upload size; nothing was stored.
        BadRequestError: It is empty; nothing was stored.
    """
    try:
        stored = await objects.put_stream(key, chunks, max_bytes=tier.upload_bytes)
    except TooLargeError as error:
        raise PayloadTooLargeError(
            f"the upload is larger than the {tier.upload_bytes} bytes your tier allows"
        ) from error
    if stored.size_bytes == 0:
        await objects.delete(key)
        raise BadRequestError(EMPTY)
    return stored
