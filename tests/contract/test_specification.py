"""Every table of the specification, field by field and status by status."""

import asyncio
import hashlib
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.api.application import Application
from tests.data.audio_files import click_track, encode, silent_wav

pytestmark = pytest.mark.redis

DEMO = "0AfaDemoTrack000000001"
SILENT = "1StUbTrAcK0000000000Aa"
UNKNOWN = "7unknownTrack000000000"
NAMES = {"song": "Demo in A minor", "artist": "The afa Demo Band"}
MBID = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
NO_ASSET = "afa_00000000000000000000000000"
MP3 = {"Content-Type": "audio/mpeg"}
NUMBER = (int, float)

META = {
    "cache": str,
    "latency_ms": int,
    "credits_used": int,
    "credits_remaining": int,
    "trace_id": str,
}
FEATURES = {
    "artist": str,
    "title": str,
    "tempo": float,
    "key": str,
    "mode": str,
    "camelot": str,
    "energy": int,
    "danceability": int,
    "happiness": int,
    "acousticness": int,
    "instrumentalness": int,
}
UNIT_FIELDS = (
    *("energy", "danceability", "valence", "acousticness", "instrumentalness"),
    *("speechiness", "liveness"),
)
SPOTIFY = {
    "id": str,
    "type": str,
    "uri": str,
    "track_href": str,
    "analysis_url": str,
    "key": int,
    "mode": int,
    "tempo": float,
    "loudness": float,
    "time_signature": int,
    "duration_ms": int,
} | dict.fromkeys(UNIT_FIELDS, float)


def check_fields(body: dict[str, Any], fields: dict[str, Any]) -> None:
    for name, kind in fields.items():
        assert isinstance(body[name], kind), (name, body.get(name))
        assert not (isinstance(body[name], bool) and kind is not bool), name


def check_meta(body: dict[str, Any], cache: str, credits_used: int) -> None:
    check_fields(body["_meta"], META)
    assert body["_meta"]["cache"] == cache
    assert body["_meta"]["credits_used"] == credits_used
    assert re.fullmatch("[0-9a-f]{32}", body["_meta"]["trace_id"])


def check_features(body: dict[str, Any]) -> None:
    check_fields(body, FEATURES)
    assert body["key"] in ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]
    assert body["mode"] in ("major", "minor")
    assert re.fullmatch("([1-9]|1[0-2])[AB]", body["camelot"])
    percents = ("energy", "danceability", "happiness", "acousticness", "instrumentalness")
    assert all(0 <= body[name] <= 100 for name in percents)


def check_spotify(body: dict[str, Any], track_id: str) -> None:
    assert set(body) >= set(SPOTIFY)
    check_fields(body, SPOTIFY)
    assert body["id"] == track_id
    assert body["type"] == "audio_features"
    assert body["uri"] == f"afa:track:{track_id}"
    assert -1 <= body["key"] <= 11
    assert body["mode"] in (-1, 0, 1)
    assert 3 <= body["time_signature"] <= 7
    assert body["duration_ms"] >= 0
    assert all(0.0 <= body[name] <= 1.0 for name in UNIT_FIELDS)


def check_error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == {"error", "message", "trace_id"}
    assert body["error"] == code
    assert len(body["message"]) > 10
    assert body["trace_id"] == answer.headers["X-Trace-Id"]
    if status in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1
    return body


async def drain(api: Application, who: str) -> None:
    """Spend all credits and the grace of an owner."""
    account = f"owner-{who}"
    balance = await api.stores.ledger.balance(account, who)
    await api.stores.ledger.adjust(account, f"drain-{who}", -balance.remaining, "test", "drain")
    grace = api.services.tiers[who].grace_credits
    if grace:
        caller = await api.stores.accounts.authenticate(api.keys[who])
        assert caller is not None
        await api.stores.ledger.reserve(caller, "drain-grace", grace)
        await api.stores.ledger.commit(account, "drain-grace")


async def upload(client: httpx.AsyncClient, audio: bytes) -> Any:
    answer = await client.post("/v1/assets/upload", content=audio, headers=MP3)
    assert answer.status_code == 201, answer.text
    return answer.json()


# Resources


