"""Similar tracks and paths over HTTP: who sees what, what is compared, what it costs."""

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from serve_app.library.edit import Heard
from serve_app.library.track import LibraryTrack, Place, TrackFile
from tests.api.application import Application
from tests.library.library_setting import MODEL_SET, adding, heard, track

pytestmark = pytest.mark.redis

MODEL = "fake-embedding"
ISRC = "QZTST2100001"
MP3 = {"Content-Type": "audio/mpeg"}
RANDOM = np.random.default_rng(7)
BASE = RANDOM.standard_normal(768)


def sounding(away: float, *, model: str = MODEL, **changes: object) -> Heard:
    """An analysis whose vector is ``away`` from `BASE`, in a random direction."""
    what = heard("one", model=model).features
    vector = BASE + away * RANDOM.standard_normal(768)
    unit = (vector / np.linalg.norm(vector)).tolist()
    changed = replace(what, embedding=unit, tempo=120.0, key=9, mode=0, camelot="8A", mood_tags=[])
    return Heard(replace(changed, **changes), MODEL_SET)  # type: ignore[arg-type]


def put(api: Application, title: str, what: Heard, **fields: Any) -> LibraryTrack:
    """Put a track into the library."""
    tags = fields.pop("tags", ())
    files = fields.pop("files", ())
    one = replace(track(title, **fields), tags=tags, files=files)
    api.library.write([adding(one, what)])
    return one


async def titles(client: httpx.AsyncClient, path: str, **params: Any) -> list[str]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [item["track"]["title"] for item in answer.json()["items"]]


async def refused(client: httpx.AsyncClient, body: dict[str, Any]) -> str:
    answer = await client.post("/v1/similar", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), answer.text
    return str(answer.json()["message"])


async def test_the_nearest_come_first_and_say_why(api: Application) -> None:
    put(api, "Seed", sounding(0.1), isrc=ISRC, tags=("Night", "calm"))
    put(api, "Far", sounding(1.0, tempo=60.0, key=2, mode=1, camelot="10B"))
    put(api, "Near", sounding(0.3, key=4, camelot="9A"), tags=("night",), year=1981)
    client = api.client("free")
    answer = await client.get(f"/v1/similar/{ISRC}")
    body = answer.json()
    assert body["model"] == MODEL
    near, far = body["items"]
    assert [near["track"]["title"], far["track"]["title"]] == ["Near", "Far"]
    assert 0 < near["distance"] < far["distance"] < 2
    assert (near["shared_tags"], near["key_relation"], near["tempo_ratio"]) == (
        ["night"],
        "fifth up",
        1.0,
    )
    assert (far["shared_tags"], far["key_relation"], far["tempo_ratio"]) == ([], "distant", 0.5)
    assert (near["track"]["tempo"], near["track"]["camelot"]) == (120.0, "9A")
    assert body["_meta"]["credits_used"] == 1
    assert answer.headers["X-Credits-Used"] == "1"
    assert await api.remaining("free") == 499


async def test_filters_choose_among_all_tracks(api: Application) -> None:
    put(api, "Seed", sounding(0.1), isrc=ISRC)
    put(api, "Slow", sounding(0.2, tempo=62.0), year=1981)
    put(api, "Same", sounding(0.3, tempo=121.0), year=1995, tags=("night",))
    put(api, "Fast", sounding(0.4, tempo=170.0, key=3, camelot="2A"))
    client = api.client()
    path = f"/v1/similar/{ISRC}"
    assert await titles(client, path) == ["Slow", "Same", "Fast"]
    assert await titles(client, path, n=1) == ["Slow"]
    assert await titles(client, path, tempo_min=115, tempo_max=125) == ["Same"]
    octaves = await titles(client, path, tempo_min=115, tempo_max=125, tempo_octaves=True)
    assert octaves == ["Slow", "Same"]
    assert await titles(client, path, year_min=1990) == ["Same"]
    assert await titles(client, path, tag="Night") == ["Same"]
    assert await titles(client, path, key=["2A", "1A"]) == ["Fast"]
    assert await titles(client, path, compatible=True) == ["Slow", "Same"]
    assert await titles(client, path, compatible=True, key="2A") == ["Slow", "Same"]


async def test_a_recording_is_answered_once(api: Application) -> None:
    seed = sounding(0.1)
    put(api, "Seed", seed, isrc=ISRC)
    put(api, "Seed", sounding(0.2))
    put(api, "Track 07", seed)
    put(api, "Other", sounding(0.3), mbid="4f0a8b3c-1d2e-4f5a-8b6c-7d8e9f0a1b2c")
    put(api, "Others", sounding(0.4), mbid="4f0a8b3c-1d2e-4f5a-8b6c-7d8e9f0a1b2c")
    assert await titles(api.client(), f"/v1/similar/{ISRC}") == ["Other"]


