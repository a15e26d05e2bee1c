"""``Idempotency-Key`` on every POST, by Stripe's rules.

The first answer that succeeds is kept for a day and given again to the same key and request;
another request under the key is refused; errors are not kept, because nothing was charged for
them. The ids of holds and jobs derive from owner and key, so that even a crash between charge and
answer does not charge twice.
"""

import hashlib
import tempfile
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Coroutine
from typing import IO, Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from serve_app.api.deps import authenticate_header, get_services
from serve_app.domain.errors import (
    BadRequestError,
    ConcurrencyError,
    IdempotencyMismatchError,
    PayloadTooLargeError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.traffic import InFlight, Mismatch, Replay

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
MULTIPART_ROOM = 64 * 1024
IN_MEMORY_BYTES = 1 << 20
READ_BYTES = 256 * 1024

HEADER_DOC = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Makes a retry safe: within 24 h the same key and request give the same answer "
    "and are charged once. 1 to 255 printable ASCII characters, for example a UUID.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
}


def check_key(key: str) -> str:
    """Return the key if it has a permitted form.

    Raises:
        BadRequestError: It has not.
    """
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise BadRequestError(f"{HEADER}: send 1 to {LONGEST_KEY} printable ASCII characters")
    return key


class IdempotentRoute(APIRoute):
    """A route that answers a repeated POST as it answered the first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route's handler."""
        run = super().get_route_handler()

        async def handle(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None or request.method != "POST":
                return await run(request)
            return await answer_once(request, check_key(key), run)

        return handle


async def answer_once(
    request: Request, key: str, run: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Run the request unless its key has an answer already.

    Raises:
        IdempotencyMismatchError: The key belongs to another request.
        ConcurrencyError: The same request is being answered at this moment.
    """
    services = get_services(request)
    caller = await authenticate_header(request, services)
    limit_bytes = services.tiers[caller.tier].upload_bytes + MULTIPART_ROOM
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as body:
        digest = await spool(request, body, limit_bytes)
        # The digest is part of the name, so a key's new life for another body is never mixed up.
        request.state.request_id = f"idem:{name_of(caller, key)}"
        state = await services.idempotency.begin(
            caller.owner, hashed(key), fingerprint(request, digest)
        )
        match state:
            case Replay(status, headers, content):
                return Response(content, status, {**headers, "Idempotent-Replayed": "true"})
            case Mismatch():
                raise IdempotencyMismatchError(
                    f"this {HEADER} was used with another request; use a new one"
                )
            case InFlight():
                raise ConcurrencyError("the same request is being answered at this moment", 1)
        try:
            response = await run(Request(request.scope, replay(body)))
        except BaseException:
            await services.idempotency.abandon(caller.owner, hashed(key))
            raise
    await services.idempotency.finish(
        caller.owner,
        hashed(key),
        response.status_code,
        {"Content-Type": response.headers.get("Content-Type", "application/json")},
        bytes(response.body),
    )
    return response


def hashed(key: str) -> str:
    """Give a key's name in the table: of one length and alphabet."""
    return hashlib.sha256(key.encode()).hexdigest()


def name_of(caller: Caller, key: str) -> str:
    """Give what the ids of holds and jobs derive from."""
    return hashlib.sha256(f"{caller.owner}\x1f{key}".encode()).hexdigest()[:40]


def fingerprint(request: Request, body_digest: str) -> str:
    """Give what must be the same for a request to be the same."""
    what = [request.method, request.url.path, request.url.query]
    what += [request.headers.get("Content-Type", ""), body_digest]
    return hashlib.sha256("\n".join(what).encode()).hexdigest()


async def spool(request: Request, body: IO[bytes], limit_bytes: int) -> str:
    """Take the request's body to memory or disk, and give its hash.

    Raises:
        PayloadTooLargeError: It passed ``limit_bytes``.
        BadRequestError: It broke off.
    """
    digest = hashlib.sha256()
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit_bytes:
                raise PayloadTooLargeError("the body is larger than your tier allows")
            digest.update(chunk)
            if size > IN_MEMORY_BYTES:
                await to_thread(body.write, chunk)
            else:
                body.write(chunk)
    except ClientDisconnect as error:
        raise BadRequestError("the upload broke off") from error
    body.seek(0)
    return digest.hexdigest()


def replay(body: IO[bytes]) -> Receive:
    """Give a spooled body as an ASGI server would."""
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