async def test_features_by_id_have_every_field_of_the_canonical_shape(api: Application) -> None:
    answer = await api.client().get(f"/v1/audio-features/{DEMO}")
    assert answer.status_code == 200
    check_features(answer.json())
    assert (answer.json()["artist"], answer.json()["title"]) == (NAMES["artist"], NAMES["song"])
    check_meta(answer.json(), "miss", 2)


async def test_features_have_every_field_of_the_spotify_shape(api: Application) -> None:
    client = api.client()
    answer = await client.get(f"/v1/audio-features/{DEMO}", params={"format": "spotify"})
    assert answer.status_code == 200
    check_spotify(answer.json(), DEMO)
    assert answer.headers["X-Credits-Used"] == "2"
    for link in ("track_href", "analysis_url"):
        assert (await client.get(answer.json()[link])).status_code == 200
    named = await client.get("/v1/audio-features", params=NAMES | {"format": "spotify"})
    check_spotify(named.json(), named.json()["id"])


@pytest.mark.parametrize(
    "asked",
    [
        "https://open.spotify.com/track/0AfaDemoTrack000000001?si=abc",
        "https://music.apple.com/us/album/x/1599999999?i=1600000124",
        "https://www.youtube.com/watch?v=AfaDemoTrk0",
        " isrc: QZAFA2600001",
        "afa:track:0AfaDemoTrack000000001",
    ],
)
async def test_links_lead_to_the_track_however_it_was_asked_for(
    api: Application, asked: str
) -> None:
    client = api.client()
    path = f"/v1/audio-features/{quote(asked, safe='')}"
    body = (await client.get(path, params={"format": "spotify"})).json()
    assert body["id"] == asked
    for link in ("track_href", "analysis_url"):
        assert re.fullmatch(r"[!-~]+", body[link])
        assert (await client.get(body[link])).status_code == 200, body[link]


@pytest.mark.parametrize("format", [None, "spotify"])
async def test_a_job_envelope_has_every_field(
    api: Application, demo_audio: bytes, format: str | None
) -> None:
    client = api.client()
    params = {"format": format} if format else {}
    answer = await client.post(
        "/v1/audio-features/upload", content=demo_audio, headers=MP3, params=params
    )
    assert answer.status_code == 202
    body = answer.json()
    assert body["status"] == "queued"
    assert isinstance(body["job_id"], str)
    assert (body["result"], body["error"]) == (None, None)
    check_meta(body, "bypass", 10)
    done = (await client.get(f"/v1/jobs/{body['job_id']}", params={"wait": 60})).json()
    assert done["status"] == "complete"
    if format:
        check_spotify(done["result"], body["job_id"])
        for link in ("track_href", "analysis_url"):
            assert (await client.get(done["result"][link])).status_code == 200
    else:
        check_features(done["result"])
    other = {"format": "spotify"} if not format else {}
    again = (await client.get(f"/v1/jobs/{body['job_id']}", params=other)).json()
    check_spotify(again["result"], body["job_id"])
    check_meta(again, "bypass", 10)


async def test_asset_metadata_has_every_field(api: Application, demo_audio: bytes) -> None:
    client = api.client()
    uploaded = await upload(client, demo_audio)
    assert set(uploaded) == {"asset_id", "sha256", "size_bytes", "expires_at"}
    assert uploaded["asset_id"].startswith("afa_")
    assert uploaded["sha256"] == hashlib.sha256(demo_audio).hexdigest()
    assert uploaded["size_bytes"] == len(demo_audio)
    body = (await client.get(f"/v1/assets/{uploaded['asset_id']}")).json()
    assert set(body) == set(uploaded) | {"content_type", "created_at"}
    assert body["content_type"] == "audio/mpeg"
    created, expires = (datetime.fromisoformat(body[name]) for name in ("created_at", "expires_at"))
    assert expires - created == timedelta(days=7)
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=1)
    page = (await client.get("/v1/assets")).json()
    assert page == {"items": [body], "next_cursor": None, "count": 1}


@pytest.mark.parametrize(("tier", "days"), [("free", 1), ("basic", 1), ("pro", 7), ("scale", 7)])
async def test_the_asset_lifetime_is_the_tiers(
    api: Application, demo_audio: bytes, tier: str, days: int
) -> None:
    expires = datetime.fromisoformat((await upload(api.client(tier), demo_audio))["expires_at"])
    assert abs(expires - datetime.now(UTC) - timedelta(days=days)) < timedelta(minutes=1)