async def test_nobody_sees_another_account_s_tracks(api: Application) -> None:
    put(api, "Seed", sounding(0.1), isrc=ISRC)
    mine = put(api, "Mine", sounding(0.2), owner="owner-pro")
    assert await titles(api.client("pro"), f"/v1/similar/{ISRC}") == ["Mine"]
    other = api.client("scale")
    assert await titles(other, f"/v1/similar/{ISRC}") == []
    for answer in (
        await other.get(f"/v1/similar/{mine.track_id}"),
        await other.post("/v1/similar", json={"seeds": [{"id": mine.track_id}]}),
        await other.get("/v1/path", params={"from": ISRC, "to": mine.track_id}),
    ):
        assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found")
    assert await api.remaining("scale") == 400_000 - 1


async def test_several_seeds_weigh_and_lead_away(api: Application) -> None:
    one, two = RANDOM.standard_normal((2, 768))

    def at(part: float) -> Heard:
        vector = (1 - part) * one + part * two
        return sounding(0.0, embedding=(vector / np.linalg.norm(vector)).tolist())

    ids = [put(api, f"Seed {n}", at(n)).track_id for n in (0, 1)]
    for part in (0.1, 0.5, 0.9):
        put(api, f"At {part}", at(part))
    client = api.client()

    async def first(body: dict[str, Any]) -> str:
        answer = await client.post("/v1/similar", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["items"][0]["track"]["title"])

    seeds = [{"id": one} for one in ids]
    assert await first({"seeds": seeds}) == "At 0.5"
    assert await first({"seeds": [seeds[0] | {"weight": 9}, seeds[1]]}) == "At 0.1"
    assert await first({"seeds": [seeds[1]], "unlike": [seeds[0]]}) == "At 0.9"
    assert await first({"embedding": two.tolist(), "model": MODEL, "n": 2}) == "Seed 1"
    cancelled = {"embedding": (one / 2).tolist(), "model": MODEL, "unlike": [seeds[0]]}
    assert (await client.post("/v1/similar", json=cancelled)).status_code == 200


async def test_vectors_of_two_models_never_meet(api: Application) -> None:
    old = put(api, "Old", sounding(0.1, model="old-model"))
    new = put(api, "New", sounding(0.1))
    put(api, "Another old", sounding(0.2, model="old-model"))
    client = api.client()
    assert await titles(client, f"/v1/similar/{old.track_id}") == ["Another old"]
    assert await titles(client, f"/v1/similar/{new.track_id}") == []
    both = {"seeds": [{"id": old.track_id}, {"id": new.track_id}]}
    assert "two models" in await refused(client, both)
    for name in ("model", "embedding_model"):
        asked = {"seeds": [{"id": new.track_id}], name: "old-model"}
        assert "two models" in await refused(client, asked)
        answer = await client.get(f"/v1/similar/{new.track_id}", params={name: "old-model"})
        assert answer.status_code == 400
    unknown = await refused(client, {"embedding": BASE.tolist(), "model": "nobody-s"})
    assert f"there are vectors of: {MODEL}, old-model" in unknown
    assert "model" in await refused(client, {"embedding": BASE.tolist()})
    assert await api.remaining("pro") == 60_000 - 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"seeds": []},
        {"seeds": [{}]},
        {"seeds": [{"id": ISRC, "asset_id": "afa_1"}]},
        {"seeds": [{"id": ISRC, "job_id": "job_1"}]},
        {"seeds": [{"id": ISRC, "weight": 0}]},
        {"seeds": [{"id": ISRC}] * 21},
        {"seeds": [{"id": ISRC}], "n": 101},
        {"embedding": [1.0] * 767, "model": MODEL},
        {"embedding": [0.0] * 768, "model": MODEL},
        {"embedding": [1e308] * 768, "model": MODEL},
        {"embedding": [1.0] * 768, "seeds": [{"id": ISRC}], "model": MODEL},
        {"embedding": [1.0] * 768, "model": MODEL, "compatible": True},
    ],
)
async def test_what_cannot_be_searched_is_refused(api: Application, body: dict[str, Any]) -> None:
    put(api, "Seed", sounding(0.1), isrc=ISRC)
    assert await refused(api.client(), body)
    assert await api.remaining("pro") == 60_000


async def test_an_asset_of_the_library_is_a_seed(api: Application, demo_audio: bytes) -> None:
    client = api.client()
    uploaded = await client.post("/v1/assets/upload", content=demo_audio, headers=MP3)
    asset = uploaded.json()
    body = {"seeds": [{"asset_id": asset["asset_id"]}]}
    answer = await client.post("/v1/similar", json=body)
    assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found")
    assert "POST /v1/library" in answer.json()["message"]
    file = TrackFile(Place.ASSET, asset["asset_id"], content_sha256=asset["sha256"])
    put(api, "Mine", sounding(0.1), owner="owner-pro", files=(file,))
    put(api, "Near", sounding(0.2))
    answer = await client.post("/v1/similar", json=body)
    assert [item["track"]["title"] for item in answer.json()["items"]] == ["Near"]
    other = await api.client("scale").post("/v1/similar", json=body)
    assert (other.status_code, other.json()["error"]) == (404, "asset_not_found")


