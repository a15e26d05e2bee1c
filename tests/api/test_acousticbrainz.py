"""The AcousticBrainz mount: its documents, access without a header, and submissions."""

import base64
import json
from typing import Any

import httpx
import pytest

from serve_app.domain.tiers import LOCAL, LOCAL_OWNER
from serve_app.library.query import TrackQuery
from serve_app.library.track import OPERATOR
from tests.api.application import PUBLIC_URL, Application
from tests.api.described import described_app
from tests.api.test_library import add, ended, shared, upload
from tests.library.library_setting import track

pytestmark = pytest.mark.redis

MOUNT = "/acousticbrainz"
MBID = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
OTHER = "000a9db8-949f-4fa2-9f40-856127df0dbc"
NOBODY = "cd2e7c47-16f5-46c6-a37c-a1eb7bf599ff"
HERE = "http://127.0.0.1:8000"


def client_at(api: Application, base_url: str = HERE, host: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(api.app, client=(host, 5))
    client = httpx.AsyncClient(transport=transport, base_url=base_url)
    api.clients.append(client)
    return client


def low_level_of(**tags: str) -> dict[str, Any]:
    """A document as Essentia's extractor writes it, with a few fields that are not kept."""
    return {
        "lowlevel": {"average_loudness": 0.28, "barkbands": {"mean": [0.1, 0.2]}},
        "metadata": {
            "audio_properties": {"length": 213.4, "codec": "flac", "lossless": True},
            "tags": {name: [value] for name, value in tags.items()},
            "version": {"essentia": "2.1-beta2", "extractor": "music 1.0"},
        },
        "rhythm": {"bpm": 123.46, "beats_count": 3, "beats_position": [0.1, 0.6, 1.1]},
        "tonal": {"key_key": "F#", "key_scale": "minor", "key_strength": 0.7},
    }


async def heard_track(api: Application, client: httpx.AsyncClient, audio: bytes) -> None:
    body = await add(
        client,
        asset_id=await upload(client, audio),
        ids=[f"mbid:{MBID}"],
        artist="Ada",
        title="Own",
    )
    await ended(client, body["job_id"])


async def test_what_is_heard_has_acousticbrainz_s_names(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client()
    await heard_track(api, client, demo_audio)
    answer = await client.get(f"{MOUNT}/{MBID.upper()}/low-level")
    assert answer.headers["X-Cache"] == "hit"
    low = answer.json()
    assert low["rhythm"]["bpm"] == 120.0
    assert low["rhythm"]["beats_position"][:3] == [0.0, 0.5, 1.0]
    assert low["rhythm"]["beats_count"] == len(low["rhythm"]["beats_position"])
    assert low["tonal"] == {"key_key": "A", "key_scale": "minor", "key_strength": 0.7}
    assert low["lowlevel"]["loudness_ebu128"]["loudness_range"] == 5.0
    assert low["metadata"]["tags"] == {
        "artist": ["Ada"], "title": ["Own"], "musicbrainz_recordingid": [MBID],
    }  # fmt: skip
    high = (await client.get(f"{MOUNT}/{MBID}/high-level")).json()["highlevel"]
    assert high["danceability"] == {
        "all": {"danceable": 0.2, "not_danceable": 0.8}, "probability": 0.8,
        "value": "not_danceable",
    }  # fmt: skip
    assert high["mood_acoustic"]["all"]["acoustic"] == 0.1
    assert high["mood_happy"]["value"] == "happy"
    assert high["voice_instrumental"]["value"] == "voice"
    assert set(high) == {"danceability", "mood_acoustic", "mood_happy", "voice_instrumental"}


async def test_several_are_asked_for_at_once(api: Application, demo_audio: bytes) -> None:
    client = api.client()
    await heard_track(api, client, demo_audio)
    await client.post(f"{MOUNT}/{OTHER}/low-level", json=low_level_of())
    asked = {"recording_ids": f"{MBID.upper()}:0;{OTHER};{NOBODY};{MBID}:x;{MBID}:1"}
    low = (await client.get(f"{MOUNT}/low-level", params=asked)).json()
    assert {mbid: list(of) for mbid, of in low.items()} == {MBID: ["0"], OTHER: ["0"]}
    assert low[MBID]["0"] == (await client.get(f"{MOUNT}/{MBID}/low-level")).json()
    high = (await client.get(f"{MOUNT}/high-level", params=asked)).json()
    assert "danceability" in high[MBID]["0"]["highlevel"]
    counts = (await client.get(f"{MOUNT}/count", params=asked)).json()
    assert counts == {MBID: {"count": 1}, OTHER: {"count": 1}}
    for mbid, count in ((MBID, 1), (NOBODY, 0)):
        one = (await client.get(f"{MOUNT}/{mbid}/count")).json()
        assert one == {"mbid": mbid, "count": count}
    later = {"recording_ids": f"{MBID}:1"}
    assert (await client.get(f"{MOUNT}/low-level", params=later)).json() == {}


async def test_what_was_never_heard_of_is_404(api: Application) -> None:
    client = api.client()
    for path in (f"{NOBODY}/low-level", f"{NOBODY}/high-level", "x/low-level", "x/count"):
        answer = await client.get(f"{MOUNT}/{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found"), path
    many = ";".join(f"{n:032x}" for n in range(26))
    for wrong in ("", "x", f"{MBID};", many):
        answer = await client.get(f"{MOUNT}/low-level", params={"recording_ids": wrong})
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), wrong


async def test_a_submission_answers_until_the_recording_is_heard(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("free")
    tags = {"artist": "Ada", "title": "Lanterns", "musicbrainz_recordingid": MBID}
    sent = await client.post(f"{MOUNT}/{MBID}/low-level", json=low_level_of(**tags))
    assert (sent.status_code, sent.json()) == (200, {"message": "ok"})
    answer = await client.get(f"{MOUNT}/{MBID}/low-level")
    assert answer.headers["X-Credits-Used"] == "0"
    low = answer.json()
    assert low["rhythm"] == {"bpm": 123.46}
    assert low["tonal"] == {"key_key": "F#", "key_scale": "minor"}
    assert low["metadata"] == {
        "audio_properties": {"length": 213.4},
        "tags": {name: [value] for name, value in tags.items()},
        "version": {"extractor": "acousticbrainz"},
    }
    assert (await client.get(f"{MOUNT}/{MBID}/high-level")).json()["highlevel"] == {}
    (kept,) = (await client.get("/v1/library")).json()["items"]
    assert (kept["title"], kept["sources"]["tempo"]) == ("Lanterns", "acousticbrainz")
    assert (kept["tempo"], kept["key"], kept["mode"]) == (123.46, "F#", "minor")
    assert kept["camelot"] == "11A"
    assert (await api.client().get(f"{MOUNT}/{MBID}/low-level")).status_code == 404
    again = low_level_of(title="Other", album="\ud800B") | {"rhythm": {"bpm": "90"}}
    sent = await client.post(f"{MOUNT}/{MBID}/low-level", content=json.dumps(again))
    assert sent.status_code == 200
    low = (await client.get(f"{MOUNT}/{MBID}/low-level")).json()
    assert low["rhythm"]["bpm"] == 90.0
    named = low["metadata"]["tags"]
    assert (named["title"], named["album"]) == (["Lanterns"], ["B"])
    assert len((await client.get("/v1/library")).json()["items"]) == 1


async def test_a_submission_hides_no_track_that_was_heard(api: Application) -> None:
    client = api.client()
    await client.post(f"{MOUNT}/{MBID}/low-level", json=low_level_of(artist="A", title="B"))
    shared(api, track(mbid=MBID, owner=OPERATOR))
    found = await client.get(f"{MOUNT}/{MBID}/high-level")
    assert found.headers["X-Cache"] == "hit"
    assert found.json()["metadata"]["tags"]["title"] == ["A Forest"]


async def test_what_is_no_document_is_refused(api: Application) -> None:
    client = api.client()
    path = f"{MOUNT}/{MBID}/low-level"
    good = low_level_of()
    for wrong in (
        {},
        good | {"rhythm": {}},
        good | {"rhythm": {"bpm": "fast"}},
        good | {"rhythm": {"bpm": 0}, "tonal": {}},
        good | {"rhythm": {"bpm": 10**400}},
        good | {"tonal": {"key_key": ["A"]}},
        good | {"metadata": {"tags": []}},
        low_level_of(musicbrainz_trackid=OTHER),
    ):
        answer = await client.post(path, json=wrong)
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), wrong
    assert (await client.post(f"{MOUNT}/x/low-level", json=good)).status_code == 404
    assert (await client.get("/v1/library")).json()["items"] == []


async def test_the_key_may_come_by_http_basic_below_the_mount_alone(api: Application) -> None:
    client = client_at(api, PUBLIC_URL, host="10.0.0.7")
    path = f"{MOUNT}/{NOBODY}/low-level"
    for auth in (("x", api.keys["pro"]), (api.keys["pro"], "")):
        assert (await client.get(path, auth=auth)).status_code == 404
        assert (await client.get("/v1/account", auth=auth)).status_code == 401
    wrong = await client.get(path, auth=("x", "afa_live_wrong"))
    assert (wrong.status_code, "not valid" in wrong.json()["message"]) == (401, True)
    garbled = await client.get(path, headers={"Authorization": "Basic é".encode("latin-1")})
    assert garbled.status_code == 401
    none = await client.get(path)
    assert (none.status_code, "http://x:afa_live_" in none.json()["message"]) == (401, True)
    sent = await client.post(
        f"{MOUNT}/{MBID}/low-level", json=low_level_of(), auth=("x", api.keys["pro"])
    )
    assert sent.status_code == 200


async def test_programs_of_this_machine_read_and_submit_without_a_key(api: Application) -> None:
    path = f"{MOUNT}/{MBID}/low-level"
    assert (await client_at(api).get(path)).status_code == 401
    await api.issue(LOCAL_OWNER, LOCAL)
    shared(api, track(mbid=MBID))
    for url in (HERE, "http://localhost:8000", "http://[::1]:8000"):
        assert (await client_at(api, url).get(path)).status_code == 200, url
    for refused in (
        client_at(api, "http://rebound.example"),
        client_at(api, "http://127.0.0.1.rebound.example"),
        client_at(api, host="10.0.0.7"),
    ):
        assert (await refused.get(path)).status_code == 401
    garbled = await client_at(api).get(path, headers={"Host": "["})
    assert garbled.status_code == 401
    assert (await client_at(api).get("/v1/account")).status_code == 401
    assert (await client_at(api).post("/v1/library", json={})).status_code == 401
    sent = f"{MOUNT}/{OTHER}/low-level"
    assert (await client_at(api).post(sent, json=low_level_of())).status_code == 200
    owned = api.library.page(TrackQuery(), [LOCAL_OWNER], 9).items
    assert [one.identity.mbid for one in owned] == [OTHER]
    elsewhere = client_at(api, host="10.0.0.7")
    assert (await elsewhere.post(sent, json=low_level_of())).status_code == 401
    await api.issue(LOCAL_OWNER, "pro")
    assert (await client_at(api).get(path)).status_code == 401
    assert (await client_at(api).post(sent, json=low_level_of())).status_code == 401


async def test_the_document_says_where_which_key_lets_in(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.store.limits.FAILED_AUTH_PER_MINUTE", 10**6)
    await api.issue(LOCAL_OWNER, LOCAL)
    document = described_app().openapi()
    assert document["components"]["securitySchemes"]["KeyInAddress"]["scheme"] == "basic"
    client, key = client_at(api), ("x", api.keys["pro"])
    for path, ways in document["paths"].items():
        for method, operation in ways.items():
            where = path.replace("{mbid}", MBID)
            without = await client.request(method, where)
            by_address = await client.request(method, where, auth=key)
            lets_in = operation.get("security", [{}])
            assert (without.status_code != 401) == ({} in lets_in), where
            named = {"KeyInAddress": list[str]()} in lets_in or "security" not in operation
            assert (by_address.status_code != 401) == named, where


@pytest.mark.parametrize("header", ["Origin", "Sec-Fetch-Site", "X-Forwarded-For"])
async def test_a_page_gets_in_neither_without_a_key_nor_with_the_browser_s(
    api: Application, header: str
) -> None:
    await api.issue(LOCAL_OWNER, LOCAL)
    path = f"{MOUNT}/{MBID}/low-level"
    client = client_at(api)
    assert (await client.get(path, headers={header: "null"})).status_code == 401
    posted = await client.post(path, json=low_level_of(), headers={header: "null"})
    assert posted.status_code == 401
    if header != "X-Forwarded-For":
        password = base64.b64encode(f"x:{api.keys['pro']}".encode()).decode()
        headers = {header: "cross-site", "Authorization": f"Basic {password}"}
        assert (await client.post(path, json=low_level_of(), headers=headers)).status_code == 401