# Asset lifecycle


async def test_identical_bytes_of_one_owner_are_one_asset(
    api: Application, demo_audio: bytes
) -> None:
    first = await upload(api.client("pro"), demo_audio)
    assert await upload(api.client("pro"), demo_audio) == first
    other = await upload(api.client("scale"), demo_audio)
    assert other["asset_id"] != first["asset_id"]
    assert len([info async for info in api.stores.objects.scan("assets/")]) == 2


async def test_assets_are_paged_by_an_exclusive_cursor(api: Application) -> None:
    client = api.client()
    uploaded = [(await upload(client, silent_wav(5_000 + 2 * n)))["asset_id"] for n in range(7)]
    seen: list[str] = []
    cursor = None
    counts = []
    while True:
        params = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/v1/assets", params=params)).json()
        assert page["count"] == len(page["items"])
        counts.append(page["count"])
        seen += [item["asset_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert cursor == seen[-1]
    assert counts == [3, 3, 1]
    assert sorted(seen) == sorted(uploaded)
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"cursor": "x"}])
async def test_a_malformed_page_is_refused(api: Application, params: dict[str, Any]) -> None:
    check_error(await api.client().get("/v1/assets", params=params), 400, "bad_request")


@pytest.mark.parametrize(("limit", "count"), [(None, 50), (200, 60)])
async def test_the_default_page_has_fifty_items(
    api: Application, limit: int | None, count: int
) -> None:
    client = api.client("scale")
    for n in range(60):
        await upload(client, silent_wav(5_000 + 2 * n))
    params = {} if limit is None else {"limit": limit}
    assert (await client.get("/v1/assets", params=params)).json()["count"] == count


@pytest.mark.parametrize(
    "body",
    [b"plain text", b"<html></html>" * 100, b"\x89PNG\r\n\x1a\n" + bytes(600), b"%PDF-1.7\n"],
)
async def test_what_is_surely_no_audio_is_not_stored(api: Application, body: bytes) -> None:
    answer = await api.client().post("/v1/assets/upload", content=body, headers=MP3)
    check_error(answer, 415, "unsupported_media_type")
    assert [info async for info in api.stores.objects.scan()] == []


async def test_what_does_not_decode_is_not_stored(api: Application, tmp_path: Path) -> None:
    tones = click_track(120, 4.0)
    m4a = encode(tmp_path / "a", tones, "ipod", "aac").read_bytes()
    for body in (random.Random(7).randbytes(100_000), m4a[:40], m4a[: len(m4a) // 2]):
        answer = await api.client().post("/v1/assets/upload", content=body, headers=MP3)
        refused = check_error(answer, 400, "unprocessable_audio")
        assert re.search("damaged or incomplete|not an audio file", refused["message"])
    assert [info async for info in api.stores.objects.scan()] == []
    assert (await api.client().get("/v1/assets")).json()["count"] == 0


async def test_short_audio_is_stored(api: Application) -> None:
    assert (await upload(api.client(), silent_wav(44_144)))["size_bytes"] == 44_144


# Endpoints


async def test_song_and_artist_find_the_features(api: Application) -> None:
    client = api.client()
    answer = await client.get("/v1/audio-features", params=NAMES)
    check_features(answer.json())
    check_meta(answer.json(), "miss", 2)
    check_meta((await client.get("/v1/audio-features", params=NAMES)).json(), "hit", 0)
    check_meta((await client.get(f"/v1/audio-features/{DEMO}")).json(), "hit", 0)


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("format", [None, "spotify"])
async def test_a_batch_keeps_length_and_order(
    api: Application, format: str | None, extended: bool
) -> None:
    ids = [UNKNOWN, DEMO, "isrc:QZAFA2600001", "no id", SILENT, DEMO]
    answer = await api.client().post(
        "/v1/audio-features",
        json={"ids": ids, "extended": extended},
        params={"format": format} if format else {},
    )
    assert answer.status_code == 200
    slots = answer.json()["audio_features"]
    assert [slot is not None for slot in slots] == [False, True, True, False, False, True]
    check_meta(answer.json(), "miss", 6)
    assert slots[1] == slots[5]
    if format:
        check_spotify(slots[1], DEMO)
        check_spotify(slots[2], ids[2])
    else:
        check_features(slots[1])
    own = {"mix_in", "mix_out", "mood_tags"}
    assert own <= set(slots[1]) if extended else not own & set(slots[1])
    assert "camelot" in slots[1] or not extended


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": None},
        {"ids": DEMO},
        {"ids": []},
        {"ids": [DEMO] * 101},
        {"ids": [1]},
        [DEMO],
        {"ids": {"0": DEMO}},
    ],
)
async def test_a_malformed_batch_is_refused(api: Application, body: Any) -> None:
    answer = await api.client().post("/v1/audio-features", json=body)
    check_error(answer, 400, "bad_request")
    assert await api.remaining("pro") == 60_000


