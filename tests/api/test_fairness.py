"""One owner's slow bodies, endless bodies and full stores leave everybody else alone."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serve_app.composition.options import StoreOptions
from tests.api.live import LiveApplication, serve_application
from tests.api.slow_uploads import SlowUploads, endless_body
from tests.api.test_identify import Remote
from tests.data.audio_files import click_track, write_wav

pytestmark = pytest.mark.redis


@pytest.fixture
def live(api_stores: StoreOptions, demo_catalog: Path) -> Iterator[LiveApplication]:
    with serve_application(api_stores, demo_catalog, recognisers=[Remote()]) as live:
        yield live


@pytest.fixture
def sound(tmp_path: Path) -> bytes:
    return write_wav(tmp_path / "click.wav", click_track(120, 4.0)).read_bytes()


FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@pytest.mark.parametrize(
    ("path", "content_type", "opening", "n"),
    [("/v1/bpm", "audio/mpeg", b"ID3", 34), ("/v1/identify", FORM, PART, 66)],
    ids=["bpm", "identify"],
)
async def test_slow_uploads_of_one_owner_leave_another_alone(
    live: LiveApplication, sound: bytes, path: str, content_type: str, opening: bytes, n: int
) -> None:
    slow = SlowUploads(live.url, live.key("pro"), path, content_type, opening)
    n_refused = n - live.application.stores.tiers["pro"].uploads_in_flight
    await slow.open(n, n_refused)
    bob = httpx.AsyncClient(
        base_url=live.url, headers={"Authorization": f"Bearer {live.key('scale')}"}, timeout=30
    )
    began = time.monotonic()
    try:
        if path == "/v1/bpm":
            answer = await bob.post(path, content=sound, headers={"Content-Type": "audio/wav"})
        else:
            answer = await bob.post(path, files={"file": ("a.wav", sound, "audio/wav")})
        waited_s = time.monotonic() - began
    finally:
        await slow.close()
        await bob.aclose()
    assert answer.status_code == 200, answer.text
    assert waited_s < 10
    assert len(slow.refusals) == n_refused
    for refusal in slow.refusals:
        assert refusal.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: " in refusal.lower()
        assert b"concurrency_exceeded" in refusal


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


async def test_a_connection_whose_body_was_taken_goes_on(live: LiveApplication) -> None:
    headers = {"Authorization": f"Bearer {live.key('pro')}"}
    async with httpx.AsyncClient(base_url=live.url, headers=headers) as client:
        for content in (b'{"ids": []}', b"{}"):
            answer = await client.post("/v1/audio-features", content=content)
            assert "connection" not in answer.headers
        assert "connection" not in (await client.get("/nope")).headers
        # A client that sends its whole body first gets its answer all the same.
        big = b"ID3" + bytes(1 << 20)
        for _ in range(3):
            answer = await client.post("/nope", content=big)
            assert (answer.status_code, answer.headers["connection"]) == (404, "close")
