"""A real HTTP server on loopback that imitates the providers' shapes, errors and quirks."""

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.providers.serving import serving

MBID = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
MERGED_MBID = "00000000-8a6b-4c8e-9a51-0c7a1b2d3e4f"
"""Was merged into `MBID`."""
LIVE_MBID = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e50"
ISRC = "QZTST2100001"
LIVE_ISRC = "QZTST2200007"
SPOTIFY = "1StUbTrAcK0000000000Aa"
APPLE = "1600000001"
DEEZER = "990000001"
YOUTUBE = "StubVideo0A"
ARTIST, TITLE, ALBUM = "The Stub Quartet", "Paper Lanterns", "Fixtures"
NUMBER = "3135556"
"""An id that exists on both Apple and Deezer."""

CLIENT = ("stub-client", "stub-secret")
Handler = Callable[[Request], Response]


@dataclass
class Stub:
    """The server's record of requests, and its faults.

    Attributes:
        faults: Maps a provider to what it does instead of answering; see `FAULTS`.
        fault_lasts: Maps a provider to the number of calls its fault lasts; for ever when absent.
        twins_agree: Whether the shared number is the same recording on both platforms.
    """

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    fault_lasts: dict[str, int] = field(default_factory=dict)
    twins_agree: bool = False
    tokens: list[str] = field(default_factory=list)

    def calls(self, provider: str) -> list[Request]:
        """Every request to one provider."""
        return [one for one in self.requests if one.url.path.startswith(f"/{provider}/")]

    def paths(self, provider: str) -> list[str]:
        """The paths of these requests, below the provider's base."""
        return [one.url.path.removeprefix(f"/{provider}") for one in self.calls(provider)]


def recording(*, live: bool = False, rels: bool = True) -> dict[str, object]:
    relations = [
        ("https://open.spotify.com/track/" + SPOTIFY, False),
        ("https://music.apple.com/gb/song/" + APPLE, False),
        ("https://www.deezer.com/track/" + DEEZER, False),
        ("https://www.youtube.com/watch?v=" + YOUTUBE, False),
        ("https://www.deezer.com/track/1", True),
        ("https://example.org/", False),
    ]
    return {
        "id": LIVE_MBID if live else MBID,
        "title": TITLE + (" (Live)" if live else ""),
        "length": 247000 if live else 213000,
        "video": False,
        "disambiguation": "",
        "first-release-date": "2022-01-01" if live else "2021-05-14",
        "isrcs": [LIVE_ISRC if live else ISRC],
        "artist-credit": [
            {"name": ARTIST, "joinphrase": "", "artist": {"id": "a", "name": ARTIST}}
        ],
        "releases": [
            {"id": "r2", "title": "Hits", "status": "Official", "date": "2023-01-01"},
            {"id": "r0", "title": "Leak", "status": "Bootleg", "date": "2020-01-01"},
            {"id": "r1", "title": ALBUM, "status": "Official", "date": "2021-05-14"},
        ],
        "relations": [
            {"type": "free streaming", "target-type": "url", "direction": "forward",
             "ended": ended, "url": {"id": "u", "resource": resource}}
            for resource, ended in relations
        ] if rels else [],
        "genres": [{"id": "g", "name": "electronic", "count": 3, "disambiguation": ""}],
        "tags": [{"name": "electronic", "count": 3}],
    }  # fmt: skip


