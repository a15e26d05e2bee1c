"""`afa link` with a real media server, Supysonic, in separate processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import mutagen
import pytest
from typer.testing import CliRunner

from serve_app.cli.main import app
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR, Place, TrackFile
from tests.data.audio_files import click_track, encode
from tests.library.library_setting import adding, refuse_writes, track

USER, PASSWORD = "joe", "correct horse"
LOGIN = {"u": USER, "p": PASSWORD, "v": "1.12.0", "c": "test", "f": "json"}
CLI = """
import sys
from contextlib import suppress
from supysonic.cli import main
for command in sys.argv[1].splitlines():
    sys.argv[1:] = command.split("|")
    with suppress(SystemExit):
        main()
"""
SERVE = """
from supysonic.web import create_application
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, create_application(), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""

runner = CliRunner()


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("music")
    for bpm, album in ((90, "Slow"), (120, "Fast"), (150, "Fast")):
        (folder / album).mkdir(exist_ok=True)
        path = encode(folder / album / f"{bpm}.ogg", click_track(bpm, 3), "ogg", "vorbis")
        file = mutagen.File(path)
        file.update({"title": f"At {bpm}", "artist": "The Clicks", "album": album})
        file.save()
    return folder


@pytest.fixture(scope="module")
def server(music: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a Supysonic that has scanned the music."""
    home = tmp_path_factory.mktemp("supysonic")
    (home / "supysonic.conf").write_text(
        f"[base]\ndatabase_uri = sqlite:///{home}/music.db\n"
        f"[webapp]\ncache_dir = {home}\n[daemon]\nsocket = {home}/daemon.sock\n"
    )
    commands = f"user|add|{USER}|-p|{PASSWORD}\nfolder|add|Music|{music}\nfolder|scan|--foreground"
    prepare = [sys.executable, "-c", CLI, commands]
    subprocess.run(prepare, cwd=home, check=True, capture_output=True)
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """The library that the command opens."""
    data = tmp_path / "data"
    monkeypatch.setenv("AFA_DATA_DIR", str(data))
    monkeypatch.setenv("AFA_LINK_PASSWORD", PASSWORD)
    library = Library((data / "library").as_uri(), data / "library-view")
    yield library
    library.close()


def linked(url: str, *options: str) -> Any:
    return runner.invoke(app, ["link", url, "--user", USER, *options], env=dict(os.environ))


def test_tracks_learn_what_the_server_calls_them(
    library: Library, server: str, music: Path
) -> None:
    by_path = replace(
        track("Another Name"),
        files=(TrackFile(Place.PATH, str(music / "Fast" / "120.ogg")),),
    )
    by_name = track("At 90", artist="The Clicks", album="Slow")
    library.write([adding(by_path), adding(by_name)])
    told = linked(server, "--plain-password", "--name", "home")
    assert told.exit_code == 0, told.output
    assert (
        "2 of 3 songs of home are tracks of the library: 1 by path, 0 by MusicBrainz id, 1 by name"
    ) in told.stdout
    assert "1 are not in the library; `afa scan` their folder" in told.stdout
    library.follow()
    called = {one.track_id: item.item_id for one in library.all([OPERATOR]) for item in one.items}
    for one, title in ((by_path, "At 120"), (by_name, "At 90")):
        params = {**LOGIN, "id": called[one.track_id]}
        song = httpx.get(f"{server}/rest/getSong.view", params=params, timeout=60).json()
        assert song["subsonic-response"]["song"]["title"] == title
    assert library.servers() == ["home"]
    with_login = server.replace("://", f"://{USER}:{quote(PASSWORD)}@")
    again = linked(with_login, "--plain-password")
    library.follow()
    assert library.servers() == sorted(["home", urlsplit(server).netloc])
    assert quote(PASSWORD) not in again.output


def test_what_is_wrong_is_told(library: Library, server: str) -> None:
    empty = linked(server)
    assert (empty.exit_code, "run `afa scan FOLDER` first" in empty.stderr) == (1, True)
    library.write([adding(track())])
    without_token = linked(server)
    assert without_token.exit_code == 1
    assert "if the server knows no tokens, add --plain-password" in without_token.stderr
    for address in ("music.example", "http://[music", "http://"):
        assert f"{address} is not an address" in linked(address).stderr
    odd = linked(server, "--password", "of another coding: \udce9")
    assert "afa: the user or the password is not UTF-8" in odd.stderr
    # Not printable, but a request can carry it.
    spaced = linked(server, "--plain-password", "--password", "a\N{NO-BREAK SPACE}b")
    assert "refuses: Wrong username or password" in spaced.stderr
    assert PASSWORD not in without_token.output + empty.output


def test_a_library_that_cannot_be_written_is_told(
    library: Library, server: str, tmp_path: Path
) -> None:
    library.write([adding(track("At 90", artist="The Clicks"))])
    refuse_writes(tmp_path / "data" / "library" / "tracks.lance")
    refused = linked(server, "--plain-password")
    assert refused.exit_code == 1
    assert "afa: the store of the library cannot be reached" in refused.stderr


def test_without_a_library_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AFA_LINK_PASSWORD", PASSWORD)
    assert "there is no library" in linked("http://127.0.0.1:9").stderr
    assert list(tmp_path.iterdir()) == []
