"""Fetch audio from an address that a customer names; see `serve_app.providers.web.url_guard`."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin

import httpcore

from serve_app.providers.web.url_guard import (
    CONNECT_S,
    NO_ANSWER,
    GuardedConnector,
    InvalidUrlError,
    Resolve,
    Target,
    UrlFetchError,
    UrlGuard,
    public_message,
)

MAX_REDIRECTS = 3
FIRST_BYTE_S, TOTAL_S = 10.0, 60.0
SLOW_START_S = 10.0
SLOWEST_BYTES_PER_S = 8 * 1024
"""The least average rate after that time, for hosts and clients: slow ones keep others waiting."""

WRITE_BYTES = 1 << 20
MANY_CHUNKS, SMALL_CHUNK_BYTES = 10_000, 64
"""So many chunks of so small an average size cost more to read than audio is worth."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXT_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/json"})
_PLAYLIST_TYPES = frozenset(
    {
        "application/dash+xml",
        "application/pls+xml",
        "application/vnd.apple.mpegurl",
        "application/x-mpegurl",
        "application/xspf+xml",
        "audio/mpegurl",
        "audio/x-mpegurl",
        "audio/x-scpls",
    }
)
_TEXT_STARTS = (b"<", b"#extm3u", b"[playlist]", b"ffconcat", b"{")

_TOO_SLOW = f"The audio took longer than {TOTAL_S:g} s to arrive; upload the file instead."
_TOO_SLOWLY = (
    f"The host sends less than {SLOWEST_BYTES_PER_S // 1024} KiB/s; upload the file instead."
)
_NOT_AUDIO = (
    "The address gives a web page, text or playlist, not audio; use the address of the audio file "
    "itself."
)


@dataclass(frozen=True, slots=True)
class FetchedAudio:
    """The result of a fetch.

    Attributes:
        sha256: Hex digest of the bytes.
        content_type: Media type as sent by the host, in lower case, without parameters; may be "".
    """

    size_bytes: int
    sha256: str
    content_type: str


