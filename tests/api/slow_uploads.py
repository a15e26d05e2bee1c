"""Clients that send a body slowly, or far too much of one, over real connections."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHUNK = b"x" * 2000


@dataclass
class SlowUploads:
    """Connections that each announce a body and send a little of it now and then."""

    url: str
    key: str
    path: str
    content_type: str = "audio/mpeg"
    opening: bytes = b"ID3"
    every_s: float = 0.1
    refusals: list[bytes] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def open(self, n: int, n_refused: int) -> None:
        """Start ``n`` uploads and wait, at most a minute, until ``n_refused`` are refused."""
        self.tasks = [asyncio.create_task(self._upload()) for _ in range(n)]
        with suppress(TimeoutError):
            async with asyncio.timeout(60.0):
                while len(self.refusals) < n_refused:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Cancel all uploads."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _upload(self) -> None:
        parts = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        answer = asyncio.create_task(reader.readuntil(b"}"))
        try:
            writer.write(
                f"POST {self.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
                f"Authorization: Bearer {self.key}\r\nContent-Type: {self.content_type}\r\n"
                "Content-Length: 2000000\r\n\r\n".encode()
                + self.opening
            )
            while not answer.done():
                writer.write(CHUNK)
                await asyncio.wait({answer}, timeout=self.every_s)
            with suppress(ConnectionError):
                self.refusals.append(answer.result())
        finally:
            answer.cancel()
            writer.close()


async def endless_body(
    url: str, path: str, key: str, limit_bytes: int = 64 << 20, limit_s: float = 20.0
) -> tuple[bytes, int]:
    """Send until the connection is closed; return the answer and the number of bytes taken."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    answer = asyncio.create_task(reader.read(1 << 16))
    n_sent = 0
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: audio/mpeg\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
    )
    block = bytes(1 << 18)
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(limit_s):
            while n_sent < limit_bytes:
                writer.write(block)
                await writer.drain()
                n_sent += len(block)
    writer.close()
    return await answer, n_sent
