"""Webhook messages go to permitted addresses only, whole and once."""

import asyncio
from contextlib import closing, suppress

import pytest

from serve_app.providers.web.url_guard import UrlGuard
from serve_app.providers.web.webhook_sender import WebhookSender

HEADERS = {"webhook-id": "msg_1", "content-type": "application/json"}


async def received(status: str, body: bytes) -> tuple[int, bytes]:
    """Post ``body`` to a server on loopback that answers ``status``."""
    seen = bytearray()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await reader.readuntil(b"\r\n\r\n"))
        seen.extend(await reader.readexactly(len(body)))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        sender = WebhookSender(UrlGuard(ports=[port], networks=["127.0.0.0/8"]))
        answer = await sender(f"http://127.0.0.1:{port}/hook?x=1", HEADERS, body)
    return answer, bytes(seen)


async def test_the_message_arrives_as_it_was_signed() -> None:
    status, request = await received("204 No Content", b'{"type":"job.complete"}')
    assert status == 204
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b'{"type":"job.complete"}'
    assert head.startswith(b"POST /hook?x=1 HTTP/1.1")
    assert head.lower().count(b"content-type:") == 1
    assert b"webhook-id: msg_1" in head


async def test_a_redirect_is_an_answer_not_followed() -> None:
    status, _ = await received("302 Found", b"{}")
    assert status == 302


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://10.0.0.1/", "ftp://a.example/", "x"])
async def test_a_forbidden_address_is_a_failed_delivery(url: str) -> None:
    with pytest.raises(ConnectionError):
        await WebhookSender(UrlGuard())(url, HEADERS, b"{}")


async def test_no_answer_is_a_failed_delivery() -> None:
    guard = UrlGuard(ports=[1], networks=["127.0.0.0/8"])
    with pytest.raises(ConnectionError):
        await WebhookSender(guard)("http://127.0.0.1:1/", HEADERS, b"{}")


async def test_a_body_without_end_is_not_read() -> None:
    is_cut = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with closing(writer), suppress(ConnectionError):
            while True:
                writer.write(b"5\r\naaaaa\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        is_cut.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        port = server.sockets[0].getsockname()[1]
        sender = WebhookSender(UrlGuard(ports=[port], networks=["127.0.0.0/8"]))
        assert await sender(f"http://127.0.0.1:{port}/", HEADERS, b"{}") == 200
        await is_cut.wait()