class AudioUrlFetcher:
    """Fetches audio from addresses that a guard permits.

    Args:
        guard: Decides which addresses may be fetched.
        resolve: Resolves name and port to addresses; the system's resolver if None.
        tls: Trusted certificates; Mozilla's (certifi) if None.
    """

    def __init__(
        self, guard: UrlGuard, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._connector = GuardedConnector(guard, resolve, tls)

    def check(self, url: str) -> None:
        """Check an address's form; raises `InvalidUrlError` if it may not be fetched."""
        self._guard.check(url)

    async def fetch(self, url: str, destination: Path, max_bytes: int) -> FetchedAudio:
        """Fetch audio into a file; on failure nothing is left.

        Args:
            url: Address of the audio.
            destination: File to write.
            max_bytes: Maximum size; more is refused.

        Raises:
            InvalidUrlError: See `UrlGuard.check`.
            UrlFetchError: Any fault that shows only while fetching.
        """
        target = self._guard.parse(url)
        try:
            async with asyncio.timeout(TOTAL_S):
                return await self._follow(url, target, destination, max_bytes)
        except TimeoutError as fault:
            await asyncio.to_thread(destination.unlink, missing_ok=True)
            raise UrlFetchError(_TOO_SLOW) from fault
        except BaseException:
            await asyncio.to_thread(destination.unlink, missing_ok=True)
            raise

    async def _follow(
        self, url: str, target: Target, destination: Path, max_bytes: int
    ) -> FetchedAudio:
        for _ in range(MAX_REDIRECTS + 1):
            location = ""
            try:
                async with await self._connector.pool(target) as pool:
                    request = pool.stream(
                        "GET",
                        target.url,
                        headers=_headers(target),
                        extensions={"timeout": {"connect": CONNECT_S, "read": FIRST_BYTE_S}},
                    )
                    async with request as response:
                        if response.status not in _REDIRECTS:
                            return await _receive(response, destination, max_bytes)
                        location = _header(response, b"location")
            except (httpcore.TimeoutException, httpcore.NetworkError, OSError) as fault:
                raise UrlFetchError(public_message(fault)) from fault
            except httpcore.ProtocolError as fault:
                raise UrlFetchError(NO_ANSWER) from fault
            url = urljoin(url, location)
            try:
                target = self._guard.parse(url)
            except InvalidUrlError as fault:
                raise UrlFetchError(
                    f"The address redirects to one that may not be fetched. {fault}"
                ) from fault
        raise UrlFetchError(f"The address redirects more than {MAX_REDIRECTS} times.")


def _headers(target: Target) -> list[tuple[str, str]]:
    return [
        ("Host", target.host_header),
        ("User-Agent", "afa"),
        ("Accept", "audio/*, application/octet-stream;q=0.9, */*;q=0.1"),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]


def _header(response: httpcore.Response, name: bytes) -> str:
    for key, value in response.headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return ""


async def _receive(response: httpcore.Response, destination: Path, max_bytes: int) -> FetchedAudio:
    content_type = _header(response, b"content-type").partition(";")[0].strip().lower()
    _check_head(response, content_type, max_bytes)
    digest = hashlib.sha256()
    size = 0
    with await asyncio.to_thread(destination.open, "wb") as file:
        async with aclosing(_blocks(response)) as blocks:
            async for block in blocks:
                if size == 0 and _is_text(block):
                    raise UrlFetchError(_NOT_AUDIO)
                size += len(block)
                if size > max_bytes:
                    raise UrlFetchError(_too_big(max_bytes))
                await asyncio.to_thread(_write, file, digest, block)
    if size == 0:
        raise UrlFetchError("The address gives an empty file.")
    return FetchedAudio(size, digest.hexdigest(), content_type)


def _check_head(response: httpcore.Response, content_type: str, max_bytes: int) -> None:
    if response.status in (401, 403):
        raise UrlFetchError(
            f"The address answers {response.status}: it needs a login; use a public one."
        )
    if response.status != 200:
        raise UrlFetchError(f"The address answers {response.status} instead of audio.")
    if _header(response, b"content-encoding").lower() not in ("", "identity"):
        raise UrlFetchError("The host compresses the audio although asked not to.")
    length = _header(response, b"content-length")
    if length.isdecimal() and int(length) > max_bytes:
        raise UrlFetchError(_too_big(max_bytes))
    if content_type in _TEXT_TYPES or content_type in _PLAYLIST_TYPES:
        raise UrlFetchError(_NOT_AUDIO)


def _is_text(block: bytes) -> bool:
    return block.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_TEXT_STARTS)


async def _blocks(response: httpcore.Response) -> AsyncGenerator[bytes, None]:
    """Gather the body into blocks worth a thread switch."""
    waiting = bytearray()
    async with aclosing(_paced(response)) as chunks:
        async for chunk in chunks:
            waiting += chunk
            if len(waiting) >= WRITE_BYTES:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)


async def _paced(response: httpcore.Response) -> AsyncGenerator[bytes, None]:
    """Yield the body's chunks as long as they arrive fast enough."""
    stream = aiter(response.aiter_stream())
    size, n_chunks = 0, 0
    began = asyncio.get_running_loop().time()
    while True:
        try:
            async with asyncio.timeout_at(began + SLOW_START_S + size / SLOWEST_BYTES_PER_S):
                chunk = await anext(stream, None)
        except TimeoutError as fault:
            raise UrlFetchError(_TOO_SLOWLY) from fault
        if chunk is None:
            return
        size += len(chunk)
        n_chunks += 1
        if n_chunks > MANY_CHUNKS and size < n_chunks * SMALL_CHUNK_BYTES:
            raise UrlFetchError("The host sends the audio in tiny pieces; upload the file instead.")
        yield chunk


def _write(file: BinaryIO, digest: "hashlib._Hash", block: bytes) -> None:
    digest.update(block)
    file.write(block)


def _too_big(max_bytes: int) -> str:
    return f"The audio is larger than the limit of {max_bytes / 2**20:g} MB."
