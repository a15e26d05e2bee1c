"""Incoming bodies: their coding, length and pace, and the places that they take.

Invariant: a body that may be long holds one of its owner's places while it arrives; JSON that
declares a short length holds none, and must arrive at once.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing, nullcontext

from fastapi import Request
from starlette.requests import ClientDisconnect

from serve_app.api.services import ApiServices
from serve_app.domain.errors import (
    BadRequestError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from serve_app.domain.keys import Caller
from serve_app.providers.web.audio_url import SLOW_START_S, SLOWEST_BYTES_PER_S
from serve_app.services.audio.intake import EMPTY

LONGEST_JSON = 64 * 1024
LONGEST_JSON_S = 10.0
LONGEST_UPLOAD_S = 120.0
LONGEST_SEEN = 60

CODINGS = frozenset({"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"})
"""Codings of IANA's registry. A body that names another, such as `utf-8`, is not encoded."""


def is_json(content_type: str) -> bool:
    """Return whether a Content-Type is that of JSON."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


def is_short(request: Request) -> bool:
    """Return whether a body declares itself as JSON, of at most the length that ours may have.

    A chunked body may have any length, whatever it declares.
    """
    headers = request.headers
    length = headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in headers:
        return False
    return is_json(headers.get("content-type", "")) and int(length) <= LONGEST_JSON


def check_length(content_length: str | None, limit_bytes: int, room: int) -> None:
    """Refuse a body whose declared length is 0, or over the limit by more than ``room`` bytes.

    Raises:
        PayloadTooLargeError: It is over the tier's upload size.
        BadRequestError: It is empty.
    """
    if content_length is None or not content_length.isdecimal():
        return
    if int(content_length) > limit_bytes + room:
        raise PayloadTooLargeError(
            f"the upload has {content_length} bytes; your tier allows {limit_bytes}"
        )
    if int(content_length) == 0:
        raise BadRequestError(EMPTY)


def check_coding(request: Request) -> None:
    """Refuse a body that declares a compression; the answer names what is accepted instead.

    Raises:
        UnsupportedMediaTypeError: The body declares one.
    """
    named = request.headers.get("content-encoding", "")
    if CODINGS & {coding.strip().lower() for coding in named.split(",")}:
        request.state.headers["Accept-Encoding"] = "identity"
        raise UnsupportedMediaTypeError(
            f"the body is compressed, as its Content-Encoding says ({named[:LONGEST_SEEN]}); "
            "send it as it is, without that header"
        )


def place_of(request: Request) -> AbstractContextManager[None]:
    """Return the place that the body takes while it arrives.

    Entering it raises `ConcurrencyError` and `ServiceUnavailableError`, see `BodyPlaces`.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    is_here = getattr(request.state, "is_spooled", False)
    if caller is None or is_here or is_short(request):
        return nullcontext()
    services: ApiServices = request.app.state.services
    limit = services.tiers[caller.tier].uploads_in_flight
    return services.bodies.taken(caller.owner, limit)


async def body_chunks(request: Request) -> AsyncGenerator[bytes, None]:
    """Stream the body; only the time spent waiting for the client counts for its pace.

    Raises:
        UnsupportedMediaTypeError: It is compressed; nothing was read.
        BadRequestError: The client disconnected before the end, or sends too slowly: it would keep
            a place that others wait for.
        ConcurrencyError: The owner's places are taken; nothing was read.
        ServiceUnavailableError: All places are taken; nothing was read.
    """
    check_coding(request)
    with place_of(request):
        async with aclosing(paced(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def paced(request: Request) -> AsyncGenerator[bytes, None]:
    """Stream the body while it arrives fast enough; raise `BadRequestError` otherwise."""
    longest_s = LONGEST_JSON_S if is_short(request) else LONGEST_UPLOAD_S
    stream = request.stream()
    waited_s, size = 0.0, 0
    try:
        while True:
            limit_s = min(longest_s, SLOW_START_S + size / SLOWEST_BYTES_PER_S)
            began = time.monotonic()
            async with asyncio.timeout(limit_s - waited_s):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            waited_s += time.monotonic() - began
            size += len(chunk)
            yield chunk
    except ClientDisconnect as error:
        raise BadRequestError("the upload broke off") from error
    except TimeoutError as error:
        raise BadRequestError(
            f"the upload is too slow; send at least {SLOWEST_BYTES_PER_S // 1024} KiB/s, and all "
            f"within {longest_s:.0f} s"
        ) from error
