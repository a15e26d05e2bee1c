"""Bodies that are audio, or JSON that names an asset.

Invariant: a body that may be long holds one of its owner's places while it comes; JSON holds none,
and has to come at once.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

from fastapi import Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from serve_app.api.services import ApiServices
from serve_app.api.wire.assets import AssetInput
from serve_app.domain.errors import (
    BadRequestError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.providers.web.audio_url import SLOW_START_S, SLOWEST_BYTES_PER_S
from serve_app.services.audio.audio import Audio, AudioAsset, AudioBody

LONGEST_JSON = 64 * 1024
LONGEST_JSON_S = 10.0
LONGEST_UPLOAD_S = 120.0

AUDIO_CONTENT: dict[str, Any] = {
    media_type: {"schema": {"type": "string", "format": "binary", "minLength": 1}}
    for media_type in ("audio/*", "application/octet-stream")
}
AUDIO_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": AUDIO_CONTENT}}
AUDIO_OR_ASSET_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": AUDIO_CONTENT
        | {"application/json": {"schema": {"$ref": "#/components/schemas/AssetInput"}}},
    }
}


def is_json(content_type: str) -> bool:
    """Tell whether a Content-Type is JSON's."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


def check_audio_type(content_type: str) -> str:
    """Return the bare media type if it is one that audio is sent as.

    Raises:
        UnsupportedMediaTypeError: It is not.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if not (media_type.startswith("audio/") or media_type == "application/octet-stream"):
        raise UnsupportedMediaTypeError(
            "send the raw audio bytes with Content-Type audio/* or application/octet-stream"
        )
    return media_type


def check_length(content_length: str | None, limit_bytes: int) -> None:
    """Refuse a body that says itself that it is too large or empty.

    Raises:
        PayloadTooLargeError: Over the tier's upload size.
        BadRequestError: Empty.
    """
    if content_length is None or not content_length.isdecimal():
        return
    if int(content_length) > limit_bytes:
        raise PayloadTooLargeError(
            f"the upload has {content_length} bytes; your tier allows {limit_bytes}"
        )
    if int(content_length) == 0:
        raise BadRequestError("the body is empty; send the raw audio bytes")


def audio_of(request: Request, services: ApiServices, caller: Caller, tier: Tier) -> Audio:
    """Give the audio that a request brings: raw bytes, or the asset that its JSON names.

    Only headers are looked at; the body is read when a service asks for it.

    Raises:
        UnsupportedMediaTypeError: Neither audio nor JSON.
        PayloadTooLargeError: It says itself that it is over the tier's upload size.
        BadRequestError: It says itself that it is empty.
    """
    content_type = request.headers.get("content-type", "")
    if is_json(content_type):
        return asset_of(request, services, caller, tier)
    media_type = check_audio_type(content_type)
    check_length(request.headers.get("content-length"), tier.upload_bytes)
    return AudioBody(services.objects, partial(body_chunks, request), tier, media_type)


def asset_of(request: Request, services: ApiServices, caller: Caller, tier: Tier) -> AudioAsset:
    """Give the asset that a request's JSON names; the body is read when a service asks for it."""
    read_asset_id = partial(read_asset_input, request)
    return AudioAsset(services.objects, services.assets, read_asset_id, caller, tier)


def place_of(request: Request) -> AbstractContextManager[None]:
    """Give the place that the body takes while it comes.

    Entering it raises `ConcurrencyError` and `ServiceUnavailableError`, see `BodyPlaces`.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    is_here = getattr(request.state, "is_spooled", False)
    if caller is None or is_here or is_json(request.headers.get("content-type", "")):
        return nullcontext()
    services: ApiServices = request.app.state.services
    limit = services.tiers[caller.tier].uploads_in_flight
    return services.bodies.taken(caller.owner, limit)


async def body_chunks(request: Request) -> AsyncGenerator[bytes, None]:
    """Stream the body; only the time that is spent waiting for the client counts against it.

    Raises:
        BadRequestError: The client went away before the end, or sends too slowly: it would keep a
            place that others wait for.
        ConcurrencyError: The owner's places are taken; nothing was read.
        ServiceUnavailableError: All places are taken; nothing was read.
    """
    with place_of(request):
        async with aclosing(paced(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def paced(request: Request) -> AsyncGenerator[bytes, None]:
    """Stream the body while it comes as fast as it must; raises `BadRequestError` otherwise."""
    is_short = is_json(request.headers.get("content-type", ""))
    longest_s = LONGEST_JSON_S if is_short else LONGEST_UPLOAD_S
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


async def read_asset_input(request: Request) -> str:
    """Read an `AssetInput` and give its asset id.

    Raises:
        BadRequestError: Not one.
    """
    body = bytearray()
    async with aclosing(body_chunks(request)) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > LONGEST_JSON:
                raise BadRequestError('the JSON body is too long; send {"asset_id": "afa_…"}')
    try:
        return AssetInput.model_validate(json.loads(body)).asset_id
    except (ValueError, ValidationError, RecursionError) as error:
        raise BadRequestError('send {"asset_id": "afa_…"}, or the raw audio bytes') from error
