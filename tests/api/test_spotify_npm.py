"""Released JavaScript Spotify clients, unmodified, against the mount."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.composition.options import StoreOptions
from tests.api.live import LiveApplication, serve_application
from tests.npm import npm_with

pytestmark = [pytest.mark.redis, pytest.mark.npm]

SCRIPT = Path(__file__).with_name("spotify_clients.mjs")
PACKAGES = ("spotify-web-api-node@5.0.2", "@spotify/web-api-ts-sdk@1.2.0")
DEMO = "0AfaDemoTrack000000001"
UNKNOWN = "7unknownTrack000000000"


@pytest.fixture(scope="module")
def live(api_stores: StoreOptions, demo_catalog: Path) -> Iterator[LiveApplication]:
    with serve_application(api_stores, demo_catalog) as live:
        yield live


@pytest.fixture(scope="module")
def answers(live: LiveApplication, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("npm")
    shutil.copy(SCRIPT, folder)
    npm_with(folder, "install", *PACKAGES)
    arguments = [live.url, live.key("pro"), DEMO, UNKNOWN]
    done = subprocess.run(
        [shutil.which("node") or "node", SCRIPT.name, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("client", ["sdk", "node"])
def test_a_javascript_client_reads_everything(answers: Any, client: str) -> None:
    read = answers[client]
    assert read["one"]["tempo"] == 120
    assert read["one"]["id"] == DEMO
    assert [slot and slot["id"] for slot in read["several"]] == [DEMO, None]
    assert read["analysis"]["track"]["key"] == 9
    assert len(read["analysis"]["beats"]) > 10
    assert read["track"]["external_ids"]["isrc"] == "QZAFA2600001"


def test_a_javascript_client_understands_a_404(answers: Any) -> None:
    assert answers["node"]["missing"]["status"] == 404
    assert "not in this server's library" in answers["node"]["missing"]["message"]
    assert "not in this server's library" in answers["sdk"]["missing"]
    assert answers["node"]["search"]["tracks"]["items"][0]["id"] == DEMO
