"""Reading a Subsonic server as its documentation describes it; a real one in tests/cli/library."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serve_app.providers.subsonic import PAGE, Subsonic, SubsonicError, token_login
from tests.providers.serving import serving

USER, PASSWORD = "joe", "sesame"
N_ALBUMS = PAGE + 3
MBID = "5B11F4CE-A62D-471E-81FC-A69A8278C7DA"


async def answer(request: Request) -> Response:
    """Answer as the documentation says: albums in pages, songs by album, errors inside a 200."""
    form = await request.form()
    asked = {name: str(value) for name, value in form.items()}
    if request.url.query:
        return fail(0, "the login is in the address")
    if "t" not in asked:
        return fail(41, "Token authentication not supported for LDAP users.")
    if asked["t"] != token_login(USER, PASSWORD, asked["s"])["t"]:
        return fail(40, "Wrong username or password.")
    if request.path_params["method"] == "getAlbumList2.view":
        offset, size = int(asked["offset"]), int(asked["size"])
        albums = [{"id": str(n), "name": f"Album {n}"} for n in range(N_ALBUMS)]
        return ok({"albumList2": {"album": albums[offset : offset + size]}})
    n = int(asked["id"])
    songs = [] if n == 1 else [{"id": n, "title": f"Song {n}", "artist": None, "duration": 200}]
    if n == 0:
        known = {"artist": "The Cure", "path": "a/b.flac", "musicBrainzId": MBID, "bpm": 0}
        songs = [songs[0] | known | {"genres": [{"name": "x"}]}]
    return ok({"album": {"id": str(n), "song": songs} if songs else {"id": str(n)}})


def ok(body: dict[str, Any]) -> Response:
    return JSONResponse({"subsonic-response": {"status": "ok", "version": "1.16.1", **body}})


def fail(code: int, message: str) -> Response:
    error = {"code": code, "message": message}
    return JSONResponse({"subsonic-response": {"status": "failed", "error": error}})


async def page(request: Request) -> Response:
    return PlainTextResponse("<html>", 200)


async def busy(request: Request) -> Response:
    return PlainTextResponse("too many requests", 429)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    routes = [
        Route("/rest/{method}", answer, methods=["POST"]),
        Route("/page/rest/{method}", page, methods=["POST"]),
        Route("/busy/rest/{method}", busy, methods=["POST"]),
    ]
    with serving(Starlette(routes=routes)) as address:
        yield address


@pytest.mark.parametrize("end", ["/", "/rest", "/rest/"])
def test_all_songs_of_all_pages_are_read(url: str, end: str) -> None:
    with Subsonic(url + end, USER, PASSWORD) as server:
        songs = list(server.songs())
    assert [song.item_id for song in songs] == ["0", *(str(n) for n in range(2, N_ALBUMS))]
    first = songs[0]
    assert (first.artist, first.title, first.path) == ("The Cure", "Song 0", "a/b.flac")
    assert (first.duration_s, first.mbid) == (200.0, MBID.lower())
    assert (songs[1].artist, songs[1].path, songs[1].mbid) == (None, None, None)


def test_a_token_is_that_of_the_documentation() -> None:
    login = token_login("joe", "sesame", "c19b2d")
    assert login == {"u": "joe", "t": "26719a1196d2a940705a59634eb18eab", "s": "c19b2d"}
    assert token_login("joe", "sesame") != token_login("joe", "sesame")


@pytest.mark.parametrize(
    ("path", "password", "options", "text"),
    [
        ("", "wrong", {}, "refuses: Wrong username or password$"),
        ("", PASSWORD, {"plain": True}, "refuses: Token .* LDAP users$"),
        ("/page", PASSWORD, {}, "does not speak the Subsonic API"),
        ("/none", PASSWORD, {}, "does not speak the Subsonic API .status 404."),
        ("/busy", PASSWORD, {}, "answers 429; try again later"),
    ],
)
def test_what_is_wrong_is_told(
    url: str, path: str, password: str, options: dict[str, bool], text: str
) -> None:
    with (
        Subsonic(url + path, USER, password, **options) as server,
        pytest.raises(SubsonicError, match=text) as caught,
    ):
        list(server.songs())
    assert password not in str(caught.value)


def test_a_server_that_is_away_is_told() -> None:
    with (
        Subsonic("http://127.0.0.1:9", USER, PASSWORD) as server,
        pytest.raises(SubsonicError, match="does not answer"),
    ):
        list(server.songs())
