"""The songs of a media server with the Subsonic API: Navidrome, Gonic, Airsonic, Supysonic.

References:
    https://www.subsonic.org/pages/api.jsp and https://opensubsonic.netlify.app.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import httpx
from pydantic import AliasPath, Field, ValidationError

from serve_app.domain.track_ids import Platform
from serve_app.providers.web.http_client import without_nulls
from serve_app.providers.web.wire import Wire, known_id

API_VERSION = "1.13.0"
"""The first version that sends passwords as tokens."""

PAGE = 500
"""The most albums that a server returns at once."""

TIMEOUT_S = 30.0
TOKENS_REFUSED = {10, 41}
"""Errors of servers that cannot check a token: "parameter missing", "token not supported"."""


class SubsonicError(RuntimeError):
    """The server cannot be read; the text says what to do."""


class Song(Wire):
    """One song of a media server.

    Attributes:
        path: As the server reports it: relative to its folder, absolute, or made up from tags.
        duration_s: In whole seconds.
        mbid: MusicBrainz recording id; OpenSubsonic servers report it.
    """

    item_id: str = Field(alias="id")
    artist: str | None = None
    artist_id: str | None = Field(None, alias="artistId")
    title: str | None = None
    path: str | None = None
    duration_s: float | None = Field(None, alias="duration")
    mbid: str | None = Field(None, alias="musicBrainzId")


class _Album(Wire):
    album_id: str = Field(alias="id")


class _Problem(Wire):
    code: int = 0
    message: str = "it does not say why"


class _Answer(Wire):
    status: str
    problem: _Problem = Field(_Problem(), alias="error")
    albums: list[_Album] = Field([], validation_alias=AliasPath("albumList2", "album"))
    songs: list[Song] = Field([], validation_alias=AliasPath("album", "song"))


class Subsonic:
    """Reads a server, as one of its users."""

    def __init__(self, url: str, user: str, password: str, *, plain: bool = False) -> None:
        """Store how to reach the server.

        Args:
            url: The address for a browser, such as ``https://music.example``.
            user: A user who can see the folders to read.
            password: Sent as a token, the MD5 of it and a salt.
            plain: Send the password itself, for servers without support for tokens.
        """
        self._url = url.rstrip("/").removesuffix("/rest")
        self._login = plain_login(user, password) if plain else token_login(user, password)
        self._http = httpx.Client(timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def songs(self) -> Iterator[Song]:
        """Yield all songs, album by album.

        Raises:
            SubsonicError: The server is unavailable, refuses the login, or lacks the API.
        """
        offset = 0
        while True:
            page = {"type": "alphabeticalByName", "size": str(PAGE), "offset": str(offset)}
            albums = self._ask("getAlbumList2", page).albums
            for album in albums:
                for song in self._ask("getAlbum", {"id": album.album_id}).songs:
                    yield song.model_copy(update={"mbid": known_id(Platform.MBID, song.mbid)})
            offset += len(albums)
            if len(albums) < PAGE:
                return

    def _ask(self, method: str, params: Mapping[str, str]) -> _Answer:
        sent = {**self._login, "v": API_VERSION, "c": "afa", "f": "json", **params}
        try:
            # In the body, so that the login stays out of the logs of servers and proxies.
            reply = self._http.post(f"{self._url}/rest/{method}.view", data=sent)
            if reply.status_code == httpx.codes.TOO_MANY_REQUESTS or reply.is_server_error:
                raise SubsonicError(f"{self._url} answers {reply.status_code}; try again later")
            answer = _Answer.model_validate(
                reply.json(object_hook=without_nulls)["subsonic-response"]
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SubsonicError(f"{self._url} does not answer: {error}") from error
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise SubsonicError(
                f"{self._url} does not speak the Subsonic API (status {reply.status_code}); give "
                "the address that a browser opens"
            ) from error
        if answer.status != "ok":
            advice = ""
            if answer.problem.code in TOKENS_REFUSED and "t" in self._login:
                advice = "; if the server knows no tokens, add --plain-password"
            raise SubsonicError(
                f"{self._url} refuses: {answer.problem.message.rstrip('.')}{advice}"
            )
        return answer


def token_login(user: str, password: str, salt: str | None = None) -> dict[str, str]:
    """Return the parameters of a login by token."""
    salt = salt or secrets.token_hex(8)
    token = hashlib.md5(f"{password}{salt}".encode(), usedforsecurity=False).hexdigest()
    return {"u": user, "t": token, "s": salt}


def plain_login(user: str, password: str) -> dict[str, str]:
    """Return the parameters of a login by password, in the hexadecimal form that servers read."""
    return {"u": user, "p": f"enc:{password.encode().hex()}"}