def musicbrainz(request: Request) -> Response:
    path, query = request.url.path.removeprefix("/musicbrainz"), request.query_params
    missing = JSONResponse({"error": "Not Found", "help": "For usage, see: …"}, 404)
    if "( " not in request.headers.get("user-agent", ""):
        return Response(status_code=403)
    if path == "/recording":
        known = f'"{TITLE}"' in query["query"] and ARTIST in query["query"]
        found = [recording(live=True), {**recording(), "score": "100"}] if known else []
        return JSONResponse({"count": len(found), "offset": 0, "recordings": found})
    if path == f"/recording/{MERGED_MBID}":
        moved = str(request.url).replace(MERGED_MBID, MBID)
        return Response(status_code=301, headers={"location": moved})
    if path.startswith("/recording/"):
        known = path.endswith(MBID)
        return JSONResponse(recording()) if known else missing
    if path == f"/isrc/{ISRC}":
        late = {**recording(live=True), "id": LIVE_MBID}
        return JSONResponse({"isrc": ISRC, "recordings": [late, recording()]})
    if path == "/url":
        asked = query.getlist("resource")
        known = [
            one for one in asked if one.endswith((SPOTIFY, DEEZER, YOUTUBE, f"gb/song/{APPLE}"))
        ]
        entities = [
            {"id": "u", "resource": one, "relations": [
                {"type": "free streaming", "target-type": "recording", "direction": "backward",
                 "recording": {"id": MBID, "title": TITLE, "length": 213000}}]}
            for one in known
        ]  # fmt: skip
        if len(asked) > 1:
            return JSONResponse({"url-count": len(known), "url-offset": 0, "urls": entities})
        return JSONResponse(entities[0]) if entities else missing
    return missing


def listenbrainz(request: Request) -> Response:
    query = request.query_params
    metadata = {
        "recording": {"name": TITLE, "length": 213000},
        "artist": {"name": ARTIST, "artist_credit_id": 1, "artists": []},
        "tag": {"recording": [{"tag": "electronic", "count": 3, "genre_mbid": "g"},
                              {"tag": "nice", "count": 9}], "artist": [], "release_group": []},
        "release": {"name": ALBUM, "mbid": "r1", "year": 2021},
    }  # fmt: skip
    if "/lookup/" in request.url.path:
        if request.headers.get("authorization") != f"Token {CLIENT[1]}":
            error = "You need to provide an Authorization header."
            return JSONResponse({"code": 401, "error": error}, 401)
        if "artist_name" not in query or "recording_name" not in query:
            return JSONResponse({"code": 400, "error": "missing"}, 400)
        if "lantern" not in query["recording_name"].lower():
            return JSONResponse({})
        return JSONResponse(
            {"artist_credit_name": ARTIST, "recording_mbid": MBID, "recording_name": TITLE,
             "release_name": ALBUM, "metadata": metadata}
        )  # fmt: skip
    asked = query["recording_mbids"]
    return JSONResponse({MBID: metadata} if asked == MBID else {})


def deezer_track(deezer_id: str, **changes: object) -> dict[str, object]:
    return {
        "id": int(deezer_id), "readable": True, "title": TITLE, "title_short": TITLE, "isrc": ISRC,
        "duration": 213, "release_date": "2021-05-14", "bpm": 0, "gain": -12.4,
        "preview": "https://cdnt-preview.dzcdn.net/p.mp3?hdnea=exp=1~hmac=secret",
        "artist": {"id": 27, "name": ARTIST, "type": "artist"},
        "album": {"id": 880000001, "title": ALBUM, "cover_xl": "https://e.org/1000.jpg"},
        "type": "track", **changes,
    }  # fmt: skip


def deezer(request: Request) -> Response:
    path = request.url.path.removeprefix("/deezer")
    if path == "/search":
        query = request.query_params["q"]
        if TITLE.lower() not in query.lower():
            return JSONResponse({"data": [], "total": 0})
        items = [deezer_track("990000002", title=f"{TITLE} (Live)"), deezer_track(DEEZER)]
        for item in items:
            for name in ("isrc", "release_date", "bpm", "gain"):
                del item[name]
        return JSONResponse({"data": items, "total": 2})
    if path in (f"/track/{DEEZER}", f"/track/isrc:{ISRC}"):
        return JSONResponse(deezer_track(DEEZER))
    if path == f"/track/{NUMBER}":
        return JSONResponse(
            deezer_track(NUMBER, isrc="GBDUW0000059", title="Harder", artist={"name": "Robots"})
        )
    return JSONResponse({"error": {"type": "DataException", "message": "no data", "code": 800}})


