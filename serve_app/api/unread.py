"""Closes the connection after an answer that was given before the request's body had arrived.

Invariant: no body is read once its answer is known, whatever the answer is: an unknown path, a
probe, a missing key, a full service.
"""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLOSE = (b"connection", b"close")
GONE: Message = {"type": "http.disconnect"}
LINGER_S = 1.0
LINGER_BYTES = 64 * 1024
"""How much more is read so that a sending client sees the answer: if the connection closed at once,
TCP's reset could destroy it (RFC 9112, section 9.6)."""


class UnreadBodyMiddleware:
    """Closes the connection if an answer leaves a body, or part of it, unread.

    A client that disconnects while it sends is no fault of the service, whatever Serve raises.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not announces_body(scope):
            await self.app(scope, receive, send)
            return
        is_whole = is_closing = False

        async def receive_watched() -> Message:
            nonlocal is_whole
            message = GONE
            with suppress(Exception):  # Serve's own, for some clients that disconnect
                message = await receive()
            is_whole = is_whole or not message.get("more_body", False)
            return message

        async def send_closing(message: Message) -> None:
            nonlocal is_closing
            if message["type"] == "http.response.start" and not is_whole:
                is_closing = True
                message["headers"] = [*message.get("headers", []), CLOSE]
            elif is_closing and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await linger(receive_watched)
                message = {"type": "http.response.body"}
            await send(message)

        await self.app(scope, receive_watched, send_closing)


def announces_body(scope: Scope) -> bool:
    """Return whether the request's headers announce a body."""
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


async def linger(receive: Receive) -> None:
    """Wait a moment for the client to disconnect or finish its body, reading little of it."""
    n_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while n_bytes < LINGER_BYTES:
                message = await receive()
                if not message.get("more_body", False):
                    return
                n_bytes += len(message["body"])
            await asyncio.sleep(LINGER_S)