async def test_a_hundred_ids_are_answered(api: Application) -> None:
    answer = await api.client().post("/v1/audio-features", json={"ids": [DEMO] * 100})
    assert len(answer.json()["audio_features"]) == 100
    check_meta(answer.json(), "miss", 200)


async def test_key_bpm_has_every_field(api: Application) -> None:
    client = api.client("free")
    answer = await client.get("/v1/key-bpm", params=NAMES)
    body = answer.json()
    assert set(body) == {"tempo", "key", "mode", "camelot", "_meta"}
    check_fields(body, {"tempo": float, "key": str, "mode": str, "camelot": str})
    check_meta(body, "miss", 2)
    check_meta((await client.get("/v1/key-bpm", params=NAMES)).json(), "hit", 0)


async def test_key_bpm_reads_the_cache_of_the_look_up(api: Application) -> None:
    client = api.client()
    await client.get(f"/v1/audio-features/{DEMO}")
    check_meta((await client.get("/v1/key-bpm", params=NAMES)).json(), "hit", 0)
    assert api.quick.n_calls == 0


@pytest.mark.parametrize(
    "id",
    [
        DEMO,
        f"spotify:{DEMO}",
        f"spotify:track:{DEMO}",
        f"https%3A%2F%2Fopen.spotify.com%2Ftrack%2F{DEMO}",
        "afa00000-0000-4000-8000-000000000001",
        "mbid:AFA00000-0000-4000-8000-000000000001",
        "QZAFA2600001",
        "isrc:QZ-AFA-26-00001",
        "apple:1600000124",
        "1600000124",
        "deezer:990000124",
        "AfaDemoTrk0",
        "youtube:AfaDemoTrk0",
    ],
)
async def test_resolve_gives_every_identifier_for_every_form(api: Application, id: str) -> None:
    answer = await api.client().get(f"/v1/resolve/{id}")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    check_meta(body, "bypass", 0)
    del body["_meta"]
    assert body == {
        "mbid": "afa00000-0000-4000-8000-000000000001",
        "isrc": "QZAFA2600001",
        "spotify_id": DEMO,
        "apple_id": "1600000124",
        "deezer_id": "990000124",
        "youtube_id": "AfaDemoTrk0",
        "artist": NAMES["artist"],
        "title": NAMES["song"],
    }


async def test_resolve_names_both_readings_of_an_ambiguous_number(api: Application) -> None:
    body = check_error(await api.client().get("/v1/resolve/3135556"), 400, "bad_request")
    assert "apple:3135556" in body["message"]
    assert "deezer:3135556" in body["message"]


async def test_a_verified_beat_grid_has_every_field_and_wins(api: Application) -> None:
    answer = await api.client("free").get(f"/v1/beatgrid/{DEMO}")
    body = answer.json()
    check_fields(body, {"tempo": float, "downbeat": float, "beats": list, "downbeats": list})
    assert (body["tempo"], body["tempo_source"]) == (124.0, "verified")
    assert body["beats"][:3] == [0.25, 0.7339, 1.2177]
    assert body["downbeat"] == body["downbeats"][0] == 0.25
    assert set(body["downbeats"]) <= set(body["beats"])
    check_meta(body, "hit", 0)