def itunes(request: Request) -> Response:
    song = {
        "wrapperType": "track", "kind": "song", "trackId": int(APPLE), "artistName": ARTIST,
        "collectionName": ALBUM, "trackName": TITLE, "releaseDate": "2021-05-14T07:00:00Z",
        "trackTimeMillis": 213000, "primaryGenreName": "Electronic", "country": "USA",
        "artworkUrl100": "https://e.org/100x100bb.jpg", "previewUrl": "https://audio-ssl/p.m4a",
    }  # fmt: skip
    twin = {**song, "trackId": int(NUMBER), "trackName": "Upside", "artistName": "Jack"}
    if request.app.state.stub.twins_agree:
        twin |= {"trackName": "Harder", "artistName": "Robots"}
    album = {"wrapperType": "collection", "collectionId": 1600000000, "collectionName": ALBUM}
    query = request.query_params
    if query.get("country") == "UK":
        return JSONResponse({"errorMessage": "Invalid value(s) for key(s): [country]"}, 400)
    found: list[object] = []
    if request.url.path.endswith("/lookup"):
        found = {APPLE: [song], NUMBER: [twin], "1600000000": [album]}.get(query["id"], [])
    elif "paper lanterns" in query["term"].lower():
        found = [album, song]
    return JSONResponse(
        {"resultCount": len(found), "results": found},
        media_type="text/javascript; charset=utf-8",
    )


def spotify(request: Request) -> Response:
    stub: Stub = request.app.state.stub
    path = request.url.path.removeprefix("/spotify")
    if path == "/api/token":
        wanted = base64.b64encode(":".join(CLIENT).encode()).decode()
        if request.headers.get("authorization") != f"Basic {wanted}":
            return JSONResponse({"error": "invalid_client", "error_description": "…"}, 400)
        stub.tokens.append(f"token-{len(stub.tokens)}")
        return JSONResponse(
            {"access_token": stub.tokens[-1], "token_type": "Bearer", "expires_in": 3600}
        )
    if not stub.tokens or request.headers.get("authorization") != f"Bearer {stub.tokens[-1]}":
        return JSONResponse({"error": {"status": 401, "message": "The access token expired"}}, 401)
    track = {
        "id": SPOTIFY, "name": TITLE, "artists": [{"name": ARTIST}], "duration_ms": 213400,
        "external_ids": {"isrc": ISRC}, "preview_url": None, "type": "track",
        "album": {"name": ALBUM, "release_date": "2021-05-14", "images": [
            {"height": 64, "width": 64, "url": "https://i.org/64"},
            {"height": 640, "width": 640, "url": "https://i.org/640"}]},
    }  # fmt: skip
    if path == f"/v1/tracks/{SPOTIFY}":
        return JSONResponse(track)
    if path == "/v1/search":
        query = request.query_params["q"]
        items = [track] if ISRC in query or TITLE in query else []
        return JSONResponse({"tracks": {"limit": 5, "total": len(items), "items": items}})
    if path.endswith("z" * 22):
        return JSONResponse({"error": {"status": 400, "message": "Invalid base62 id"}}, 400)
    return JSONResponse({"error": {"status": 404, "message": "Non existing id"}}, 404)


def youtube(request: Request) -> Response:
    address = request.query_params["url"]
    body = {"title": TITLE, "author_name": f"{ARTIST} - Topic", "type": "video", "version": "1.0"}
    if address.endswith(f"v={YOUTUBE}"):
        return JSONResponse(body)
    if address.endswith("v=StubVideo0E"):
        return JSONResponse(
            {**body, "title": f"{ARTIST} \u2013 {TITLE}", "author_name": "Uploader"}
        )
    if address.endswith("v=StubVideo0I"):
        return PlainTextResponse("Unauthorized", 401)
    return PlainTextResponse("Not Found", 404)


