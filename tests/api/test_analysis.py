"""Bars, beats, sections and segments of tracks and jobs; and the search for tracks by words."""

from typing import Any

import pytest

from tests.api.application import Application

pytestmark = pytest.mark.redis

DEMO = "0AfaDemoTrack000000001"


def check_analysis(body: dict[str, Any]) -> None:
    assert body["beats"][:3] == [0.0, 0.5, 1.0]
    assert body["bars"][:2] == [{"start": 0.0, "duration": 2.0}, {"start": 2.0, "duration": 2.0}]
    last = body["bars"][-1]
    assert last["start"] + last["duration"] == pytest.approx(body["duration_ms"] / 1000, abs=0.01)
    (section,) = body["sections"]
    assert (section["key"], section["mode"], section["tempo"]) == ("A", "minor", 120.0)
    (segment,) = body["segments"]
    assert len(segment["pitches"]) == len(segment["timbre"]) == 12
    assert body["chords"] == [
        {"start": 0.0, "duration": 2.0, "chord": "A:min/5", "root": "A", "quality": "min",
         "bass": "E", "confidence": 0.8},
        {"start": 2.0, "duration": 2.0, "chord": "N", "root": None, "quality": None,
         "bass": None, "confidence": 0.9},
    ]  # fmt: skip
    assert body["tuning"] == -12.3
    assert (body["loudness_range"], body["true_peak"]) == (5.0, -1.0)
    assert "embedding" not in body


async def test_the_analysis_of_a_track_costs_what_its_features_cost(api: Application) -> None:
    client = api.client()
    body = (await client.get(f"/v1/analysis/{DEMO}")).json()
    check_analysis(body)
    assert (body["artist"], body["title"]) == ("The afa Demo Band", "Demo in A minor")
    assert (body["_meta"]["cache"], body["_meta"]["credits_used"]) == ("miss", 2)
    again = (await client.get(f"/v1/analysis/{DEMO}")).json()
    assert (again["_meta"]["cache"], again["_meta"]["credits_used"]) == ("hit", 0)


async def test_the_analysis_of_a_job_is_free(api: Application, demo_audio: bytes) -> None:
    client = api.client()
    answer = await client.post("/v1/audio-features/upload", content=demo_audio, params={"wait": 60})
    job = answer.json()["job_id"]
    for id in (job, f"afa:track:{job}"):
        body = (await client.get(f"/v1/analysis/{id}")).json()
        check_analysis(body)
        assert body["_meta"]["credits_used"] == 0
    assert await api.remaining("pro") == 60_000 - 10


async def test_spotify_s_features_of_a_job_are_spotify_s_alone(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    asked = {"wait": 60, "include_embedding": True}
    answer = await client.post("/v1/audio-features/upload", content=demo_audio, params=asked)
    assert answer.json()["result"]["embedding_model"]
    job = (await client.get(f"/spotify/v1/audio-features/{answer.json()['job_id']}")).json()
    assert job.keys() == (await client.get(f"/spotify/v1/audio-features/{DEMO}")).json().keys()


async def test_the_analysis_of_a_failed_job_says_so(api: Application) -> None:
    client = api.client()
    sent = {"content": b"no audio" * 50, "headers": {"Content-Type": "audio/mpeg"}}
    answer = await client.post("/v1/audio-features/upload", params={"wait": 60}, **sent)
    job = answer.json()["job_id"]
    missing = await client.get(f"/v1/analysis/{job}")
    assert (missing.status_code, missing.json()["error"]) == (404, "track_not_found")
    assert f"the job is failed; see GET /v1/jobs/{job}" in missing.json()["message"]


@pytest.mark.parametrize(
    ("q", "titles"),
    [
        ("Demo in A minor The afa Demo Band", ["Demo in A minor"]),
        ("demo minor", ["Demo in A minor"]),
        ("artist:Ada Loopback track:Handshake", ["Handshake"]),
        ("track:Handshake", ["Handshake"]),
        ("hanshake", ["Handshake"]),
        ("The Stub Quartet - Paper Lanterns", ["Paper Lanterns", "Paper Lanterns (Live)"]),
        ("isrc:QZAFA2600001", ["Demo in A minor"]),
        ("apres la pluie", ["Après la Pluie"]),
        ("nothing like this anywhere", []),
    ],
)
async def test_search_finds_what_people_type(api: Application, q: str, titles: list[str]) -> None:
    answer = await api.client().get("/spotify/v1/search", params={"q": q, "type": "track"})
    page = answer.json()["tracks"]
    assert [item["name"] for item in page["items"]] == titles
    assert page["total"] == len(titles)


async def test_an_artist_is_not_searched_for_in_titles(api: Application) -> None:
    client = api.client()
    found = (await client.get("/spotify/v1/search", params={"q": "artist:Ada Loopback"})).json()
    names = {artist["name"] for item in found["tracks"]["items"] for artist in item["artists"]}
    assert names == {"Ada Loopback"}
    none = (await client.get("/spotify/v1/search", params={"q": "artist:Handshake"})).json()
    assert none["tracks"]["items"] == []


async def test_pages_of_a_search_follow_each_other(api: Application) -> None:
    client = api.client()
    whole, first, second = [
        (await client.get("/spotify/v1/search", params={"q": "Ada Loopback", **page})).json()
        for page in ({}, {"limit": 2}, {"limit": 2, "offset": 2})
    ]
    names = [item["name"] for item in whole["tracks"]["items"]]
    assert len(names) >= 4
    assert [item["name"] for item in first["tracks"]["items"]] == names[:2]
    assert [item["name"] for item in second["tracks"]["items"]] == names[2:4]


async def test_the_reference_names_every_field_of_a_track(api: Application) -> None:
    track = (await api.client().get(f"/spotify/v1/tracks/{DEMO}")).json()
    described = (await api.client().get("/openapi.json")).json()["components"]["schemas"]
    assert track.keys() == described["SpotifyTrack"]["properties"].keys()


async def test_only_tracks_can_be_searched_for(api: Application) -> None:
    params = {"q": "Ada", "type": "artist"}
    answer = await api.client().get("/spotify/v1/search", params=params)
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, 400)
    assert "type: should be 'track', not 'artist'" in answer.json()["message"]
