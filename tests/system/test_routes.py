"""The other routes of the real service: look-ups, tempo, identification and the Spotify mount."""

import json
import time
from typing import Any

import pytest

from tests.system.conftest import Service
from tests.system.test_service import DEMO, finish

pytestmark = [pytest.mark.ray, pytest.mark.redis]

DEMO_ISRC = "QZAFA2600001"


def test_a_look_up_computes_once_and_then_hits(service: Service) -> None:
    with service.client("basic") as client:
        first = client.get(f"/v1/audio-features/isrc:{DEMO_ISRC}").json()
        again = client.get(f"/v1/audio-features/{DEMO_ISRC}").json()
        by_name = client.get(
            "/v1/audio-features",
            params={"song": "demo in a minor", "artist": "The Afa Demo Band", "format": "spotify"},
        ).json()
    assert first["tempo"] == pytest.approx(124, rel=0.01)
    # Another test may have looked it up before.
    assert first["_meta"]["credits_used"] == {"miss": 2, "hit": 0}[first["_meta"]["cache"]]
    assert (again["_meta"]["cache"], again["_meta"]["credits_used"]) == ("hit", 0)
    assert (by_name["key"], by_name["mode"]) == (9, 0)


def test_the_free_tier_gets_tempo_key_and_what_is_cached(service: Service) -> None:
    with service.client("basic") as client:
        assert client.get(f"/v1/audio-features/{DEMO_ISRC}").status_code == 200
    with service.client("free") as client:
        key_bpm = client.get("/v1/key-bpm", params={"song": "Demo in A minor", "artist": "x"})
        assert key_bpm.status_code == 404
        cached = client.get(f"/v1/audio-features/{DEMO_ISRC}")
        assert cached.status_code == 200, cached.text
        bpm = client.post(
            "/v1/bpm", content=DEMO.read_bytes(), headers={"Content-Type": "audio/mpeg"}
        ).json()
    assert bpm["tempo"] == pytest.approx(124, rel=0.01)
    assert bpm["_meta"]["credits_used"] == 2


def test_the_verified_beat_grid(service: Service) -> None:
    with service.client() as client:
        grid = client.get(f"/v1/beatgrid/{DEMO_ISRC}").json()
    assert grid["tempo"] == 124
    assert grid["beats"][:2] == pytest.approx([0.25, 0.25 + 60 / 124], abs=0.001)
    assert set(grid["downbeats"]) <= set(grid["beats"])


def test_the_bundled_track_is_identified(service: Service) -> None:
    with service.client() as client:
        files = {"file": ("demo.mp3", DEMO.read_bytes(), "audio/mpeg")}
        body = client.post("/v1/identify", files=files).json()
    assert (body["matched"], body["isrc"], body["source_service"]) == (True, DEMO_ISRC, "local")
    assert 0 < body["_meta"]["latency_ms"] < 60_000


def test_an_embedding_comes_alone_and_may_be_another_model_s(service: Service) -> None:
    """The worker asks the embedding deployment, which uses its shelf of named models."""
    with service.client() as client:
        known = {model["id"]: model for model in client.get("/v1/models").json()["items"]}
        assert known["afa-embed-1"]["in_use"]
        files = [("file", ("demo.mp3", DEMO.read_bytes())), ("file", ("no.mp3", b"no audio"))]
        vectors = {}
        for model_id in ("afa-embed-1", "efficientat-mn04"):
            params = {"embedding_model": model_id}
            answer = client.post("/v1/embed", files=files, params=params)
            one, other = map(json.loads, answer.text.splitlines())
            assert (one["embedding_model"], other["error"]["error"]) == (
                model_id,
                "unprocessable_audio",
            )
            assert answer.headers["X-Credits-Used"] == "5"
            vectors[model_id] = one["embedding"]
        assert not any(vectors["efficientat-mn04"][384:])  # padded
        assert sum(a * b for a, b in zip(*vectors.values(), strict=True)) < 0.9
        text = client.get("/v1/similar", params={"text": "slow piano"})
        assert (text.status_code, text.json()["error"]) == (400, "bad_request")
        job = client.post(
            "/v1/audio-features/upload",
            content=DEMO.read_bytes(),
            params={"embedding_model": "efficientat-mn04"},
        )
        result = finish(client, job.json()["job_id"])["result"]
    assert result["embedding_model"] == "efficientat-mn04"
    assert result["embedding"] == pytest.approx(vectors["efficientat-mn04"], abs=1e-3)


def test_an_asset_is_analysed_without_another_upload(service: Service) -> None:
    with service.client() as client:
        asset = client.post(
            "/v1/assets/upload",
            content=DEMO.read_bytes(),
            headers={"Content-Type": "audio/mpeg"},
        ).json()
        job = client.post("/v1/audio-features/upload", json={"asset_id": asset["asset_id"]})
        assert job.status_code == 202, job.text
        envelope: Any = finish(client, job.json()["job_id"])
    assert envelope["status"] == "complete"


def test_spotifys_analysis_of_the_track(service: Service) -> None:
    with service.client() as client:
        analysis = client.get(f"/spotify/v1/audio-analysis/{DEMO_ISRC}").json()
    assert analysis["track"]["key"] == 9
    assert len(analysis["segments"]) > 20
    assert len(analysis["segments"][0]["pitches"]) == 12


def test_a_track_of_the_library_is_a_hit_by_all_its_names(service: Service) -> None:
    """A worker's result is on disk before its job ends, and the API's replica picks it up."""
    with service.client() as client:
        asset = client.post(
            "/v1/assets/upload",
            content=DEMO.read_bytes(),
            headers={"Content-Type": "audio/mpeg"},
        ).json()
        added = client.post(
            "/v1/library",
            json={"asset_id": asset["asset_id"], "ids": ["QZAAA2600042"], "title": "Own"},
        ).json()
        assert finish(client, added["job_id"])["status"] == "complete"
        deadline = time.monotonic() + 240
        while client.get(f"/v1/library/{added['track']['id']}").json()["track"]["tempo"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for name in ("QZAAA2600042", added["track"]["id"]):
            found = client.get(f"/v1/audio-features/{name}").json()
            assert found["_meta"]["cache"] == "hit"
            assert found["tempo"] == pytest.approx(124, rel=0.01)
        analysis = client.get("/spotify/v1/audio-analysis/QZAAA2600042").json()
    assert len(analysis["segments"]) > 20
