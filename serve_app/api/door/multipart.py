"""Take the one `file` part of a multipart form, bounded in size and in number of parts."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from serve_app.api.door.audio_body import asset_of, body_chunks, check_length, is_json
from serve_app.api.services import ApiServices
from serve_app.domain.errors import (
    BadRequestError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.services.audio.audio import Audio, AudioBody

FORM_ROOM = 64 * 1024
"""What headers and boundaries may add to the file itself."""
MAX_FIELDS = 8
READ_BYTES = 256 * 1024


@asynccontextmanager
async def file_part(request: Request, limit_bytes: int) -> AsyncIterator[AsyncIterator[bytes]]:
    """Spool the form and give the bytes of its `file` part.

    Raises:
        UnsupportedMediaTypeError: Not a multipart form.
        BadRequestError: Malformed, or without a `file` part.
        PayloadTooLargeError: Larger than ``limit_bytes``.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        raise UnsupportedMediaTypeError(
            "send multipart/form-data with the audio in the part `file`"
        )
    try:
        async with aclosing(body_chunks(request)) as chunks:
            bounded = _bounded(chunks, limit_bytes)
            parser = MultiPartParser(request.headers, bounded, max_files=1, max_fields=MAX_FIELDS)
            form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeDecodeError) as error:
        raise BadRequestError("the multipart form is malformed; see RFC 7578") from error
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise BadRequestError("the multipart part `file` is missing; put the audio there")
        yield _read(file)
    finally:
        await form.close()


def form_audio_of(request: Request, services: ApiServices, caller: Caller, tier: Tier) -> Audio:
    """Give the audio that a request brings: the file of a form, or the asset that its JSON names.

    Only headers are looked at; the body is read when a service asks for it.

    Raises:
        PayloadTooLargeError: It says itself that it is over the tier's upload size.
        BadRequestError: It says itself that it is empty.
    """
    if is_json(request.headers.get("content-type", "")):
        return asset_of(request, services, caller, tier)
    check_length(request.headers.get("content-length"), tier.upload_bytes + FORM_ROOM)
    return AudioBody(services.objects, partial(file_bytes, request, tier.upload_bytes), tier)


async def file_bytes(request: Request, limit_bytes: int) -> AsyncGenerator[bytes, None]:
    """Give the bytes of the `file` part; nothing is read before they are asked for."""
    async with file_part(request, limit_bytes) as chunks:
        async for chunk in chunks:
            yield chunk


async def _bounded(chunks: AsyncIterator[bytes], limit_bytes: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit_bytes + FORM_ROOM:
            raise PayloadTooLargeError(
                f"the upload is larger than the {limit_bytes} bytes your tier allows"
            )
        yield chunk


async def _read(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(READ_BYTES):
        yield chunk