@pytest.mark.parametrize("mode", ["bytes", "asset"])
async def test_bpm_has_every_field(api: Application, demo_audio: bytes, mode: str) -> None:
    client = api.client("free")
    fields = {"tempo", "confidence", "_meta"}
    if mode == "bytes":
        answer = await client.post("/v1/bpm", content=demo_audio, headers=MP3)
    else:
        asset = await upload(client, demo_audio)
        answer = await client.post("/v1/bpm", json={"asset_id": asset["asset_id"]})
        fields |= {"asset_id", "asset_expires_at"}
        assert answer.json()["asset_id"] == asset["asset_id"]
        assert answer.json()["asset_expires_at"] == asset["expires_at"]
    body = answer.json()
    assert set(body) == fields
    check_fields(body, {"tempo": NUMBER, "confidence": NUMBER})
    assert 0 <= body["confidence"] <= 1
    check_meta(body, "bypass", 2)
    assert await api.remaining("free") == 498


async def test_an_asset_is_analysed_like_its_bytes(api: Application, demo_audio: bytes) -> None:
    client = api.client()
    asset = await upload(client, demo_audio)
    submitted = await client.post("/v1/audio-features/upload", json={"asset_id": asset["asset_id"]})
    assert submitted.status_code == 202
    done = await client.get(f"/v1/jobs/{submitted.json()['job_id']}", params={"wait": 60})
    assert done.json()["status"] == "complete"
    # The job's copy is deleted when the job is reported complete, the asset is not.
    for _ in range(1200):
        if not (left := [info.key async for info in api.stores.objects.scan("uploads/")]):
            break
        await asyncio.sleep(0.05)
    assert left == []
    assert (await client.get(f"/v1/assets/{asset['asset_id']}")).status_code == 200


@pytest.mark.parametrize("tier", ["free", "basic"])
async def test_embeddings_are_for_pro(api: Application, demo_audio: bytes, tier: str) -> None:
    answer = await api.client(tier).post(
        "/v1/audio-features/upload",
        content=demo_audio,
        headers=MP3,
        params={"include_embedding": "true"},
    )
    check_error(answer, 402, "tier_required")


async def test_an_embedding_has_768_dimensions(api: Application, demo_audio: bytes) -> None:
    client = api.client()
    answer = await client.post(
        "/v1/audio-features/upload",
        content=demo_audio,
        headers=MP3,
        params={"include_embedding": "true"},
    )
    done = await client.get(f"/v1/jobs/{answer.json()['job_id']}", params={"wait": 60})
    assert len(done.json()["result"]["embedding"]) == 768


# Errors, status by status

