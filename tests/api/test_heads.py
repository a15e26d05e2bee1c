"""The head of a request, and nothing else, is limited in length and time."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.server import ServerState

from serve_app.api import heads
from serve_app.api.heads import LONGEST_HEAD, BoundedHeads
from serve_app.api.proxy import middlewares

OPENING = b"POST / HTTP/1.1\r\nHost: afa\r\n"


async def tell_length(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a server that is set up as Serve sets up its own."""
    config = uvicorn.Config(tell_length)
    config.load()

    def protocol() -> asyncio.Protocol:
        made: asyncio.Protocol = config.http_protocol_class(config, ServerState(), {})
        return made

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    async with server, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()


@pytest.fixture(autouse=True)
def _bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])
    middlewares()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


@pytest.mark.parametrize("before", [b"", b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"])
async def test_an_endless_header_is_refused_before_it_takes_time(before: bytes) -> None:
    async with connection() as (reader, writer):
        writer.write(OPENING + before + b"X-A: ")
        with suppress(ConnectionError):
            for _ in range(64):
                writer.write(b"x" * 65536)
                await writer.drain()
        seen = b"HTTP/1.1 400"
        with suppress(ConnectionError):  # a reset may arrive before the answer
            seen = await reader.read()
        assert seen.startswith(b"HTTP/1.1 400")


UNENCODED = "GET /v1/key-bpm?song=Für Elise HTTP/1.1\r\nHost: afa\r\n\r\n".encode()


@pytest.mark.parametrize(
    "sent", [b"GARBAGE\r\n\r\n", OPENING + b"Content-Length: two\r\n\r\n", UNENCODED]
)
async def test_what_is_no_http_is_refused_in_the_words_of_all_errors(sent: bytes) -> None:
    async with connection() as (reader, writer):
        writer.write(sent)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    error = json.loads(body)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"x-trace-id: {error['trace_id']}".encode() in head
    assert b"content-length: %d\r\ncontent-type: application/json\r\n" % len(body) in head
    assert (error["error"], len(error)) == ("bad_request", 3)
    assert "percent-encode" in error["message"]


async def test_long_bodies_and_many_requests_of_a_connection_are_read() -> None:
    length = 3 * LONGEST_HEAD
    headers = b"X-A: %b\r\nContent-Length: %d\r\n\r\n" % (b"x" * 100_000, length)
    async with connection() as (reader, writer):
        for _ in range(2):
            writer.write(OPENING + headers + bytes(length))
            assert await answer(reader) == b"%d" % length


HTTP2 = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAA\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("offer", [HTTP2, WEBSOCKET])
@pytest.mark.parametrize("length", [0, 3, 3 * LONGEST_HEAD])
async def test_a_request_that_offers_another_protocol_is_read_with_its_body(
    length: int, offer: bytes
) -> None:
    """As Java's client does to offer HTTP/2, and curl with `--http2`."""
    request = OPENING + offer + b"Content-Length: %d\r\n\r\n" % length + bytes(length)
    async with connection() as (reader, writer):
        for sent in (request, request + request):
            writer.write(sent)
            assert await answer(reader) == b"%d" % length
        assert await answer(reader) == b"%d" % length
        for start in range(0, len(OPENING + offer), 7):  # and in pieces
            writer.write(request[start : start + 7])
            await asyncio.sleep(0.002)
        writer.write(request[start + 7 :])
        assert await answer(reader) == b"%d" % length


@pytest.mark.parametrize("offer", [HTTP2, WEBSOCKET])
async def test_the_last_request_of_a_connection_may_offer_another_protocol(offer: bytes) -> None:
    last = b"Connection: close\r\nContent-Length: 3\r\n\r\nabc"
    async with connection() as (reader, writer):
        writer.write(OPENING + offer + last + b"more")
        assert await answer(reader) == b"3"
        assert await reader.read() == b""


async def test_a_thousand_offers_in_one_piece_are_declined_one_by_one() -> None:
    offer = OPENING + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n."
    async with connection() as (reader, writer):
        writer.write(1_000 * offer)
        for _ in range(1_000):
            assert await answer(reader) == b"1"


async def test_a_head_has_its_time_and_a_body_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LONGEST_HEAD_S", 0.3)
    async with connection() as (reader, writer):
        writer.write(OPENING + b"Content-Length: 2\r\n\r\na")
        await asyncio.sleep(0.6)
        writer.write(b"b")
        assert await answer(reader) == b"2"
        await asyncio.sleep(0.6)  # between two requests a connection may stay open
        writer.write(OPENING + b"X-A: ")
        assert await reader.read() == b""


async def test_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LONGEST_HEAD_S", 0.3)
    async with connection() as (reader, _):
        assert await reader.read() == b""


@pytest.mark.parametrize("rest", [b"\r\n", b"a"])
async def test_what_follows_an_answer_and_is_no_head_does_not_keep_a_connection(
    monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    """A line end is no head, nor is the rest of a body that nobody reads."""
    monkeypatch.setattr(heads, "LONGEST_HEAD_S", 0.3)
    monkeypatch.setattr(f"{__name__}.tell_length", PlainTextResponse("0"))
    async with connection() as (reader, writer):
        writer.write(OPENING + (b"Content-Length: 9\r\n\r\n" if rest == b"a" else b"\r\n"))
        assert await answer(reader) == b"0"
        with suppress(ConnectionError):
            for _ in range(8):
                writer.write(rest)
                await asyncio.sleep(0.1)
        # Writing to a closed connection may reset it before its end is read.
        assert reader.at_eof() or isinstance(reader.exception(), ConnectionError)


def test_it_is_what_uvicorn_takes_where_serve_names_none() -> None:
    config = uvicorn.Config(tell_length)
    config.load()
    assert config.http_protocol_class is BoundedHeads
