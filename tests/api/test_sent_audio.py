"""Audio is accepted in every form: bytes of any declared type, a form, an asset, a URL."""

import asyncio
import gzip
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from serve_app.providers.web.url_guard import UrlFetchError
from serve_app.services import gate
from serve_app.services.audio.signatures import HEAD_BYTES, media_type_of
from tests.api.application import Application
from tests.api.described import described_app

pytestmark = pytest.mark.redis

ROUTES = ("/v1/audio-features/upload", "/v1/bpm", "/v1/identify", "/v1/assets/upload")
TAKEN = {
    "/v1/audio-features/upload": 202,
    "/v1/bpm": 200,
    "/v1/identify": 502,  # no recogniser is set up here, so nothing can identify the audio
    "/v1/assets/upload": 201,
}
CURLS_DEFAULT = "application/x-www-form-urlencoded"


@pytest.fixture
def audio_host(demo_audio: bytes) -> Iterator[str]:
    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_audio = self.path == "/demo.mp3"
            body = demo_audio if is_audio else b"<html>hello</html>"
            self.send_response(200)
            self.send_header("Content-Type", "audio/mpeg" if is_audio else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "kind", [None, CURLS_DEFAULT, "audio/wav", "application/json", "video/mp4"]
)
async def test_bytes_are_taken_whatever_their_type_is_called(
    api: Application, demo_audio: bytes, path: str, kind: str | None
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await api.client().post(path, content=demo_audio, headers=headers)
    assert answer.status_code == TAKEN[path], answer.text


@pytest.mark.parametrize("path", ROUTES)
async def test_a_form_is_taken(api: Application, demo_audio: bytes, path: str) -> None:
    answer = await api.client().post(path, files={"file": ("a.mp3", demo_audio)})
    assert answer.status_code == TAKEN[path], answer.text


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("kind", ["application/json", CURLS_DEFAULT, None])
async def test_json_names_an_asset_or_an_address(
    api: Application, demo_audio: bytes, audio_host: str, path: str, kind: str | None
) -> None:
    client = api.client()
    asset = (await client.post("/v1/assets/upload", content=demo_audio)).json()["asset_id"]
    headers = {} if kind is None else {"Content-Type": kind}
    address = f"{audio_host}/demo.mp3"
    for named in (
        {"asset_id": asset},
        {"url": address},
        {"asset_id": None, "url": address, "files": None},
    ):
        answer = await client.post(path, content=json.dumps(named), headers=headers)
        assert answer.status_code == TAKEN[path], answer.text
        if path == "/v1/assets/upload":  # the same bytes are the same asset
            assert answer.json()["asset_id"] == asset


@pytest.mark.parametrize("path", ["/v1/bpm", "/v1/identify", "/v1/assets/upload"])
async def test_an_address_that_gives_no_audio_is_400_and_free(
    api: Application, audio_host: str, path: str
) -> None:
    for url in (f"{audio_host}/page.html", "http://10.0.0.1/a.mp3", "ftp://a.org/x"):
        answer = await api.client().post(path, json={"url": url})
        assert answer.status_code == 400, answer.text
        assert answer.json()["message"].startswith("url: ")
    assert await api.remaining("pro") == 60_000


async def test_two_addresses_of_one_owner_are_fetched_at_once_and_few_wait(
    api: Application, demo_audio: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release, n_going, most = asyncio.Semaphore(0), asyncio.Event(), 0, 0

    async def fetch(url: str, file: Path, max_bytes: int) -> None:
        nonlocal n_going, most
        n_going += 1
        most = max(most, n_going)
        begun.release()
        await release.wait()
        await asyncio.to_thread(file.write_bytes, demo_audio)
        n_going -= 1

    monkeypatch.setattr(api.services.audio_urls, "fetch", fetch)
    named = {"url": "https://a.org/x"}
    client, n = api.client("free"), api.services.tiers["free"].uploads_in_flight
    slow = [asyncio.create_task(client.post("/v1/bpm", json=named)) for _ in range(n)]
    for _ in range(2):
        await begun.acquire()
    while api.services.bodies._taken["owner-free"] < n:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    refused = await client.post("/v1/bpm", json=named)
    assert (refused.status_code, refused.json()["error"]) == (429, "concurrency_exceeded")
    release.set()
    assert [answer.status_code for answer in await asyncio.gather(*slow)] == [200] * n
    files = {"files": [named] * 6}
    vectors = (await api.client("pro").post("/v1/embed", json=files)).text.splitlines()
    assert [json.loads(line)["error"] for line in vectors] == [None] * 6
    assert most == 2


async def test_an_address_that_waits_too_long_is_429(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Semaphore(0)

    async def fetch(*_: object) -> None:
        begun.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(api.services.audio_urls, "fetch", fetch)
    monkeypatch.setattr(gate, "LONGEST_WAIT_S", 0.05)
    client, named = api.client(), {"url": "https://a.org/x"}
    slow = [asyncio.create_task(client.post("/v1/bpm", json=named)) for _ in range(2)]
    for _ in slow:
        await begun.acquire()
    refused = await client.post("/v1/embed", json={"files": [named]})
    assert (refused.status_code, refused.json()["error"]) == (429, "concurrency_exceeded")
    assert "2 of your addresses" in refused.json()["message"]
    assert await api.remaining("pro") == 60_000
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_slow_addresses_of_a_request_are_not_in_its_way(
    api: Application, demo_audio: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(url: str, file: Path, max_bytes: int) -> None:
        if url.endswith("slow"):
            await asyncio.sleep(0.1)
            raise UrlFetchError("too slow")
        await asyncio.to_thread(file.write_bytes, demo_audio)

    monkeypatch.setattr(api.services.audio_urls, "fetch", fetch)
    monkeypatch.setattr(gate, "LONGEST_WAIT_S", 0.05)
    kinds = ["slow"] * 2 + ["good"] * 2 + ["slow"] * 4 + ["good"]
    files = [{"url": f"https://a.org/{kind}"} for kind in kinds]
    answer = await api.client().post("/v1/embed", json={"files": files})
    assert answer.status_code == 200, answer.text
    errors = [json.loads(line)["error"] for line in answer.text.splitlines()]
    found = ["good" if error is None else error["error"] for error in errors]
    assert found == ["url_fetch_failed" if kind == "slow" else kind for kind in kinds]
    assert await api.remaining("pro") == 60_000 - 3 * 5


async def test_a_test_key_fetches_nothing(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(*_: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr(api.services.audio_urls, "fetch", fetch)
    body = {"url": "https://example.org/a.mp3"}
    first, again = [await api.client("test").post("/v1/bpm", json=body) for _ in range(2)]
    assert first.status_code == 200, first.text
    assert first.json()["tempo"] == again.json()["tempo"]


@pytest.mark.parametrize("path", ROUTES)
async def test_text_of_no_known_type_is_415_and_says_what_to_send(
    api: Application, path: str
) -> None:
    headers = {"Content-Type": CURLS_DEFAULT}
    answer = await api.client().post(path, content=b"# A page\n" * 100, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


BODIES = [
    (method, path)
    for path, operations in described_app().openapi()["paths"].items()
    for method, operation in operations.items()
    if "requestBody" in operation
]


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize(("method", "path"), BODIES)
async def test_a_compressed_body_is_told_to_come_as_it_is(
    api: Application, method: str, path: str, with_key: bool
) -> None:
    headers = {"Content-Encoding": "GZIP"} | ({"Idempotency-Key": "k"} if with_key else {})
    sent = gzip.compress(b'{"url": "https://example.org/a.mp3"}')
    answer = await api.client().request(method, path, content=sent, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")
    assert "send it as it is" in answer.json()["message"]
    assert answer.headers["Accept-Encoding"] == "identity"
    assert "415" in described_app().openapi()["paths"][path][method]["responses"]
    assert await api.remaining("pro") == 60_000


async def test_a_coding_that_is_none_does_no_harm(api: Application, demo_audio: bytes) -> None:
    for named in ("identity", "utf-8", ""):
        headers = {"Content-Encoding": named}
        answer = await api.client().post("/v1/bpm", content=demo_audio, headers=headers)
        assert answer.status_code == 200, answer.text


async def test_an_asset_is_refused_that_says_it_is_something_else(
    api: Application, demo_audio: bytes
) -> None:
    for kind in ("text/plain", "image/png", "application/pdf"):
        answer = await api.client().post(
            "/v1/assets/upload", content=demo_audio, headers={"Content-Type": kind}
        )
        assert answer.status_code == 415
        assert kind in answer.json()["message"]


async def test_an_asset_keeps_the_type_that_its_bytes_show(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client()
    asset = (await client.post("/v1/assets/upload", content=demo_audio)).json()["asset_id"]
    assert (await client.get(f"/v1/assets/{asset}")).json()["content_type"] == "audio/mpeg"


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("kind", ["application/json", CURLS_DEFAULT])
async def test_json_is_read_as_windows_writes_it(
    api: Application, demo_audio: bytes, code: str, kind: str
) -> None:
    client = api.client()
    asset = (await client.post("/v1/assets/upload", content=demo_audio)).json()["asset_id"]
    mark = "\N{BYTE ORDER MARK}" if code == "utf-16-be" else ""
    sent = f'{mark}{{"asset_id": "{asset}"}}'.encode(code)
    answer = await client.post("/v1/bpm", content=sent, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["asset_id"]) == (200, asset)


async def test_any_audio_is_no_type_to_keep(api: Application, demo_audio: bytes) -> None:
    client, headers = api.client(), {"Content-Type": "audio/*"}
    answer = await client.post("/v1/assets/upload", content=demo_audio, headers=headers)
    kept = (await client.get(f"/v1/assets/{answer.json()['asset_id']}")).json()
    assert kept["content_type"] == "audio/mpeg"


async def test_the_address_of_a_url_analysis_may_ask_for_the_embedding(
    api: Application, audio_host: str
) -> None:
    path, body = "/v1/audio-features/url?include_embedding=true", {"url": f"{audio_host}/demo.mp3"}
    done = await api.client().post(f"{path}&wait=60", json=body)
    assert len(done.json()["result"]["embedding"]) == 768
    refused = await api.client("basic").post(path, json=body)
    assert (refused.status_code, refused.json()["error"]) == (402, "tier_required")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"RIFF\0\0\0\0WAVE", "audio/wav"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"OggS", "audio/ogg"),
        (bytes(HEAD_BYTES), "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_the_first_bytes_show_the_type(head: bytes, kind: str) -> None:
    assert media_type_of(head) == kind


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"files": [("file", b"a"), ("file", b"b")]}, "several files"),
        ({"files": {"audio": b"x"}}, "no part `file`, but `audio`"),
        ({"data": {"file": "x"}, "files": {"other": b"y"}}, "-F file=@NAME"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, "boundary"),
        (
            {"data": dict.fromkeys("abcdefghij", "x"), "files": {"file": b"y"}},
            "too many text fields",
        ),
        ({"json": {"id": "afa_1"}}, "asset_id"),
        ({"content": b"", "headers": {"Content-Type": "audio/mpeg"}}, "empty"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/bpm", "/v1/audio-features/upload"])
async def test_a_body_that_cannot_be_used_is_told_what_is_wrong(
    api: Application, path: str, sent: dict[str, Any], told: str
) -> None:
    answer = await api.client().post(path, **sent)
    assert answer.status_code == 400, answer.text
    assert told in answer.json()["message"]


def form(file: bytes, end: bytes = b"--b--\r\n") -> bytes:
    """Write a form with a text field before its file."""
    text = b'--b\r\nContent-Disposition: form-data; name="t\xfc"\r\n\r\nx\r\n'
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="\xc3\xbc.mp3"\r\n\r\n'
    return text + head + file + b"\r\n" + end


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-16", "ISO-8859-1", "none such"])
async def test_the_charset_of_a_form_is_passed_over(
    api: Application, demo_audio: bytes, charset: str
) -> None:
    kind = f'multipart/form-data; charset="{charset}"; boundary=b'
    answer = await api.client().post(
        "/v1/bpm", content=form(demo_audio), headers={"Content-Type": kind}
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("kind", ["audio/" + "x" * 5000, "audio/<mpeg>", "x" * 5000])
async def test_what_is_no_media_type_is_not_kept(
    api: Application, demo_audio: bytes, kind: str
) -> None:
    client, sent = api.client(), {"Content-Type": kind}
    put = await client.post("/v1/assets/upload", content=demo_audio, headers=sent)
    assert put.status_code == 201, put.text
    kept = (await client.get(f"/v1/assets/{put.json()['asset_id']}")).json()
    assert kept["content_type"] == "audio/mpeg"
    refused = await client.post("/v1/bpm", content=b"<html>", headers=sent)
    assert (refused.status_code, len(refused.content) < 1000) == (415, True)


async def test_no_charset_hides_in_a_boundary(api: Application, demo_audio: bytes) -> None:
    kind = r'multipart/form-data; boundary="b\"; charset=\"punycode"'
    answer = await api.client().post(
        "/v1/bpm", content=form(demo_audio), headers={"Content-Type": kind}
    )
    assert answer.status_code == 400, answer.text


async def test_a_form_that_is_cut_short_is_told_so(api: Application, demo_audio: bytes) -> None:
    cut = form(demo_audio, b"")
    for body in (cut, cut[:100], form(demo_audio, b"--b\r\n")):
        answer = await api.client().post(
            "/v1/embed", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}
        )
        assert answer.status_code == 400, answer.text
        assert "cannot be read to its end" in answer.json()["message"]


@pytest.mark.parametrize("by", ["bytes", "url"])
async def test_waiting_for_the_end_of_a_job_answers_200_with_its_result(
    api: Application, demo_audio: bytes, audio_host: str, by: str
) -> None:
    client = api.client()
    if by == "bytes":
        sent: dict[str, Any] = {"url": "/v1/audio-features/upload", "content": demo_audio}
    else:
        body = {"url": f"{audio_host}/demo.mp3"}
        sent = {"url": "/v1/audio-features/url", "json": body}
    answer = await client.post(**sent, params={"wait": 60})
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["status"], done["result"]["tempo"]) == ("complete", 120.0)
    assert done["_meta"]["credits_used"] == 10
    again = await client.get(f"/v1/jobs/{done['job_id']}")
    assert again.json()["result"] == done["result"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no audio" * 50, "the part `file` is not audio; send the bytes of an audio file"),
        (b"", "the body or its file is empty"),
    ],
)
async def test_a_form_without_audio_is_refused_before_a_job(
    api: Application, content: bytes, told: str
) -> None:
    client = api.client()
    answer = await client.post("/v1/audio-features/upload", files={"file": ("a.mp3", content)})
    assert answer.status_code == 400
    assert told in answer.json()["message"]
    assert await api.remaining("pro") == 60_000


async def test_waiting_too_short_a_time_answers_202(api: Application, demo_audio: bytes) -> None:
    api.backend.gate = asyncio.Event()
    client = api.client()
    answer = await client.post(
        "/v1/audio-features/upload", content=demo_audio, params={"wait": 0.2}
    )
    assert answer.status_code == 202
    assert answer.json()["status"] in ("queued", "running")
    api.backend.gate.set()


async def test_waiting_for_what_fails_answers_200_with_the_error(api: Application) -> None:
    answer = await api.client().post(
        "/v1/audio-features/upload",
        content=b"no audio" * 50,
        headers={"Content-Type": "audio/mpeg"},
        params={"wait": 60},
    )
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["_meta"]["credits_used"]) == ("failed", 0)
    # A poll has its own trace, but its error names the trace that is in the job's logs.
    poll = (await api.client().get(f"/v1/jobs/{answer.json()['job_id']}")).json()
    assert poll["_meta"]["trace_id"] != answer.headers["X-Trace-Id"]
    assert poll["error"]["trace_id"] == answer.headers["X-Trace-Id"]
    (listed,) = (await api.client().get("/v1/jobs")).json()["items"]
    assert listed["error"] == poll["error"]


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "one"}])
@pytest.mark.parametrize("path", ["/v1/bpm", "/v1/audio-features"])
async def test_what_announces_too_much_is_refused_unread(
    api: Application, path: str, key: dict[str, str]
) -> None:
    n_read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal n_read
        for _ in range(99):
            n_read += 1
            yield bytes(2**16)

    headers = {"Content-Length": str(100 * 2**20), **key}
    answer = await api.client("basic").post(path, content=body(), headers=headers)
    assert answer.status_code == 413
    assert n_read <= 1  # one block may be read before the answer


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "one"}])
@pytest.mark.parametrize("is_form", [True, False])
async def test_413_tells_the_tiers_size_however_audio_comes(
    api: Application, key: dict[str, str], *, is_form: bool
) -> None:
    most = 15 * 2**20
    audio = bytes(most + 2**17)
    body: dict[str, Any] = {"files": {"file": audio}} if is_form else {"content": audio}
    answer = await api.client("basic").post("/v1/bpm", headers=key, **body)
    assert answer.status_code == 413
    assert re.findall(r"\d{3,}", answer.json()["message"])[-1] == str(most)