ROUTES = [
    ("POST", "/v1/assets/upload"),
    ("GET", "/v1/assets"),
    ("GET", f"/v1/assets/{NO_ASSET}"),
    ("DELETE", f"/v1/assets/{NO_ASSET}"),
    ("POST", "/v1/library"),
    ("GET", "/v1/library"),
    ("GET", "/v1/library/map"),
    ("GET", "/v1/library/trk_x"),
    ("GET", "/v1/library/trk_x/cover"),
    ("PATCH", "/v1/library/trk_x"),
    ("DELETE", "/v1/library/trk_x"),
    ("GET", "/v1/audio-features?song=a&artist=b"),
    ("POST", "/v1/audio-features"),
    ("GET", f"/v1/audio-features/{DEMO}"),
    ("POST", "/v1/audio-features/upload"),
    ("POST", "/v1/audio-features/url"),
    ("GET", "/v1/jobs/job_x"),
    ("GET", "/v1/jobs"),
    ("DELETE", "/v1/jobs/job_x"),
    ("GET", "/v1/key-bpm?song=a&artist=b"),
    ("GET", f"/v1/resolve/{DEMO}"),
    ("GET", f"/v1/beatgrid/{DEMO}"),
    ("GET", f"/v1/analysis/{DEMO}"),
    ("POST", "/v1/bpm"),
    ("POST", "/v1/identify"),
    ("GET", f"/v1/similar/{DEMO}"),
    ("POST", "/v1/similar"),
    ("POST", "/v1/export"),
    ("GET", "/v1/similar?text=rain"),
    ("POST", "/v1/embed"),
    ("GET", "/v1/models"),
    ("GET", f"/v1/path?from={DEMO}&to={DEMO}"),
    ("GET", "/v1/account"),
    ("GET", "/v1/account/webhook"),
    ("GET", f"/acousticbrainz/{MBID}/low-level"),
    ("GET", f"/acousticbrainz/{MBID}/high-level"),
    ("GET", f"/acousticbrainz/{MBID}/count"),
    ("POST", f"/acousticbrainz/{MBID}/low-level"),
    ("GET", f"/acousticbrainz/low-level?recording_ids={MBID}"),
    ("GET", f"/acousticbrainz/high-level?recording_ids={MBID}"),
    ("GET", f"/acousticbrainz/count?recording_ids={MBID}"),
    ("GET", "/api/similar_tracks?item_id=a"),
    ("GET", "/api/similar_artists?artist=a"),
    ("POST", "/api/alchemy"),
    ("GET", "/api/find_path?start_song_id=a&end_song_id=b"),
    ("GET", "/api/search_tracks?search_query=a"),
]
BAD_KEYS = ["", "Bearer ", "Bearer afa_live_wrong", "Basic YTpi", "Bearer " + "x" * 5000]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_needs_a_valid_key(api: Application, method: str, path: str) -> None:
    client = api.client(None)
    check_error(await client.request(method, path), 401, "unauthorized")
    headers = {"Authorization": "Bearer afa_live_" + "0" * 36}
    answer = await client.request(method, path, headers=headers)
    check_error(answer, 401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("credentials", BAD_KEYS)
async def test_a_malformed_credential_is_no_key(api: Application, credentials: str) -> None:
    answer = await api.client(None).get("/v1/account", headers={"Authorization": credentials})
    check_error(answer, 401, "unauthorized")


async def test_402_without_credits(api: Application, demo_audio: bytes) -> None:
    await drain(api, "basic")
    client = api.client("basic")
    asset = await upload(client, demo_audio)
    answers = [
        await client.get("/v1/audio-features", params=NAMES),
        await client.get(f"/v1/audio-features/{DEMO}"),
        await client.post("/v1/audio-features", json={"ids": [DEMO]}),
        await client.post("/v1/audio-features/upload", content=demo_audio, headers=MP3),
        await client.post("/v1/audio-features/url", json={"url": "https://example.org/a.mp3"}),
        await client.get("/v1/key-bpm", params=NAMES),
        await client.post("/v1/bpm", content=demo_audio, headers=MP3),
        await client.post("/v1/bpm", json={"asset_id": asset["asset_id"]}),
    ]
    for answer in answers:
        check_error(answer, 402, "insufficient_credits")
    assert [info.key async for info in api.stores.objects.scan("uploads/")] == []
    assert (await client.get(f"/v1/resolve/{DEMO}")).status_code == 200
    assert await api.remaining("basic") == -500


async def test_404_where_nothing_is(api: Application) -> None:
    client = api.client()
    unknown = {"song": "No Such Song Anywhere", "artist": "Nobody At All"}
    for path, params, code in [
        ("/v1/audio-features", unknown, "track_not_found"),
        (f"/v1/audio-features/{UNKNOWN}", {}, "track_not_found"),
        (f"/v1/audio-features/{SILENT}", {}, "track_not_found"),
        ("/v1/audio-features/not-an-id", {}, "track_not_found"),
        ("/v1/key-bpm", unknown, "track_not_found"),
        (f"/v1/beatgrid/{UNKNOWN}", {}, "track_not_found"),
        (f"/v1/resolve/{UNKNOWN}", {}, "track_not_found"),
        ("/v1/resolve/not-an-id", {}, "track_not_found"),
        ("/v1/resolve/job_00000000000000000000000000", {}, "track_not_found"),
        (f"/v1/assets/{NO_ASSET}", {}, "asset_not_found"),
        ("/v1/assets/afa_live_x", {}, "asset_not_found"),
        ("/v1/jobs/job_00000000000000000000000000", {}, "job_not_found"),
        ("/v1/jobs/x", {}, "job_not_found"),
        ("/v1/nothing", {}, "not_found"),
    ]:
        check_error(await client.get(path, params=params), 404, code)
    for path in ("/v1/bpm", "/v1/audio-features/upload"):
        answer = await client.post(path, json={"asset_id": NO_ASSET})
        check_error(answer, 404, "asset_not_found")
    assert await api.remaining("pro") == 60_000


async def test_404_says_how_to_get_the_features_of_a_track_without_audio(api: Application) -> None:
    answer = await api.client().get(f"/v1/audio-features/{SILENT}")
    assert "no audio available; upload it" in answer.json()["message"]
    named = (await api.client().get("/v1/audio-features/not-an-id")).json()["message"]
    assert "isrc:" in named


@pytest.mark.parametrize("path", ["/v1/assets/upload", "/v1/audio-features/upload", "/v1/bpm"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_413_over_the_tiers_upload_size(api: Application, path: str, chunked: bool) -> None:
    client = api.client("basic")
    limit = 15 * 2**20

    async def chunks() -> Any:
        for _ in range(16):
            yield bytes(2**20)

    content = chunks() if chunked else bytes(limit + 1)
    answer = await client.post(path, content=content, headers=MP3)
    check_error(answer, 413, "payload_too_large")
    assert [info async for info in api.stores.objects.scan()] == []
    assert await api.remaining("basic") == 10_000


async def test_uploads_up_to_the_tiers_size_are_taken(api: Application) -> None:
    for tier, size in (("basic", 15 * 2**20), ("pro", 50 * 2**20)):
        audio = silent_wav(size)
        answer = await api.client(tier).post("/v1/assets/upload", content=audio, headers=MP3)
        assert answer.status_code == 201, answer.text
        assert answer.json()["size_bytes"] == size


@pytest.mark.parametrize("path", ["/v1/assets/upload", "/v1/audio-features/upload", "/v1/bpm"])
@pytest.mark.parametrize("kind", ["text/plain", "video/mp4", "application/xml", ""])
async def test_415_for_what_is_no_audio_type(api: Application, path: str, kind: str) -> None:
    answer = await api.client().post(path, content=b"x", headers={"Content-Type": kind})
    check_error(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind",
    ["audio/mpeg", "audio/wav", "audio/flac", "Audio/OGG; codecs=opus", "application/octet-stream"],
)
async def test_every_audio_type_is_taken(api: Application, demo_audio: bytes, kind: str) -> None:
    answer = await api.client().post(
        "/v1/assets/upload", content=demo_audio, headers={"Content-Type": kind}
    )
    assert answer.status_code == 201


@pytest.mark.parametrize("path", ["/v1/bpm", "/v1/audio-features/upload"])
@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"{", b'{"asset_id": 1}', b'{"asset_id": "x"}', b"[" * 9999]
)
async def test_400_for_a_malformed_asset_input(api: Application, path: str, body: bytes) -> None:
    answer = await api.client().post(
        path, content=body, headers={"Content-Type": "application/json"}
    )
    check_error(answer, 400, "bad_request")


@pytest.mark.parametrize(
    "body", [{}, {"url": ""}, {"url": "no url"}, {"url": 1}, {"url": "ftp://a.org/x"}]
)
async def test_400_for_a_missing_or_malformed_url(api: Application, body: Any) -> None:
    check_error(await api.client().post("/v1/audio-features/url", json=body), 400, "bad_request")


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/audio-features", {"song": "x"}),
        ("/v1/audio-features", {"artist": "x"}),
        ("/v1/key-bpm", {"song": "x"}),
        (f"/v1/audio-features/{DEMO}", {"format": "xml"}),
        ("/v1/jobs/job_x", {"format": "other"}),
        ("/v1/jobs/job_x", {"wait": 61}),
    ],
)
async def test_400_for_malformed_parameters(
    api: Application, path: str, params: dict[str, Any]
) -> None:
    check_error(await api.client().get(path, params=params), 400, "bad_request")


