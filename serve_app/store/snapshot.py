"""A snapshot of a Redis server, in the form that it sends to a new replica.

Invariant: the server writes its snapshot in a separate process, so nobody waits, and what one
script wrote is in it whole or not at all.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from serve_app.store.client import CLUSTER_SCHEME, open_redis

SILENCE_LIMIT_S = 60.0
"""A server that prepares a snapshot sends an empty line every ten seconds."""

READ_BYTES = 1 << 20


class SnapshotError(RuntimeError):
    """The server provides no snapshot; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An RDB file being received; its contents are fixed."""

    size_bytes: int
    chunks: AsyncIterator[bytes]


@asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """Ask a server for a snapshot of all its databases.

    Raises:
        SnapshotError: It is a cluster, forbids SYNC, is unavailable, or could not write the file.
    """
    if url.startswith(f"{CLUSTER_SCHEME}:"):
        raise SnapshotError(
            "a Redis Cluster has no one moment to back up: use its own snapshots, and the archive "
            "of the journal"
        )
    async with open_redis(url, socket_timeout=SILENCE_LIMIT_S) as redis:
        connection = redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            yield await _begin(connection)
        finally:
            await connection.disconnect(nowait=True)


async def _begin(connection: AbstractConnection) -> Snapshot:
    line = b"\n"
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
        await connection.send_command("SYNC")
        # redis-py reads only replies; what follows SYNC is not a reply.
        reader = cast("asyncio.StreamReader", connection._reader)
        while line == b"\n":
            async with asyncio.timeout(SILENCE_LIMIT_S):
                line = await reader.readline()
    except (RedisError, OSError) as error:
        raise SnapshotError(f"Redis gave no snapshot: {error}") from error
    if not line.startswith(b"$"):
        told = line.decode(errors="replace").strip("-\r\n") or "it closed the connection"
        raise SnapshotError(f"Redis gave no snapshot: {told}; see its log")
    size_bytes = int(line[1:])
    return Snapshot(size_bytes, _read(reader, size_bytes))


async def _read(reader: asyncio.StreamReader, size_bytes: int) -> AsyncIterator[bytes]:
    left = size_bytes
    while left:
        try:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                chunk = await reader.read(min(left, READ_BYTES))
        except OSError as error:
            raise SnapshotError(f"Redis ended within its snapshot: {error}; see its log") from error
        if not chunk:
            raise SnapshotError("Redis ended within its snapshot; see its log")
        left -= len(chunk)
        yield chunk
