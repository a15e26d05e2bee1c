"""``Idempotency-Key`` on every POST that charges or changes something, by Stripe's rules.

The first successful answer is kept for a day and repeated for the same key and request; another
request with the key is refused. Errors are not kept, nor free reads: without a charge, nothing
would limit what is kept. The ids of holds and jobs derive from owner and key, so that even a crash
between charge and answer does not charge twice.
"""

import hashlib
import tempfile
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import IO, Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from python_multipart.multipart import parse_options_header
from starlette.types import Message, Receive, Scope

from serve_app.api.door.audio_body import body_chunks
from serve_app.api.door.limits import Door
from serve_app.api.door.multipart import FORM_ROOM
from serve_app.api.door.request import authenticate_header, services_of
from serve_app.api.door.unknown import HEADER as UNKNOWN_PARAMETERS
from serve_app.api.door.unknown import tell_unknown_fields
from serve_app.domain.errors import (
    BadRequestError,
    ConcurrencyError,
    IdempotencyMismatchError,
    PayloadTooLargeError,
    ServiceUnavailableError,
)
from serve_app.domain.keys import Caller
from serve_app.store.idempotency import Fresh, InFlight, Mismatch, Replay

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
LONGEST_JSON_BODY = 2 << 20
"""Longer than a batch of the longest ids with every character escaped."""

REPEAT_AFTER_S = 4
"""A few such pauses are longer than the hold on a key whose request died with its process."""

IN_MEMORY_BYTES = 1 << 20
READ_BYTES = 256 * 1024

HEADER_DOC = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Makes retries safe: within 24 h the same key and request get the same answer "
    "and are charged once. 1 to 255 printable ASCII characters, for example a UUID.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
}


def check_key(key: str) -> str:
    """Return the key if it has a permitted form.

    Raises:
        BadRequestError: It does not.
    """
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise BadRequestError(f"{HEADER}: send 1 to {LONGEST_KEY} printable ASCII characters")
    return key


class IdempotentRoute(APIRoute):
    """A route that answers a repeated POST as it answered the first, if it offers the header.

    A POST that only reads and is free does not: nothing would limit what is kept for it. If the
    body must be read before FastAPI looks at the request, the caller goes through the route's
    `Door` first, so that no body is read from a caller who is not let in.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route's handler."""
        handler = super().get_route_handler()
        # In an APIRoute, the dependencies come before what is read from the request.
        calls = (dependency.call for dependency in self.dependant.dependencies)
        door = next((call for call in calls if isinstance(call, Door)), None)
        model = None if self.body_field is None else self.body_field.field_info.annotation
        takes_json = model is not None
        is_offered = HEADER_DOC in (self.openapi_extra or {}).get("parameters", [])

        async def run(request: Request) -> Response:
            if model is not None:
                with suppress(ValueError, RecursionError):  # not JSON, as FastAPI will report
                    tell_unknown_fields(request, model, await request.json())
            return await handler(request)

        async def handle(request: Request) -> Response:
            key = request.headers.get(HEADER) if is_offered else None
            if door is None or (key is None and not takes_json):
                return await run(request)
            services = services_of(request)
            caller = await authenticate_header(request, services)
            await door(request, caller, services)
            limit_bytes, room = services.tiers[caller.tier].upload_bytes, FORM_ROOM
            if takes_json:
                limit_bytes, room = LONGEST_JSON_BODY, 0
            scope = named_json(request.scope) if takes_json else request.scope
            if key is not None:
                return await answer_once(
                    request, caller, check_key(key), limit_bytes, room, run, scope
                )
            with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as body:
                await spool(request, body, limit_bytes, room)
                return await run(Request(scope, replay(body)))

        return handle


def named_json(scope: Scope) -> Scope:
    """Return a request's scope with JSON as its Content-Type, if the route takes nothing else.

    Reading it shows whether it is JSON. No page can misuse this, since the key is not a cookie.
    """
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*headers, (b"content-type", b"application/json")]}


async def answer_once(
    request: Request,
    caller: Caller,
    key: str,
    limit_bytes: int,
    room: int,
    run: Callable[[Request], Awaitable[Response]],
    scope: Scope,
) -> Response:
    """Run the request, in that scope, unless its key already has an answer.

    Raises:
        IdempotencyMismatchError: The key belongs to another request.
        ConcurrencyError: The same request is being answered now.
    """
    table = services_of(request).idempotency
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as body:
        digest = await spool(request, body, limit_bytes, room)
        boundary = boundary_of(request)
        if boundary:
            digest = await to_thread(digest_without, boundary, body)
        what = fingerprint(request, digest, boundary)
        match await table.begin(caller.owner, hashed(key), what):
            case Replay(status, headers, content):
                return Response(content, status, {**headers, "Idempotent-Replayed": "true"})
            case Mismatch():
                raise IdempotencyMismatchError(
                    f"this {HEADER} was used with another request; use a new one"
                )
            case InFlight():
                raise ConcurrencyError(
                    "the same request is being answered at this moment", REPEAT_AFTER_S
                )
            case Fresh(life):
                # The charge is for this request in this life of the key: it never covers another
                # one with the same key, or the same one a day later.
                request.state.request_id = f"idem:{name_of(caller, key, what, life)}"
        try:
            async with table.held(caller.owner, hashed(key), what):
                response = await run(Request(scope, replay(body)))
        except BaseException:
            # A key that cannot be forgotten now lapses; the answer is the error that happened.
            with suppress(ServiceUnavailableError):
                await table.abandon(caller.owner, hashed(key), what)
            raise
    # An answer that cannot be kept is still sent: it was charged, and a retry finds it paid.
    with suppress(ServiceUnavailableError):
        if was_read_for_nothing(request, response):
            await table.abandon(caller.owner, hashed(key), what)
        else:
            await table.finish(
                caller.owner,
                hashed(key),
                what,
                response.status_code,
                kept_headers(request, response),
                bytes(response.body),
            )
    return response