async def test_an_own_analysis_is_a_seed_and_says_why(api: Application, demo_audio: bytes) -> None:
    unit = [1.0] + [0.0] * 767
    near = sounding(0.0, model="fake", embedding=unit, tempo=126.0, key=4, camelot="9A")
    far = sounding(0.0, model="fake", embedding=unit[::-1], key=3, camelot="2A")
    put(api, "Near", near, tags=("Calm",))
    put(api, "Far", far)
    client = api.client("pro")
    jobs = []
    for wanted in (True, False):
        query = {"include_embedding": wanted, "wait": 60}
        answer = await client.post(
            "/v1/audio-features/upload", content=demo_audio, headers=MP3, params=query
        )
        jobs.append(answer.json()["job_id"])
    body = {"seeds": [{"job_id": jobs[0]}]}
    first, last = (await client.post("/v1/similar", json=body)).json()["items"]
    assert (first["track"]["title"], last["track"]["title"]) == ("Near", "Far")
    assert (first["shared_tags"], first["key_relation"]) == (["Calm"], "fifth up")
    assert first["tempo_ratio"] == 1.05
    mixing = await client.post("/v1/similar", json=body | {"compatible": True})
    assert [one["track"]["title"] for one in mixing.json()["items"]] == ["Near"]
    assert "include_embedding" in await refused(client, {"seeds": [{"job_id": jobs[1]}]})
    other = await api.client("scale").post("/v1/similar", json=body)
    assert (other.status_code, other.json()["error"]) == (404, "job_not_found")


async def test_a_track_without_an_analysis_says_what_to_do(api: Application) -> None:
    one = track("Unheard", isrc=ISRC)
    api.library.write([adding(one)])
    answer = await api.client().get(f"/v1/similar/{ISRC}")
    assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found")
    assert "POST /v1/library" in answer.json()["message"]


async def test_of_a_silent_track_it_is_said_that_it_may_be_silent(api: Application) -> None:
    put(api, "Silence", sounding(0.0, embedding=[0.0] * 768), isrc=ISRC)
    answer = await api.client().get(f"/v1/similar/{ISRC}")
    assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found")
    assert "no embedding of" in answer.json()["message"]
    assert "it is silent" in answer.json()["message"]


async def test_a_way_leads_from_track_to_track(api: Application) -> None:
    one, two = RANDOM.standard_normal((2, 768))
    ids = []
    for n in range(6):
        vector = (5 - n) * one + n * two
        unit = (vector / np.linalg.norm(vector)).tolist()
        ids.append(put(api, f"Step {n}", sounding(0.0, embedding=unit, tempo=100.0 + n)).track_id)
    client = api.client()
    params = {"from": ids[0], "to": ids[5]}
    assert await titles(client, "/v1/path", **params, n=6) == [f"Step {n}" for n in range(6)]
    assert await titles(client, "/v1/path", **params, n=2) == ["Step 0", "Step 5"]
    assert len(await titles(client, "/v1/path", **params, n=50)) == 6
    body = (await client.get("/v1/path", params=params)).json()
    assert (body["items"][0]["distance"], body["items"][0]["tempo_ratio"]) == (0, None)
    assert (body["items"][1]["key_relation"], body["items"][1]["tempo_ratio"]) == ("same", 1.01)
    assert body["_meta"]["credits_used"] == 2
    same = await client.get("/v1/path", params={"from": ids[0], "to": ids[0]})
    assert (same.status_code, same.json()["error"]) == (400, "bad_request")
    assert await api.remaining("pro") == 60_000 - 4 * 2


async def test_a_test_key_gets_simulated_tracks(api: Application) -> None:
    put(api, "Real", sounding(0.1), isrc=ISRC)
    client = api.client("test")
    asked = {"n": 5, "tempo_min": 100, "tempo_max": 120, "tempo_octaves": True}
    answers = [(await client.get(f"/v1/similar/{ISRC}", params=asked)).json() for _ in range(2)]
    assert answers[0]["items"] == answers[1]["items"]
    assert len(answers[0]["items"]) == 5
    for item in answers[0]["items"]:
        tempo = item["track"]["tempo"]
        assert any(100 <= one <= 120 for one in (tempo, 2 * tempo, tempo / 2))
        assert item["track"]["title"].startswith("Test Track")
    way = await client.get("/v1/path", params={"from": ISRC, "to": "990000124", "n": 8})
    assert len({item["track"]["id"] for item in way.json()["items"]}) == 8
    unknown = await client.get("/v1/similar/ZZZZZ0000000")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "track_not_found")
    wrong = {"embedding": [1.0] * 768, "model": MODEL}
    assert "simulated" in await refused(client, wrong)


async def test_a_repeated_search_is_charged_once(api: Application) -> None:
    put(api, "Seed", sounding(0.1), isrc=ISRC)
    client = api.client()
    sent = {"json": {"seeds": [{"id": ISRC}]}, "headers": {"Idempotency-Key": "a"}}
    first = await client.post("/v1/similar", **sent)  # type: ignore[arg-type]
    again = await client.post("/v1/similar", **sent)  # type: ignore[arg-type]
    assert (first.status_code, again.content) == (200, first.content)
    assert await api.remaining("pro") == 60_000 - 1
