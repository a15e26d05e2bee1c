"""A real HTTP server on loopback that answers as the identification and enrichment services do."""

import base64
import hashlib
import hmac
import io
import json
import time
import wave
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from tests.providers.serving import serving

MBID = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
RELEASE = "a1b2c3d4-0000-4000-8000-00000000beef"
GROUP = "a1b2c3d4-0000-4000-8000-00000000cafe"
ISRC, SPOTIFY, APPLE = "QZTST2100001", "1StUbTrAcK0000000000Aa", "1600000001"
DEEZER, YOUTUBE = "990000001", "StubVideo0A"
ARTIST, TITLE, ALBUM = "The Stub Quartet", "Paper Lanterns", "Fixtures"
LABEL, DATE = "Localhost Records", "2021-05-14"
KEY, SECRET = "stub-key", "stub-secret"
DURATION_S = 213.0


@dataclass
class Received:
    """A request with its form, read before the answer is made."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: dict[str, str]
    files: dict[str, bytes]
    body: bytes


@dataclass
class IdentifyStub:
    """The server's record of requests, and its answers.

    Attributes:
        answers: Maps a service to the response it gives instead of its own.
        delays: Maps a service to the seconds it takes.
        finds: Whether the services know the clip.
    """

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: dict[str, Callable[[], Response]] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    finds: bool = True

    def of(self, service: str) -> list[Received]:
        """Every request to one service."""
        return [one for one in self.received if one.path.startswith(f"/{service}/")]


def acoustid(stub: IdentifyStub, request: Received) -> Response:
    form = request.form
    if form.get("client") != KEY:
        error = {"code": 4, "message": "invalid API key"}
        return JSONResponse({"status": "error", "error": error}, 400)
    if not stub.finds or abs(int(form["duration"]) - DURATION_S) > 7:
        return JSONResponse({"status": "ok", "results": []})
    recording = {
        "id": MBID, "title": TITLE, "duration": 213, "sources": 42, "isrcs": [ISRC],
        "artists": [{"id": "a", "name": "The Stub", "joinphrase": " & "},
                    {"id": "b", "name": "Quartet"}],
        "releasegroups": [{"id": GROUP, "type": "Album", "title": ALBUM}],
    }  # fmt: skip
    rare = {**recording, "id": RELEASE, "title": "Another", "sources": 2}
    results = [
        {"id": "11111111-2222-4333-8444-555555555555", "score": 0.93,
         "recordings": [rare, recording]},
        {"id": "21111111-2222-4333-8444-555555555555", "score": 0.97},
        {"id": "31111111-2222-4333-8444-555555555555", "score": 0.31,
         "recordings": [{**recording, "title": "Weak", "sources": 999}]},
    ]  # fmt: skip
    return JSONResponse({"status": "ok", "results": results})


def audd(stub: IdentifyStub, request: Received) -> Response:
    if request.form.get("api_token") != KEY:
        return audd_error(900)()
    if not stub.finds:
        return JSONResponse({"status": "success", "result": None})
    apple = {
        "artwork": {"width": 1500, "height": 1500, "url": "https://img.test/{w}x{h}bb.jpeg"},
        "artistName": ARTIST, "genreNames": ["Electronic", "Music"], "durationInMillis": 213000,
        "isrc": ISRC, "playParams": {"id": APPLE, "kind": "song"},
    }  # fmt: skip
    result = {
        "artist": ARTIST, "title": TITLE, "album": ALBUM, "release_date": DATE, "label": LABEL,
        "timecode": "00:09", "song_link": "https://lis.tn/x", "apple_music": apple,
        "spotify": {"id": SPOTIFY, "external_ids": {"isrc": ISRC}, "duration_ms": 213000},
        "deezer": {"id": int(DEEZER), "duration": 213, "artist": {}, "album": {}},
        "musicbrainz": [{"id": MBID, "score": 100}],
    }  # fmt: skip
    return JSONResponse({"status": "success", "result": result})


def audd_error(code: int) -> Callable[[], Response]:
    error = {"error_code": code, "error_message": "Recognition failed: …"}
    return lambda: JSONResponse({"status": "error", "error": error, "request_params": {}})


def acrcloud(stub: IdentifyStub, request: Received) -> Response:
    form = request.form
    text = f"POST\n/v1/identify\n{KEY}\n{form['data_type']}\n1\n{form['timestamp']}"
    digest = hmac.new(SECRET.encode(), text.encode(), hashlib.sha1).digest()
    is_fresh = abs(time.time() - int(form["timestamp"])) < 300
    if form["access_key"] != KEY:
        return acrcloud_code(3001)()
    if form["signature"] != base64.b64encode(digest).decode() or not is_fresh:
        return acrcloud_code(3014)()
    if int(form["sample_bytes"]) != len(request.files["sample"]):
        return acrcloud_code(3006)()
    if not stub.finds:
        return acrcloud_code(1001)()
    return acrcloud_found({})()


def acrcloud_code(code: int) -> Callable[[], Response]:
    status = {"msg": "…", "code": code, "version": "1.0"}
    return lambda: JSONResponse({"status": status, "cost_time": 0.1, "result_type": 0})


def acrcloud_found(changes: dict[str, object]) -> Callable[[], Response]:
    music = {
        "acrid": "6049f11da7095e8bb8266871d4a70873", "title": TITLE, "artists": [{"name": ARTIST}],
        "album": {"name": ALBUM}, "label": LABEL, "release_date": DATE, "duration_ms": 213000,
        "score": 88, "genres": [{"name": "Electronic"}], "external_ids": {"isrc": ISRC},
        "external_metadata": {
            "spotify": {"track": {"id": SPOTIFY}}, "deezer": {"track": {"id": DEEZER}},
            "youtube": {"vid": YOUTUBE}, "musicbrainz": [{"track": {"id": MBID}}],
        },
        **changes,
    }  # fmt: skip
    body = {"status": {"msg": "Success", "code": 0}, "metadata": {"music": [music]}}
    return lambda: JSONResponse(body)


def shazam(stub: IdentifyStub, request: Received) -> Response:
    if not stub.finds:
        return JSONResponse({"matches": [], "timestamp": 1, "tagid": "x", "retryms": 3000})
    return shazam_found(0.0001)()


def shazam_found(skew: float) -> Callable[[], Response]:
    track = {
        "key": "549679333", "title": TITLE, "subtitle": ARTIST, "isrc": ISRC,
        "images": {"coverart": "https://img.test/400.jpg"}, "genres": {"primary": "Electronic"},
        "hub": {"actions": [{"name": "apple", "type": "applemusicplay", "id": APPLE},
                            {"name": "apple", "type": "uri", "uri": "https://audio.test/x"}]},
        "sections": [{"type": "SONG", "metadata": [{"title": "Album", "text": ALBUM},
                      {"title": "Label", "text": LABEL}, {"title": "Released", "text": "2021"}]},
                     {"type": "LYRICS"}],
    }  # fmt: skip
    matches = [{"id": "1", "offset": 42.1, "timeskew": skew, "frequencyskew": 0.0}]
    return lambda: JSONResponse({"matches": matches, "track": track, "tagid": "x"})


def discogs(stub: IdentifyStub, request: Received) -> Response:
    if request.headers.get("authorization") != f"Discogs token={KEY}":
        return JSONResponse({"message": "You must authenticate to access this resource."}, 401)
    known = {"type": "release", "genre": ["Electronic"], "country": "US", "format": ["CDr"]}
    hits = [
        {**known, "title": "Various - Best of Lanterns", "label": ["Wrong"], "style": ["Wrong"]},
        {**known, "title": "Stub Quartet, The (2) - Single", "label": ["Elsewhere"]},
        {**known, "title": f"{ARTIST} (2) - Paper Lanterns EP", "label": "Old Label"},
        {**known, "title": f"{ARTIST} (2) - {ALBUM}", "label": [f"{LABEL} (3)"],
         "style": ["Chiptune", "Electro"]},
    ]  # fmt: skip
    found = hits if stub.finds else []
    return JSONResponse({"pagination": {"items": len(found)}, "results": found})


def coverart(stub: IdentifyStub, request: Received) -> Response:
    if not stub.finds or RELEASE in request.path:
        return HTMLResponse("<html>404 Not Found</html>", 404)
    return Response(status_code=307, headers={"location": "http://127.0.0.1:1/archive.jpg"})


def musicbrainz(stub: IdentifyStub, request: Received) -> Response:
    if not stub.finds:
        return JSONResponse({"error": "Not Found"}, 404)
    releases = [
        {"id": "1" * 8, "status": "Bootleg", "date": "2019", "release-group": {"id": "no"}},
        {"id": RELEASE, "status": "Official", "date": DATE, "release-group": {"id": GROUP}},
        {"id": "2" * 8, "status": "Official", "date": "2023", "release-group": {"id": "no"}},
    ]
    return JSONResponse({"id": MBID, "title": TITLE, "releases": releases})


SERVICES = {
    "acoustid": acoustid,
    "audd": audd,
    "acrcloud": acrcloud,
    "shazam": shazam,
    "discogs": discogs,
    "coverart": coverart,
    "musicbrainz": musicbrainz,
}


async def _trickle() -> AsyncIterator[bytes]:
    yield b'{"status":'
    while True:
        await anyio.sleep(0.1)
        yield b" "


MALFORMED: dict[str, Callable[[], Response]] = {
    "server error": lambda: PlainTextResponse("oops", 500),
    "html": lambda: HTMLResponse("<html>Blocked</html>"),
    "cut off": lambda: Response('{"status": "ok', media_type="application/json"),
    "empty": lambda: Response(b""),
    "a list": lambda: JSONResponse([1, 2]),
    "wrong shape": lambda: JSONResponse(
        {"status": [], "results": 5, "result": 7, "metadata": 3, "matches": "x", "releases": 1}
    ),
}


def trickle() -> Response:
    """An answer that never ends, with bytes now and then, so that no single read is slow."""
    return StreamingResponse(_trickle(), media_type="application/json")


async def _receive(request: Request) -> Received:
    form: dict[str, str] = {}
    files: dict[str, bytes] = {}
    body = await request.body()
    if request.headers.get("content-type", "").startswith(("multipart/", "application/x-www")):
        async with request.form() as fields:
            for name, value in fields.items():
                if isinstance(value, UploadFile):
                    files[name] = await value.read()
                else:
                    form[name] = value
    return Received(
        request.url.path, dict(request.query_params), dict(request.headers), form, files, body
    )


async def _answer(request: Request) -> Response:
    stub: IdentifyStub = request.app.state.stub
    service = request.url.path.split("/")[1]
    received = await _receive(request)
    stub.received.append(received)
    await anyio.sleep(stub.delays.get(service, 0))
    if service in stub.answers:
        return stub.answers[service]()
    return SERVICES[service](stub, received)


@contextmanager
def running_identify_stub() -> Iterator[IdentifyStub]:
    """Serve on a free port of loopback until the block ends."""
    stub = IdentifyStub()
    app = Starlette(routes=[Route("/{rest:path}", _answer, methods=["GET", "POST"])])
    app.state.stub = stub
    with serving(app) as stub.url:
        yield stub


def wav(seconds: float = 12.0) -> bytes:
    """Silence, in the format in which excerpts are sent."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 22_050, 0, "NONE", ""))
        out.writeframes(bytes(2 * int(seconds * 22_050)))
    return file.getvalue()


def seconds_of(sent: bytes) -> float:
    """Length of a WAV file."""
    with wave.open(io.BytesIO(sent)) as file:
        return file.getnframes() / file.getframerate()


def as_json(received: Received) -> dict[str, object]:
    """The JSON body of a request."""
    body: dict[str, object] = json.loads(received.body)
    return body
