"""Audio that a request sends or names: raw bytes, a form's file, or JSON with an asset or a URL.

The first bytes of a body show what it is; the Content-Type is trusted if it names audio, and is
otherwise only a hint. Invariant: nothing of a body is read before a service asks for it.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from serve_app.api.door.audio_body import LONGEST_JSON, body_chunks, check_length, is_json
from serve_app.api.door.multipart import FORM_ROOM, file_part, is_form
from serve_app.api.door.unknown import tell_unknown_fields
from serve_app.api.services import ApiServices
from serve_app.api.wire.assets import AssetInput, UrlInput
from serve_app.domain.errors import (
    BadRequestError,
    PayloadTooLargeError,
    UnprocessableAudioError,
    UnsupportedMediaTypeError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.ledger.jobs.types import ObjectSource, UrlSource
from serve_app.services.audio.audio import Audio, AudioAddress, AudioAsset, AudioBody, StoredAudio
from serve_app.services.audio.signatures import HEAD_BYTES, is_surely_no_audio, media_type_of

HOW_TO_SEND = (
    'send the bytes of an audio file, a form with the part `file`, {"asset_id": "afa_…"} or '
    '{"url": "https://…"}'
)
OCTETS = "application/octet-stream"
BINARY = {"type": "string", "format": "binary"}


def audio_body(*named: str) -> dict[str, Any]:
    """Describe a body that is audio, or JSON of one of these schemas."""
    schemas = [{"$ref": f"#/components/schemas/{name}"} for name in named]
    file = {"type": "string", "format": "binary", "description": "The audio file."}
    form = {"type": "object", "required": ["file"], "properties": {"file": file}}
    return {
        "requestBody": {
            "required": True,
            "description": "The Content-Type may be missing or wrong: the first bytes show what "
            "the body is.",
            "content": {
                "audio/*": {"schema": BINARY},
                OCTETS: {"schema": BINARY},
                "multipart/form-data": {"schema": form},
                "application/json": {
                    "schema": schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
                },
            },
        }
    }


AUDIO_BODY = audio_body("AssetInput", "UrlInput")


MEDIA_TYPE = re.compile(r"[a-z0-9][\w!#$&^.+-]{0,126}/[a-z0-9*][\w!#$&^.+-]{0,126}", re.ASCII)
"""A type within RFC 6838, or ``audio/*``: it is kept with an asset, and repeated in messages."""


def media_type(request: Request) -> str:
    """Return a request's media type in lower case and without parameters, or ""."""
    named = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return named if MEDIA_TYPE.fullmatch(named) else ""


BEGIN_OF_JSON = (
    b"{",
    *("\N{BYTE ORDER MARK}{".encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be")),
)
"""With byte order marks: PowerShell writes UTF-16, whose mark looks like an MP3 frame."""


def begins_as_json(head: bytes) -> bool:
    """Return whether a body begins with an object, in UTF-8 or another marked encoding of JSON."""
    return head.lstrip().startswith(BEGIN_OF_JSON)


def audio_type(request: Request) -> str:
    """Return the audio type that a request names; "" for none and for ``audio/*``."""
    named = media_type(request)
    return named if named.startswith("audio/") and not named.endswith("*") else ""


def says_audio(request: Request) -> bool:
    """Return whether a request declares its body as audio or as plain bytes."""
    named = media_type(request)
    return named.startswith("audio/") or named == OCTETS


@dataclass(frozen=True, slots=True)
class SentBody:
    """An incoming body.

    Attributes:
        chunks: The bytes of audio, which can be read once.
        head: The first bytes.
        json: The whole body if it is JSON; ``chunks`` is then already read.
    """

    chunks: AsyncIterator[bytes]
    head: bytes
    json: bytes | None = None


class SentAudio:
    """The audio of a request, however it was sent."""

    def __init__(self, request: Request, services: ApiServices, caller: Caller, tier: Tier) -> None:
        """Look only at the headers.

        Raises:
            PayloadTooLargeError: The body declares a length over the tier's upload size.
            BadRequestError: It declares that it is empty.
        """
        room = FORM_ROOM if is_form(request) else 0
        check_length(request.headers.get("content-length"), tier.upload_bytes, room)
        self._request = request
        self._services = services
        self._caller = caller
        self._tier = tier

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[StoredAudio]:
        """See `Audio.stored`; raises `UnsupportedMediaTypeError` if it cannot be audio."""
        async with self._opened() as audio, audio.stored() as stored:
            yield stored

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Audio.chunks`; raises the errors of `stored`."""
        async with self._opened() as audio, audio.chunks() as chunks:
            yield chunks

    async def source(self, job_id: str) -> ObjectSource | UrlSource:
        """See `Audio.source`; raises the errors of `stored`."""
        async with self._opened() as audio:
            return await audio.source(job_id)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Audio]:
        async with self.body() as body:
            if body.json is None:
                yield self._body(body.chunks, body.head)
            else:
                yield self._named(read_json(self._request, body.json))

    @asynccontextmanager
    async def body(self) -> AsyncIterator[SentBody]:
        """Yield the body as sent, for a route that reads more of its JSON; raises as `stored`."""
        if is_form(self._request):
            async with file_part(self._request, self._tier.upload_bytes) as file:
                head, whole = await peeked(file)
                if is_surely_no_audio(head[:HEAD_BYTES]):
                    raise UnprocessableAudioError(f"the part `file` is not audio; {HOW_TO_SEND}")
                yield SentBody(whole, head)
            return
        async with aclosing(body_chunks(self._request)) as body:
            head, whole = await peeked(body)
            if self._is_json(head):
                yield SentBody(whole, head, await read_whole(whole))
            else:
                self._check(head)
                yield SentBody(whole, head)

    def _is_json(self, head: bytes) -> bool:
        """Return whether a body is JSON: declared so and not known audio, or beginning like it."""
        if is_json(self._request.headers.get("content-type", "")):
            return media_type_of(head) == OCTETS or begins_as_json(head)
        return not says_audio(self._request) and begins_as_json(head)

    def _check(self, head: bytes) -> None:
        if not says_audio(self._request) and is_surely_no_audio(head[:HEAD_BYTES]):
            named = media_type(self._request) or "missing"
            raise UnsupportedMediaTypeError(
                f"the body is not audio (its Content-Type is {named}); {HOW_TO_SEND}"
            )

    def _body(self, chunks: AsyncIterator[bytes], head: bytes = b"") -> AudioBody:
        known = audio_type(self._request) or (media_type_of(head) if head else "")
        return AudioBody(self._services.objects, chunks, self._tier, known)

    def _named(self, named: AssetInput | UrlInput) -> AudioAsset | AudioAddress:
        services = self._services
        if isinstance(named, AssetInput):
            return AudioAsset(
                services.objects, services.assets, named.asset_id, self._caller, self._tier
            )
        return address_of(services, self._caller, self._tier, named.url)


def address_of(services: ApiServices, caller: Caller, tier: Tier, url: str) -> AudioAddress:
    """Return the audio at an address."""
    return AudioAddress(services.objects, services.audio_urls, services.bodies, caller, tier, url)


async def peeked(chunks: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """Read the first bytes of a body; return them and the whole body."""
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            break

    async def whole() -> AsyncIterator[bytes]:
        if head:
            yield head
        async for chunk in chunks:
            yield chunk

    return head, whole()


async def read_whole(chunks: AsyncIterator[bytes]) -> bytes:
    """Read a JSON body.

    Raises:
        PayloadTooLargeError: It is longer than JSON that names audio can be.
    """
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > LONGEST_JSON:
            raise PayloadTooLargeError(f"the JSON body is longer than {LONGEST_JSON} bytes")
    return bytes(body)


def read_json(request: Request, body: bytes) -> AssetInput | UrlInput:
    """Read what a JSON body names.

    Raises:
        BadRequestError: It names neither an asset nor a URL.
    """
    try:
        sent = json.loads(body)
        is_url = isinstance(sent, dict) and "url" in sent and sent.get("asset_id") is None
        model = UrlInput if is_url else AssetInput
        tell_unknown_fields(request, model, sent)
        return model.model_validate(sent)
    except (ValueError, ValidationError, RecursionError) as error:
        raise BadRequestError(f"the JSON body names no audio; {HOW_TO_SEND}") from error