def was_read_for_nothing(request: Request, response: Response) -> bool:
    """Return whether an answer was free, and its route makes no job or asset (those say 20x)."""
    is_free = request.state.headers.get("X-Credits-Used") == "0"
    makes_nothing = request.scope["route"].status_code is None
    return is_free and makes_nothing and response.status_code == HTTPStatus.OK


def kept_headers(request: Request, response: Response) -> dict[str, str]:
    """Return those headers that are about the answer, not about the moment, as rate limits are.

    Nor about the address: each answer says again which of its parameters are unknown.
    """
    named = ("Content-Type", "Content-Disposition")
    about = {name: response.headers[name] for name in named if name in response.headers}
    return about | {
        name: value
        for name, value in request.state.headers.items()
        if name.startswith("X-") and name != UNKNOWN_PARAMETERS
    }


def hashed(key: str) -> str:
    """Return a key's name in the table, which has a fixed length and alphabet."""
    return hashlib.sha256(key.encode()).hexdigest()


def name_of(caller: Caller, key: str, what: str, life: str) -> str:
    """Return what the ids of holds and jobs derive from.

    Args:
        caller: Who sent the key.
        key: The key as sent.
        what: The request's fingerprint.
        life: See `Fresh`.
    """
    name = "\x1f".join((caller.owner, key, what, life))
    return hashlib.sha256(name.encode()).hexdigest()[:40]


def fingerprint(request: Request, body_digest: str, boundary: bytes = b"") -> str:
    """Return what identifies a request as the same."""
    kind = request.headers.get("Content-Type", "")
    what = [request.method, request.url.path, request.url.query]
    what += [kind.replace(boundary.decode("latin-1"), "") if boundary else kind, body_digest]
    return hashlib.sha256("\n".join(what).encode()).hexdigest()


def boundary_of(request: Request) -> bytes:
    """Return the boundary of a multipart form; clients draw a new one for every attempt."""
    kind, options = parse_options_header(request.headers.get("Content-Type"))
    return options.get(b"boundary", b"") if kind == b"multipart/form-data" else b""


def digest_without(boundary: bytes, body: IO[bytes]) -> str:
    """Return the hash of a spooled form without its boundary, and rewind it."""
    digest, rest = hashlib.sha256(), b""
    while chunk := body.read(READ_BYTES):
        rest = (rest + chunk).replace(boundary, b"")
        surely = max(0, len(rest) - len(boundary) + 1)  # the boundary may begin in the rest
        digest.update(rest[:surely])
        rest = rest[surely:]
    digest.update(rest)
    body.seek(0)
    return digest.hexdigest()


async def spool(request: Request, body: IO[bytes], limit_bytes: int, room: int) -> str:
    """Write the request's body to memory or disk and return its hash; then it takes no place.

    Raises:
        PayloadTooLargeError: It exceeds ``limit_bytes`` by more than ``room``, which is for a
            form's own bytes; if its declared length does, nothing is read.
        BadRequestError: It broke off, or arrives too slowly.
        ConcurrencyError: This owner has too many uploads under way.
        ServiceUnavailableError: Too many uploads are under way.
    """
    digest = hashlib.sha256()
    size = 0
    too_large = PayloadTooLargeError(f"the body is larger than the {limit_bytes} bytes it may have")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes + room:
        raise too_large
    async with aclosing(body_chunks(request)) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > limit_bytes + room:
                raise too_large
            digest.update(chunk)
            if size > IN_MEMORY_BYTES:
                await to_thread(body.write, chunk)
            else:
                body.write(chunk)
    body.seek(0)
    request.state.is_spooled = True
    return digest.hexdigest()


def replay(body: IO[bytes]) -> Receive:
    """Return a function that receives a spooled body as from an ASGI server."""
    is_over = False

    async def receive() -> Message:
        nonlocal is_over
        if is_over:
            return {"type": "http.disconnect"}
        chunk = await to_thread(body.read, READ_BYTES)
        is_over = not chunk
        return {"type": "http.request", "body": chunk, "more_body": not is_over}

    return receive


def idempotent(extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Add the header to a POST's OpenAPI description."""
    return {**(extra or {}), "parameters": [HEADER_DOC]}