def jamendo(request: Request) -> Response:
    query = request.query_params
    if query.get("client_id") != CLIENT[0]:
        headers = {"status": "failed", "code": 5, "error_message": "Your credential …"}
        return JSONResponse({"headers": headers, "results": []})
    track = {
        "id": "168", "name": TITLE, "duration": 213, "artist_name": ARTIST,
        "license_ccurl": "http://creativecommons.org/licenses/by-sa/3.0/",
        "audio": "https://prod-1.storage.jamendo.com/?trackid=168",
        "audiodownload": "https://prod-1.storage.jamendo.com/download/track/168/mp32/",
        "audiodownload_allowed": True,
    }  # fmt: skip
    restricted = {
        **track, "id": "169", "name": "Restricted",
        "license_ccurl": "http://creativecommons.org/licenses/by-nc-sa/3.0/",
    }  # fmt: skip
    closed = {**track, "id": "170", "name": "Closed", "audiodownload": "",
              "audiodownload_allowed": False}  # fmt: skip
    found = [one for one in (track, restricted, closed) if one["name"] == query["namesearch"]]
    headers = {"status": "success", "code": 0, "results_count": len(found)}
    return JSONResponse({"headers": headers, "results": found})


HANDLERS: dict[str, Handler] = {
    "musicbrainz": musicbrainz,
    "listenbrainz": listenbrainz,
    "deezer": deezer,
    "itunes": itunes,
    "spotify": spotify,
    "youtube": youtube,
    "jamendo": jamendo,
}
RATE_LIMITED: dict[str, Response] = {
    "musicbrainz": JSONResponse({"error": "Your requests are exceeding the allowable rate"}, 503),
    "listenbrainz": JSONResponse({"code": 429, "error": "…"}, 429, {"Retry-After": "30"}),
    "deezer": JSONResponse({"error": {"type": "Exception", "message": "Quota", "code": 4}}),
    "itunes": Response(status_code=403),
    "spotify": JSONResponse({"error": {"status": 429}}, 429, {"Retry-After": "17"}),
    "youtube": PlainTextResponse("Too Many Requests", 429),
    "jamendo": JSONResponse({"headers": {"status": "failed", "code": 6}, "results": []}),
}
FAULTS: dict[str, Callable[[str], Response]] = {
    "rate_limited": lambda provider: RATE_LIMITED[provider],
    "down": lambda _: PlainTextResponse("oops", 500),
    "html": lambda _: Response("<html>Blocked</html>", media_type="text/html"),
    "cut_off": lambda _: Response('{"id": "5f0d', media_type="application/json"),
    "wrong_shape": lambda _: JSONResponse({"id": [], "results": 5, "tracks": 7, "title": {}}),
    "list": lambda _: JSONResponse([1, 2]),
    "redirect": lambda _: Response(status_code=302, headers={"location": "http://127.0.0.1:1/"}),
    "huge": lambda _: Response(b" " * (5 * 1024 * 1024), media_type="application/json"),
}


async def answer(request: Request) -> Response:
    stub: Stub = request.app.state.stub
    provider = request.url.path.split("/")[1]
    stub.requests.append(request)
    fault = stub.faults.get(provider)
    if fault is not None and stub.fault_lasts.get(provider, 1) <= 0:
        fault = None
    if provider in stub.fault_lasts:
        stub.fault_lasts[provider] -= 1
    if fault == "slow":
        await asyncio.sleep(3)
    elif fault is not None:
        return FAULTS[fault](provider)
    return HANDLERS[provider](request)


@contextmanager
def running_stub() -> Iterator[Stub]:
    """Serve on a free port of loopback until the block ends."""
    stub = Stub()
    app = Starlette(routes=[Route("/{rest:path}", answer, methods=["GET", "POST"])])
    app.state.stub = stub
    with serving(app) as stub.url:
        yield stub
