"""Ids that the keeper of a running service gets from stand-ins for the providers, on loopback."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from mutagen.flac import FLAC

from tests.data.audio_files import click_track, encode
from tests.providers.stub_server import ISRC, MBID, SPOTIFY, running_stub
from tests.system.conftest import AFA, running_service

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.slow]

WITHIN_S = 120


def test_a_scanned_track_gets_its_other_ids_in_the_background(tmp_path: Path) -> None:
    song = tmp_path / "music" / "song.flac"
    song.parent.mkdir()
    encode(song, click_track(120, 20), "flac", "flac", sample_format="s16")
    tags = FLAC(song)
    tags.update({"artist": "TSQ", "title": "My name for it", "isrc": ISRC})
    tags.save()
    data_dir = tmp_path / "data"
    with running_stub() as stub:
        providers = {
            "contact": "ops@example.org",
            "musicbrainz_base_url": f"{stub.url}/musicbrainz",
            "listenbrainz_base_url": f"{stub.url}/listenbrainz",
        }
        settings = {"AFA_PROVIDERS": json.dumps(providers)}
        with running_service(data_dir, settings) as service:
            scan = [*AFA, "scan", str(song.parent), "--data-dir", str(data_dir)]
            subprocess.run(scan, check=True, env=service.environment, timeout=200)
            with service.client() as client:
                deadline = time.monotonic() + WITHIN_S
                track = {"spotify_id": None}
                while track["spotify_id"] is None and time.monotonic() < deadline:
                    time.sleep(1)
                    (track,) = client.get("/v1/library").json()["items"]
                assert (track["spotify_id"], track["mbid"]) == (SPOTIFY, MBID)
                assert (track["artist"], track["title"]) == ("TSQ", "My name for it")
                assert client.get(f"/v1/audio-features/{SPOTIFY}").json()["tempo"] == pytest.approx(
                    120, abs=0.1
                )
