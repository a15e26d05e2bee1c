"""`afa link`: learn the ids that a media server has for the library's tracks."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

import typer

from configs.settings import Settings
from serve_app.cli.environment import console, fail, is_url, told
from serve_app.cli.library.opened import existing
from serve_app.cli.output.progress import shown_steps
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.track import OPERATOR
from serve_app.providers.catalog.build import Progress
from serve_app.providers.subsonic import Song, Subsonic, SubsonicError
from serve_app.services.media_servers import link as link_songs


def link(
    url: Annotated[str, typer.Argument(help="Address of the server, as you open it in a browser.")],
    user: Annotated[str, typer.Option(help="A user of the server.")],
    password: Annotated[
        str,
        typer.Option(
            envvar="AFA_LINK_PASSWORD", prompt=True, hide_input=True, help="The user's password."
        ),
    ],
    name: Annotated[str, typer.Option(help="Name for the server; its host by default.")] = "",
    plain_password: Annotated[
        bool, typer.Option("--plain-password", help="For servers that do not support login tokens.")
    ] = False,
) -> None:
    """Read the songs of a Navidrome or other Subsonic server, and note which tracks they are.

    Players can then ask afa for similar music with the media server's ids. Repeat this after
    `afa scan`, or when the server has given its songs new ids.
    """
    try:
        host = urlsplit(url).netloc.rpartition("@")[2] if is_url(url) else ""
    except ValueError:
        host = ""
    if not host:
        fail(f"{url} is not an address; write it as http://HOST:PORT")
    try:
        (user + password).encode()
    except UnicodeEncodeError:
        fail("the user or the password is not UTF-8")
    settings = Settings()
    library = existing(settings, LocalFiles(settings.data_dir.absolute()))
    if not library.count([OPERATOR]):
        fail("the library has no tracks yet; run `afa scan FOLDER` first")
    server = name or host
    with (
        told(SubsonicError, ServiceUnavailableError),
        Subsonic(url, user, password, plain=plain_password) as source,
        shown_steps() as show,
    ):
        ways = link_songs(library, server, counted(source.songs(), show))
    n_linked = ways["path"] + ways["mbid"] + ways["name"]
    console.print(
        f"{n_linked} of {ways.total()} songs of {server} are tracks of the library: "
        f"{ways['path']} by path, {ways['mbid']} by MusicBrainz id, {ways['name']} by name",
        highlight=False,
    )
    if ways["ambiguous"]:
        console.print(f"{ways['ambiguous']} may be more than one track", highlight=False)
    if ways["unknown"]:
        console.print(
            f"{ways['unknown']} are not in the library; `afa scan` their folder, then link again",
            highlight=False,
        )


def counted(songs: Iterator[Song], show: Progress) -> Iterator[Song]:
    """Yield songs, and show how many were read."""
    for n, song in enumerate(songs, 1):
        show("reading songs", n, None)
        yield song
