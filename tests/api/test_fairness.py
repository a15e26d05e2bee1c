"""One owner's slow bodies, endless bodies and full stores do not affect other owners."""

import asyncio
import io
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.door import audio_body
from serve_app.composition.options import StoreOptions
from serve_app.providers.web import audio_url
from serve_app.services.audio.audio import one_chunk
from tests.api.application import Application
from tests.api.live import LiveApplication, serve_application
from tests.api.slow_uploads import SlowUploads, endless_body
from tests.api.test_identify import Remote
from tests.data.audio_files import click_track, write_wav

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a busy machine time to read slow bodies and downloads before they are cut off."""
    for module in (audio_body, audio_url):
        monkeypatch.setattr(module, "SLOW_START_S", 100.0)


@pytest.fixture
def live(api_stores: StoreOptions, demo_catalog: Path) -> Iterator[LiveApplication]:
    with serve_application(api_stores, demo_catalog, recognisers=[Remote()]) as live:
        yield live


@pytest.fixture
def sound(tmp_path: Path) -> bytes:
    return write_wav(tmp_path / "click.wav", click_track(120, 4.0)).read_bytes()


WAV_HEADER_BYTES = 44
FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@pytest.mark.parametrize(
    ("path", "content_type", "opening", "alice", "n"),
    [
        ("/v1/bpm", "audio/mpeg", b"ID3", "pro", 34),
        ("/v1/identify", FORM, PART, "pro", 66),
        ("/v1/embed", "audio/mpeg", b"ID3", "scale", 66),
    ],
    ids=["bpm", "identify", "embed"],
)
async def test_slow_uploads_of_one_owner_leave_another_alone(
    live: LiveApplication,
    sound: bytes,
    path: str,
    content_type: str,
    opening: bytes,
    alice: str,
    n: int,
) -> None:
    slow = SlowUploads(live.url, live.key(alice), path, content_type, opening)
    n_refused = n - live.application.stores.tiers[alice].uploads_in_flight
    await slow.open(n, n_refused)
    key = live.key("pro" if alice == "scale" else "scale")
    bob = httpx.AsyncClient(
        base_url=live.url, headers={"Authorization": f"Bearer {key}"}, timeout=120
    )
    try:
        if content_type == FORM:
            answer = await bob.post(path, files={"file": ("a.wav", sound, "audio/wav")})
        else:
            answer = await bob.post(path, content=sound, headers={"Content-Type": "audio/wav"})
    finally:
        await slow.close()
        await bob.aclose()
    assert answer.status_code == 200, answer.text
    assert len(slow.refusals) == n_refused
    for refusal in slow.refusals:
        assert b"\r\nretry-after: " in refusal.lower()
        is_loaded = refusal.startswith(b"HTTP/1.1 503 ")  # the machine is busy with other work
        assert is_loaded or refusal.startswith(b"HTTP/1.1 429 ")
        assert is_loaded or b"concurrency_exceeded" in refusal


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/nope", "pro", 404),
        ("/healthz", "pro", 405),
        ("/readyz", "pro", 405),
        ("/v1/bpm", None, 401),
        ("/v1/assets/upload", None, 401),
        ("/v1/audio-features/upload", "free", 402),
    ],
)
async def test_what_is_answered_without_a_body_takes_none(
    live: LiveApplication, path: str, key: str | None, status: int
) -> None:
    secret = live.key(key) if key else "none"
    answer, n_taken = await endless_body(live.url, path, secret)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nconnection: close\r\n" in answer
    assert n_taken < 8 << 20  # what the sockets' buffers hold


@pytest.mark.parametrize("announced", [{}, {"Content-Length": "9"}], ids=["no", "wrong"])
async def test_json_of_no_announced_length_takes_a_place(
    api: Application, announced: dict[str, str]
) -> None:
    client, begun, release = api.client("free"), asyncio.Semaphore(0), asyncio.Event()
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked", **announced}

    async def slow_body() -> AsyncIterator[bytes]:
        yield b"ID3"
        begun.release()
        await release.wait()

    def send(content: AsyncIterator[bytes]) -> Any:
        return client.post("/v1/bpm", content=content, headers=headers)

    n = api.services.tiers["free"].uploads_in_flight
    slow = [asyncio.create_task(send(slow_body())) for _ in range(n)]
    for _ in slow:
        await asyncio.wait_for(begun.acquire(), 30)
    refused = await send(one_chunk(b"ID3"))
    release.set()
    assert (refused.status_code, refused.json()["error"]) == (429, "concurrency_exceeded")
    for answer in await asyncio.gather(*slow):
        assert answer.status_code == 400


async def test_a_connection_whose_body_was_taken_goes_on(live: LiveApplication) -> None:
    headers = {"Authorization": f"Bearer {live.key('pro')}"}
    async with httpx.AsyncClient(base_url=live.url, headers=headers) as client:
        for content in (b'{"ids": []}', b"{}"):
            answer = await client.post("/v1/audio-features", content=content)
            assert "connection" not in answer.headers
        assert "connection" not in (await client.get("/nope")).headers
        # A client that sends its whole body first still gets its answer.
        big = b"ID3" + bytes(1 << 20)
        for _ in range(3):
            answer = await client.post("/nope", content=big)
            assert (answer.status_code, answer.headers["connection"]) == (404, "close")


@pytest.fixture
async def drips() -> AsyncIterator[str]:
    """A host that sends audio at one byte a second."""

    tasks: list[asyncio.Task[Any]] = []

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await drop_by_drop(reader, writer)
        finally:
            writer.close()

    async def drop_by_drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\n\r\nID3")
            for _ in range(100):
                await asyncio.sleep(1.0)
                writer.write(b"\0")
                await writer.drain()

    host = await asyncio.start_server(drip, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{host.sockets[0].getsockname()[1]}/drip"
    host.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_dripping_addresses_of_one_owner_leave_anothers_jobs_alone(
    api: Application, sound: bytes, drips: str
) -> None:
    for n in range(6):
        body = {"url": f"{drips}{n}"}
        answer = await api.client("pro").post("/v1/audio-features/url", json=body)
        assert answer.status_code == 202
    async with asyncio.timeout(30):
        while len(await fetching(api)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    bob = api.client("scale")
    job = (
        await bob.post(
            "/v1/audio-features/upload", content=sound, headers={"Content-Type": "audio/wav"}
        )
    ).json()
    done = (await bob.get(f"/v1/jobs/{job['job_id']}", params={"wait": 60})).json()
    assert done["status"] == "complete"
    assert len(await fetching(api)) == 2  # each drip still holds its place
    # The time that fetches take does not count as time that analyses take.
    assert float(await api.stores.ledger_store.command("HGET", "{lanes}:stats", "service")) < 8_000


async def fetching(api: Application) -> list[bytes]:
    """The claims on URLs that are being fetched."""
    return list(await api.stores.ledger_store.command("ZRANGE", "{fetches}:leases", 0, -1))


async def test_an_address_is_fetched_then_analysed_and_nothing_stays(
    api: Application, sound: bytes
) -> None:
    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\n\r\n" + sound)
        await writer.drain()
        writer.close()

    host = await asyncio.start_server(give, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{host.sockets[0].getsockname()[1]}/a.wav"
    client = api.client("pro")
    job = (await client.post("/v1/audio-features/url", json={"url": url})).json()
    done = (await client.get(f"/v1/jobs/{job['job_id']}", params={"wait": 60})).json()
    host.close()
    assert done["status"] == "complete"
    record = await api.stores.jobs.get("owner-pro", job["job_id"])
    assert record is not None
    assert record.attempts == 1
    await api.no_upload_stays()
    assert await fetching(api) == []


async def test_an_upload_goes_with_a_job_that_fails_on_our_side(
    api: Application, sound: bytes
) -> None:
    api.backend.fault = RuntimeError("ours")
    client = api.client("pro")
    headers = {"Content-Type": "audio/wav"}
    answer = await client.post("/v1/audio-features/upload", content=sound, headers=headers)
    job_id = answer.json()["job_id"]
    done = (await client.get(f"/v1/jobs/{job_id}", params={"wait": 60})).json()
    assert done["error"]["error"] == "internal_error"
    await api.no_upload_stays()
    assert api.backend.n_calls == 3


@pytest.fixture
async def small_store(api: Application, monkeypatch: pytest.MonkeyPatch) -> Application:
    """The free tier stores 100,000 bytes, for an hour."""
    free = replace(api.services.tiers["free"], storage_bytes=100_000, asset_lifetime_s=3600)
    monkeypatch.setitem(api.services.tiers._by_name, "free", free)
    return api


async def grow_older(api: Application, owner: str, ms: int) -> None:
    """Make every asset of an owner expire ``ms`` earlier."""
    store = api.stores.ledger_store
    tag = store.keys.tag(owner)
    for key in await store.command("KEYS", f"as:{tag}:[rs]:{owner}:*"):
        left_ms = await store.command("PTTL", key)
        await store.command("PEXPIRE", key, max(1, left_ms - ms))
    for index in (store.keys.asset(owner, "e"), store.keys.asset_due(tag)):
        for entry in await store.command("ZRANGE", index, 0, -1):
            await store.command("ZINCRBY", index, -ms, entry)
    await asyncio.sleep(0.01)


async def test_storage_is_counted_to_the_byte_and_given_back(small_store: Application) -> None:
    client = small_store.client("free")
    headers = {"Content-Type": "audio/wav"}

    async def upload(filling: bytes, size: int) -> httpx.Response:
        body = io.BytesIO()
        with wave.open(body, "wb") as sound:
            sound.setparams((1, 1, 8_000, 0, "NONE", ""))
            sound.writeframes(filling * (size - WAV_HEADER_BYTES))
        return await client.post("/v1/assets/upload", content=body.getvalue(), headers=headers)

    async def used() -> tuple[int, int]:
        account = (await client.get("/v1/account")).json()
        return account["usage"]["stored_bytes"], account["limits"]["storage_bytes"]

    assert (await upload(b"a", 60_000)).status_code == 201
    assert (await upload(b"a", 60_000)).status_code == 201  # the same bytes
    assert await used() == (60_000, 100_000)
    refused = await upload(b"b", 40_001)
    assert (refused.status_code, refused.json()["error"]) == (413, "payload_too_large")
    for word in ("60000 bytes", "40001", "100000 in all", "expire"):
        assert word in refused.json()["message"]
    assert (await upload(b"b", 40_000)).status_code == 201
    assert await used() == (100_000, 100_000)
    assert len([info async for info in small_store.stores.objects.scan("assets/")]) == 2
    assert (await upload(b"a", 60_000)).status_code == 201  # still the same bytes
    await grow_older(small_store, "owner-free", 1_800_000)
    assert await used() == (100_000, 100_000)
    await grow_older(small_store, "owner-free", 1_800_000)
    assert await used() == (0, 100_000)
    answers = await asyncio.gather(*(upload(letter, 30_000) for letter in (b"c", b"d", b"e", b"f")))
    assert sorted(answer.status_code for answer in answers) == [201, 201, 201, 413]
    assert await used() == (90_000, 100_000)
