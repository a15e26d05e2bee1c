"""Stock beets, and the plugin for it, on real files, against the application behind HTTP.

The networks are real. beets and its plugins come from the package and are run as users run them.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import mutagen
import pytest

from serve_app.composition.options import StoreOptions
from serve_app.domain.tiers import LOCAL, LOCAL_OWNER
from tests.api.live import LiveApplication, serve_application
from tests.browser.real_backend import RealBackend
from tests.conftest import DEMO_TRACK, REPOSITORY
from tests.data.audio_files import click_track, encode

pytestmark = pytest.mark.redis

EXTRACTORS = REPOSITORY / "integrations" / "afa-extractors"
PLUGIN = REPOSITORY / "integrations" / "beets-afa"
MBIDS = {
    "Demo": "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f",
    "Clicks": "000a9db8-949f-4fa2-9f40-856127df0dbc",
}


@pytest.fixture(scope="module")
def live(
    api_stores: StoreOptions, demo_catalog: Path, model_dir: Path
) -> Iterator[LiveApplication]:
    backend = RealBackend(model_dir)
    with serve_application(api_stores, demo_catalog, backend=backend, lookup_wait_s=110) as live:
        live.call(live.application.issue(LOCAL_OWNER, LOCAL))
        yield live


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with tags and MusicBrainz ids."""
    folder = tmp_path_factory.mktemp("album")
    demo = folder / "01.mp3"
    demo.write_bytes(DEMO_TRACK.read_bytes()[:200_000])
    clicks = encode(folder / "02.flac", click_track(100, 12), "flac", "flac", sample_format="s16")
    for path, title in ((demo, "Demo"), (clicks, "Clicks")):
        tag(path, title, MBIDS[title])
    return folder


def tag(path: Path, title: str, mbid: str) -> None:
    """Write the tags that an album from MusicBrainz has."""
    from beets.library import Item

    item = Item(path=os.fsencode(path), title=title, artist="Ada", album="Two", mb_trackid=mbid)
    item.write()
    assert mutagen.File(path).tags


class Beets:
    """A separate beets: configuration, library and album."""

    def __init__(self, folder: Path, config: str, **environment: str) -> None:
        folder.mkdir()
        settings = "library: library.db\nimport: {copy: no, write: no}\n"
        (folder / "config.yaml").write_text(settings + config)
        path = os.pathsep.join([str(REPOSITORY / "clients" / "python"), str(REPOSITORY)])
        self._environment = os.environ | {
            "BEETSDIR": str(folder), "PYTHONPATH": path, **environment,
        }  # fmt: skip

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        line = [sys.executable, "-m", "beets", *map(str, arguments)]
        done = subprocess.run(
            line, env=self._environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        return done

    def rows(self, fields: str) -> list[str]:
        """Return these fields of every item, in the order of their paths."""
        return self("ls", "-f", fields, "path+").stdout.splitlines()


def heard_by_afa(live: LiveApplication, album: Path) -> None:
    """Give the server the album's audio, as an upload or a scan does, and have it analysed."""
    headers = {"Authorization": f"Bearer {live.application.keys[LOCAL_OWNER]}"}
    with httpx.Client(base_url=live.url, headers=headers, timeout=120) as client:
        for path, mbid in zip(sorted(album.iterdir()), MBIDS.values(), strict=True):
            params = {"track": f"mbid:{mbid}"}
            content = path.read_bytes()
            assert client.post("/v1/assets/upload", content=content, params=params).is_success
            assert client.get(f"/v1/audio-features/{mbid}").is_success


def test_the_acousticbrainz_plugin_fills_an_album(
    live: LiveApplication, album: Path, tmp_path: Path
) -> None:
    heard_by_afa(live, album)
    config = f"plugins: acousticbrainz\nacousticbrainz: {{base_url: {live.url}/acousticbrainz/}}\n"
    beet = Beets(tmp_path / "beets", config)
    beet("import", "-q", "-A", album)
    demo, clicks = beet.rows(
        "$title: $bpm $initial_key $danceable $mood_acoustic $mood_happy $voice_instrumental"
    )
    numbers = " ".join([r"0\.\d{6}"] * 3)
    assert re.fullmatch(rf"Demo: 124 Am {numbers} instrumental", demo), demo
    assert re.fullmatch(rf"Clicks: 100 \w+ {numbers} \w+", clicks), clicks


def test_the_plugin_goes_by_path_alone(live: LiveApplication, tmp_path: Path) -> None:
    music = tmp_path / "music"
    music.mkdir()
    (music / "a broken.mp3").write_bytes(DEMO_TRACK.read_bytes()[:400])
    encode(music / "untagged.flac", click_track(100, 12), "flac", "flac", sample_format="s16")
    config = f"pluginpath: {PLUGIN / 'beetsplug'}\nplugins: afa\nafa: {{url: '{live.url}'}}\n"
    beet = Beets(tmp_path / "beets", config, AFA_API_KEY=live.key("pro"))
    said = beet("import", "-q", "-A", "-s", music).stderr
    assert "broken.mp3: The audio file is damaged" in said
    again = beet("afa").stderr
    assert ("broken.mp3" in again, "untagged.flac" in again) == (True, False)
    row = beet.rows("$bpm|$initial_key|$afa_tempo|$afa_loudness|$afa_danceability")[1]
    assert re.fullmatch(r"100\|\w+\|100\.\d+\|-\d+\.\d\|\d+", row), row


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of `integrations/afa-extractors`, as an installer writes them."""
    folder = tmp_path_factory.mktemp("bin")
    for name, entry in entry_points().items():
        module, _, function = entry.partition(":")
        script = folder / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    return folder


def entry_points() -> dict[str, str]:
    described = tomllib.loads((EXTRACTORS / "pyproject.toml").read_text())
    return dict(described["project"]["scripts"])


def test_the_extra_names_the_commands_of_this_version() -> None:
    ours = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    commands = tomllib.loads((EXTRACTORS / "pyproject.toml").read_text())["project"]
    assert ours["optional-dependencies"]["extractors"] == [
        f"{commands['name']}=={commands['version']}"
    ]
    assert commands["dependencies"] == [f"{ours['name']}=={ours['version']}"]


def test_keyfinder_and_absubmit_run_our_commands(
    live: LiveApplication, album: Path, commands: Path, tmp_path: Path
) -> None:
    live.call(live.application.issue("submitter", "free"))
    key = live.key("submitter")
    base_url = live.url.replace("//", f"//x:{key}@") + "/acousticbrainz/"
    config = (
        "plugins: keyfinder absubmit\n"
        f"keyfinder: {{bin: {commands / 'keyfinder-cli'}}}\n"
        f"absubmit: {{extractor: {commands / 'streaming_extractor_music'},"
        f" base_url: '{base_url}'}}\n"
    )
    beet = Beets(tmp_path / "beets", config)
    beet("import", "-q", "-A", "-s", album / "02.flac")
    assert beet.rows("$title $initial_key") == ["Clicks Am"]
    beet("absubmit")
    with httpx.Client(base_url=live.url, auth=("x", key)) as client:
        kept = client.get(f"/acousticbrainz/{MBIDS['Clicks']}/low-level").json()
    assert kept["metadata"]["tags"]["title"] == ["Clicks"]
    assert kept["metadata"]["version"] == {"extractor": "acousticbrainz"}
    assert kept["rhythm"]["bpm"] == pytest.approx(100, abs=0.5)
    assert kept["tonal"] == {"key_key": "A", "key_scale": "minor"}