async def test_429_carries_the_limit_and_when_to_come_back(api: Application) -> None:
    client = api.client("free")
    first = await client.get("/v1/account")
    assert first.headers["RateLimit-Policy"] == '"read";q=60;w=60'
    assert re.fullmatch(r'"read";r=\d+;t=\d+', first.headers["RateLimit"])
    answers = await asyncio.gather(*(client.get("/v1/account") for _ in range(75)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    check_error(refused[0], 429, "rate_limit_exceeded")
    assert '"read";r=0' in refused[0].headers["RateLimit"]
    # Another class, and another owner, still have room.
    assert (await client.get("/v1/jobs/job_x")).status_code == 404
    assert (await api.client("basic").get("/v1/account")).status_code == 200


async def test_405_names_no_html(api: Application) -> None:
    check_error(await api.client().delete("/v1/account"), 405, "method_not_allowed")


async def test_500_and_failed_computes_are_refunded(api: Application, demo_audio: bytes) -> None:
    client = api.client(raises=False)
    api.quick.fault = RuntimeError("secret detail")
    answer = await client.post("/v1/bpm", content=demo_audio, headers=MP3)
    body = check_error(answer, 500, "internal_error")
    assert "secret" not in body["message"]
    named = await client.get("/v1/key-bpm", params=NAMES)
    check_error(named, 500, "internal_error")
    assert await api.remaining("pro") == 60_000


async def test_audio_that_cannot_be_analysed_is_not_charged(
    api: Application, tmp_path: Path
) -> None:
    client = api.client()
    short = encode(tmp_path / "a", click_track(120, 0.3), "wav", "pcm_s16le", sample_format="s16")
    for audio, code in [
        (b"no audio" * 50, "unprocessable_audio"),
        (short.read_bytes(), "audio_too_short"),
    ]:
        answer = await client.post("/v1/bpm", content=audio, headers=MP3)
        check_error(answer, 400, code)
        submitted = await client.post("/v1/audio-features/upload", content=audio, headers=MP3)
        done = await client.get(f"/v1/jobs/{submitted.json()['job_id']}", params={"wait": 60})
        assert done.json()["status"] == "failed"
        assert done.json()["error"]["error"] == code
        check_meta(done.json(), "bypass", 0)
    assert await api.remaining("pro") == 60_000


# Billing and limits


async def test_the_free_tier_reaches_no_gpu(api: Application, demo_audio: bytes) -> None:
    free = api.client("free")
    for answer in (
        await free.get(f"/v1/audio-features/{DEMO}"),
        await free.post("/v1/audio-features/upload", content=demo_audio, headers=MP3),
        await free.post("/v1/audio-features/url", json={"url": "https://example.org/a.mp3"}),
    ):
        body = check_error(answer, 402, "tier_required")
        assert "basic" in body["message"]
    batch = await free.post("/v1/audio-features", json={"ids": [DEMO]})
    assert batch.json()["audio_features"] == [None]
    assert api.backend.n_calls == 0
    await api.client("pro").get(f"/v1/audio-features/{DEMO}")
    check_meta((await free.get(f"/v1/audio-features/{DEMO}")).json(), "hit", 0)
    assert await api.remaining("free") == 500


async def test_hits_beyond_the_allowance_cost_one_credit(api: Application) -> None:
    client = api.client("free")
    await api.client("pro").get(f"/v1/audio-features/{DEMO}")
    await api.stores.ledger.count_hit("owner-free", "free", hits=999)
    check_meta((await client.get(f"/v1/audio-features/{DEMO}")).json(), "hit", 0)
    check_meta((await client.get(f"/v1/audio-features/{DEMO}")).json(), "hit", 1)
    assert await api.remaining("free") == 499


async def test_batch_slots_cost_two_also_when_cached(api: Application) -> None:
    client = api.client()
    await client.get(f"/v1/audio-features/{DEMO}")
    answer = await client.post("/v1/audio-features", json={"ids": [DEMO, UNKNOWN, DEMO]})
    check_meta(answer.json(), "hit", 4)
    assert await api.remaining("pro") == 60_000 - 2 - 4


async def test_a_batch_of_which_nothing_is_known_is_no_hit(api: Application) -> None:
    answer = await api.client().post("/v1/audio-features", json={"ids": [UNKNOWN, "not-an-id"]})
    assert answer.json()["audio_features"] == [None, None]
    check_meta(answer.json(), "miss", 0)


async def test_a_batch_must_be_covered_whole(api: Application) -> None:
    balance = await api.stores.ledger.balance("owner-free", "free")
    await api.stores.ledger.adjust("owner-free", "d", 3 - balance.remaining, "test", "drain")
    client = api.client("free")
    answer = await client.post("/v1/audio-features", json={"ids": [UNKNOWN, UNKNOWN]})
    check_error(answer, 402, "insufficient_credits")
    assert (await client.post("/v1/audio-features", json={"ids": [UNKNOWN]})).status_code == 200
    assert await api.remaining("free") == 3


async def test_uploads_listing_resolving_and_polling_are_free(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client()
    asset = await upload(client, demo_audio)
    await client.get("/v1/assets")
    await client.get(f"/v1/assets/{asset['asset_id']}")
    await client.get(f"/v1/resolve/{DEMO}")
    await client.get("/v1/account")
    assert await api.remaining("pro") == 60_000
