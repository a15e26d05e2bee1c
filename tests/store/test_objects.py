import asyncio
import hashlib
import os
import socket
import urllib.request
from collections.abc import AsyncIterator, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.objects import ObjectNotFoundError, TooLargeError
from serve_app.store.objects import ObjectStore, check_key

MIB = 1024 * 1024


async def chunks_of(data: bytes, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def read_all(store: ObjectStore, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(key)])


async def keys_of(store: ObjectStore, prefix: str = "") -> list[str]:
    return sorted([info.key async for info in store.scan(prefix)])


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["local", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    if request.param == "local":
        return ObjectStore(f"file://{tmp_path}/objects")
    endpoint: str = request.getfixturevalue("s3_endpoint")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    bucket = f"bucket-{tmp_path.name.replace('_', '-').lower()}"[:60].strip("-")
    made = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")  # noqa: S310
    urllib.request.urlopen(made).close()  # noqa: S310
    return ObjectStore(f"s3://{bucket}/assets?endpoint={endpoint}&region=us-east-1")


@pytest.mark.parametrize("size", [0, 1, 300_000, 12 * MIB + 7])
async def test_a_stream_comes_back_as_it_went_in(
    store: ObjectStore, size: int, tmp_path: Path
) -> None:
    data = os.urandom(size)
    stored = await store.put_stream("owner/asset.bin", chunks_of(data))
    assert stored.size_bytes == size
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert await read_all(store, "owner/asset.bin") == data
    assert await store.download("owner/asset.bin", tmp_path / "copy") == size
    assert (tmp_path / "copy").read_bytes() == data


async def test_a_stream_past_its_limit_leaves_nothing(store: ObjectStore) -> None:
    with pytest.raises(TooLargeError) as caught:
        await store.put_stream("a/b", chunks_of(bytes(7 * MIB)), max_bytes=7 * MIB - 1)
    assert caught.value.max_bytes == 7 * MIB - 1
    with pytest.raises(ObjectNotFoundError):
        await read_all(store, "a/b")
    stored = await store.put_stream("a/b", chunks_of(bytes(7 * MIB)), max_bytes=7 * MIB)
    assert stored.size_bytes == 7 * MIB


async def test_a_failing_stream_keeps_the_former_object(store: ObjectStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(6 * MIB)
        raise ConnectionResetError("client went away")

    await store.put_stream("a/b", chunks_of(b"former"))
    with pytest.raises(ConnectionResetError):
        await store.put_stream("a/b", broken())
    assert await read_all(store, "a/b") == b"former"


async def test_deleting_is_idempotent_and_reading_the_deleted_fails(
    store: ObjectStore, tmp_path: Path
) -> None:
    await store.put_stream("a/b", chunks_of(b"x"))
    await store.delete("a/b")
    await store.delete("a/b")
    with pytest.raises(ObjectNotFoundError):
        await read_all(store, "a/b")
    with pytest.raises(ObjectNotFoundError):
        await store.download("a/b", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_listing_is_by_whole_key_parts(store: ObjectStore) -> None:
    for key in ("one/a", "one/b", "one-more/c", "two/d"):
        await store.put_stream(key, chunks_of(b"12345"))
    assert await keys_of(store) == ["one-more/c", "one/a", "one/b", "two/d"]
    assert await keys_of(store, "one/") == ["one/a", "one/b"]
    (info,) = [info async for info in store.scan("two")]
    assert info.size_bytes == 5
    assert abs(datetime.now(UTC) - info.modified_at) < timedelta(minutes=1)


async def test_a_sweep_takes_only_old_orphans(store: ObjectStore) -> None:
    for key in ("x/kept", "x/orphan", "y/orphan"):
        await store.put_stream(key, chunks_of(b"1"))
    asked: list[str] = []

    async def keep(keys: Collection[str]) -> Collection[str]:
        asked.extend(keys)
        return {"x/kept"}

    now = datetime.now(UTC)
    assert await store.sweep("x", now - timedelta(hours=1), keep) == 0
    assert asked == []
    assert await store.sweep("x", now + timedelta(hours=1), keep) == 1
    assert await keys_of(store) == ["x/kept", "y/orphan"]


async def test_a_cancelled_upload_leaves_no_file(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}/objects")
    went_on = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        yield bytes(6 * MIB)
        went_on.set()
        await asyncio.sleep(60)
        yield b"never"

    upload = asyncio.create_task(store.put_stream("a/b", stalled()))
    await went_on.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    for _ in range(1200):
        if not files_in(tmp_path):
            break
        await asyncio.sleep(0.05)
    assert files_in(tmp_path) == []


async def test_a_sweep_removes_what_a_crash_left_half_written(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    (tmp_path / "a").mkdir()
    for name, age_s in (("old#1", 7200), ("young#2", 0)):
        (tmp_path / "a" / name).write_bytes(b"half")
        modified = datetime.now(UTC).timestamp() - age_s
        os.utime(tmp_path / "a" / name, (modified, modified))

    async def keep(keys: Collection[str]) -> Collection[str]:
        return keys

    assert await keys_of(store) == []
    await store.sweep("", datetime.now(UTC) - timedelta(hours=1), keep)
    assert files_in(tmp_path) == ["a/young#2"]


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a b", "ä", "a\n"]
)
def test_unsafe_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="object key"):
        check_key(key)


@pytest.mark.parametrize("url", ["/folder", "gs://bucket", "s3://", "s3://b?secret=1"])
def test_unknown_stores_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="object store"):
        ObjectStore(url)


async def test_an_object_is_at_hand_as_a_file(store: ObjectStore) -> None:
    await store.put_stream("a/b", chunks_of(b"onetwo", 3))
    async with store.at_hand("a/b") as path:
        assert path.read_bytes() == b"onetwo"
    assert await keys_of(store) == ["a/b"]
    with pytest.raises(ObjectNotFoundError):
        async with store.at_hand("a/c"):
            pass


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
async def test_what_is_no_file_is_no_object(tmp_path: Path, target: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked").symlink_to(target)
    store = ObjectStore(tmp_path.as_uri())
    assert await keys_of(store) == []
    with pytest.raises(ObjectNotFoundError):
        await anext(store.read("linked"))


async def test_a_store_that_is_away_is_told_and_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        away = ObjectStore(f"s3://bucket/x?endpoint=http://127.0.0.1:{port}&region=us-east-1")
        for call in (
            away.ping(),
            away.put_stream("a", chunks_of(b"audio")),
            read_all(away, "a"),
            away.delete("a"),
            keys_of(away),
        ):
            with pytest.raises(ServiceUnavailableError, match="full or unavailable"):
                await asyncio.wait_for(call, 60)


async def test_a_store_without_its_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    store = ObjectStore(f"file://{tmp_path}/objects")
    await store.ping()
    assert files_in(tmp_path) == []
    (tmp_path / "objects").rmdir()
    (tmp_path / "objects").write_text("something else")
    with pytest.raises(ServiceUnavailableError, match="full or unavailable"):
        await store.ping()
