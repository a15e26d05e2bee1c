"""Tracks of the library over HTTP: added by their owner, found by look-ups, seen by nobody else."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import mutagen.id3
import pytest

from serve_app.checkpoints.choice import models_name
from serve_app.composition.options import StoreOptions
from serve_app.domain.keys import Caller
from serve_app.library.edit import Edit, removed, where_there
from serve_app.library.track import LibraryTrack, Place, TrackFile
from tests.api.application import MODELS, Application, open_application
from tests.library.library_setting import adding, heard, track

pytestmark = pytest.mark.redis

SPOTIFY = "4uLU6hMCjMI75M1A2tKUQC"
ISRC = "QZAAA2600099"
MP3 = {"Content-Type": "audio/mpeg"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


async def upload(client: httpx.AsyncClient, body: bytes, **query: str) -> str:
    answer = await client.post("/v1/assets/upload", content=body, headers=MP3, params=query)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["asset_id"])


async def add(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/library", json=body)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def ended(client: httpx.AsyncClient, job_id: str) -> None:
    job = (await client.get(f"/v1/jobs/{job_id}", params={"wait": 60})).json()
    assert job["status"] == "complete", job


def shared(api: Application, one: LibraryTrack, *, made_by: str | None = None) -> None:
    """Put an analysed track into the operator's library, as a scan does."""
    what = replace(heard(one.track_id), made_by=made_by or models_name(MODELS))
    api.library.write([adding(one, what)])


async def test_an_added_track_is_found_by_all_that_names_it(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    before = await api.remaining("pro")
    asset_id = await upload(client, demo_audio)
    body = await add(
        client, asset_id=asset_id, ids=[f"isrc:{ISRC}"], artist="Ada", title="Own", tags=["night"]
    )
    assert body["_meta"]["credits_used"] == 10
    await ended(client, body["job_id"])
    assert before - await api.remaining("pro") == 10
    track_id = body["track"]["id"]
    read = (await client.get(f"/v1/library/{track_id}")).json()["track"]
    assert (read["tempo"], read["camelot"], read["shared"]) == (120.0, "8A", False)
    assert read["analysed_at"] is not None
    assert read["sources"]["isrc"] == "owner"
    for path in (
        f"/v1/audio-features/{track_id}",
        f"/v1/audio-features/{ISRC}",
        "/v1/audio-features?artist=Ada&song=Own",
        "/v1/key-bpm?artist=Ada&song=Own",
        f"/v1/beatgrid/{ISRC}",
    ):
        found = await client.get(path)
        assert (found.status_code, found.json()["_meta"]["cache"]) == (200, "hit"), path
    assert api.backend.n_calls == 1


async def test_a_track_without_a_platform_s_id_has_links_by_its_own(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    added = await add(client, asset_id=await upload(client, demo_audio), artist="Ada", title="Own")
    await ended(client, added["job_id"])
    asked = {"artist": "Ada", "song": "Own", "format": "spotify"}
    body = (await client.get("/v1/audio-features", params=asked)).json()
    assert body["id"] == added["track"]["id"]
    for link in ("track_href", "analysis_url"):
        assert (await client.get(body[link])).status_code == 200


async def test_a_track_that_is_added_many_times_at_once_is_one(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    asset_id = await upload(client, demo_audio)
    bodies = await asyncio.gather(
        *(add(client, asset_id=asset_id, ids=[ISRC], tags=[str(n)]) for n in range(8))
    )
    assert len({body["track"]["id"] for body in bodies}) == 1
    (one,) = (await client.get("/v1/library")).json()["items"]
    assert sorted(one["tags"]) == [str(n) for n in range(8)]


async def test_an_added_track_s_tempo_is_looked_for_in_a_range(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    sent = {"content": demo_audio, "headers": MP3}
    params = {"tempo_range": "200-210", "title": "Quick", "artist": "Ada"}
    body = (await client.post("/v1/library", params=params, **sent)).json()
    await ended(client, body["job_id"])
    read = (await client.get(f"/v1/library/{body['track']['id']}")).json()["track"]
    assert (read["title"], read["tempo"]) == ("Quick", 210.0)


async def test_nobody_else_sees_an_account_s_track(api: Application, demo_audio: bytes) -> None:
    mine, other = api.client("pro"), api.client("scale")
    body = await add(
        mine, asset_id=await upload(mine, demo_audio), ids=[ISRC], artist="Ada", title="Own"
    )
    track_id = body["track"]["id"]
    await ended(mine, body["job_id"])
    assert (await other.get("/v1/library")).json()["items"] == []
    for path in (
        f"/v1/library/{track_id}",
        f"/v1/audio-features/{ISRC}",
        f"/v1/resolve/{track_id}",
    ):
        assert (await other.get(path)).status_code == 404, path
    assert (await other.patch(f"/v1/library/{track_id}", json={"title": "x"})).status_code == 404
    assert (await other.delete(f"/v1/library/{track_id}")).status_code == 404
    assert (await mine.get(f"/v1/library/{track_id}")).json()["track"]["title"] == "Own"


async def test_the_operator_s_tracks_are_everybody_s(api: Application) -> None:
    one = track(spotify_id=SPOTIFY, isrc=ISRC)
    shared(api, one)
    client = api.client("free")
    found = await client.get(f"/v1/audio-features/{SPOTIFY}")
    assert found.json()["_meta"]["cache"] == "hit"
    assert found.json()["title"] == "A Forest"
    spotify = await client.get(f"/spotify/v1/audio-features/{SPOTIFY}")
    assert spotify.json()["id"] == SPOTIFY
    assert (await client.get(f"/spotify/v1/tracks/{SPOTIFY}")).json()["name"] == "A Forest"
    listed = (await client.get("/v1/library")).json()["items"]
    assert [(row["id"], row["shared"], row["files"]) for row in listed] == [
        (one.track_id, True, [])
    ]
    for answer in (
        await client.patch(f"/v1/library/{one.track_id}", json={"title": "Mine"}),
        await client.delete(f"/v1/library/{one.track_id}"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (403, "library_closed")


async def test_a_cover_is_what_the_file_carries(
    api: Application, tmp_path: Path, demo_audio: bytes
) -> None:
    song = tmp_path / "song.mp3"
    song.write_bytes(demo_audio)
    tags = mutagen.id3.ID3()
    tags.add(mutagen.id3.APIC(mime="image/png", type=3, data=PNG))
    tags.save(song)
    files = (TrackFile(Place.PATH, str(tmp_path / "gone.mp3")), TrackFile(Place.PATH, str(song)))
    one, bare = replace(track(isrc=ISRC), files=files), track(title="Bare")
    shared(api, one)
    shared(api, bare)
    client = api.client("free")
    found = await client.get(f"/v1/library/{one.track_id}/cover")
    assert (found.status_code, found.content) == (200, PNG)
    assert found.headers["content-type"] == "image/png"
    for track_id in (bare.track_id, "trk_none"):
        missing = await client.get(f"/v1/library/{track_id}/cover")
        assert (missing.status_code, missing.json()["error"]) == (404, "track_not_found")


async def test_what_other_checkpoints_heard_is_no_hit(api: Application) -> None:
    one = track(isrc=ISRC)
    shared(api, one, made_by="of-other-days")
    answer = await api.client("pro").get(f"/v1/audio-features/{ISRC}")
    assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found")
    assert "no audio available" in answer.json()["message"]


async def test_a_file_is_heard_again_by_the_checkpoints_in_use(
    api: Application, demo_audio: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "demo.mp3"
    file.write_bytes(demo_audio)
    one = replace(track(isrc=ISRC), files=(TrackFile(Place.PATH, str(file)),))
    shared(api, one, made_by="of-other-days")
    answer = await api.client("pro").get(f"/v1/audio-features/{ISRC}")
    assert (answer.json()["_meta"]["cache"], answer.json()["tempo"]) == ("miss", 120.0)
    assert (await api.client("free").get(f"/v1/audio-features/{ISRC}")).status_code == 200
    kept = api.library.get(one.track_id)
    assert kept is not None
    assert kept.analysis is not None
    assert kept.analysis.made_by == models_name(MODELS)


async def test_an_upload_with_an_id_makes_the_id_known_to_its_owner(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    await upload(client, demo_audio, track=f"https://open.spotify.com/track/{SPOTIFY}")
    found = await client.get(f"/v1/audio-features/{SPOTIFY}")
    assert (found.status_code, found.json()["_meta"]["cache"]) == (200, "miss")
    assert (await client.get(f"/v1/audio-features/{SPOTIFY}")).json()["_meta"]["cache"] == "hit"
    assert (await api.client("scale").get(f"/v1/audio-features/{SPOTIFY}")).status_code == 404
    await upload(client, demo_audio, track=f"isrc:{ISRC}")
    (own,) = (await client.get("/v1/library")).json()["items"]
    assert (own["spotify_id"], own["isrc"]) == (SPOTIFY, ISRC)


async def test_a_track_is_corrected_and_removed(api: Application, demo_audio: bytes) -> None:
    client = api.client("pro")
    asset_id = await upload(client, demo_audio)
    body = await add(client, asset_id=asset_id, ids=[ISRC], artist="Ada", title="Onw", year=1999)
    await ended(client, body["job_id"])
    track_id = body["track"]["id"]
    change = {"title": "Own", "year": None, "tags": ["night", "night"], "ids": [SPOTIFY]}
    changed = (await client.patch(f"/v1/library/{track_id}", json=change)).json()["track"]
    expected = {"title": "Own", "year": None, "tags": ["night"], "isrc": ISRC}
    assert {name: changed[name] for name in expected} == expected
    assert changed["artist"] == "Ada"
    assert (await client.get(f"/v1/resolve/{SPOTIFY}")).json()["title"] == "Own"
    assert (await client.delete(f"/v1/library/{track_id}")).status_code == 204
    for path in (f"/v1/library/{track_id}", f"/v1/audio-features/{ISRC}"):
        assert (await client.get(path)).status_code == 404
    assert (await client.delete(f"/v1/library/{track_id}")).status_code == 404


async def test_a_listing_filters_and_pages(api: Application) -> None:
    tracks = [track(f"Song {n}", album="Wild Mood", year=1980 + n) for n in range(5)]
    for one in tracks:
        shared(api, one)
    client = api.client("free")
    everything: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get("/v1/library", params={"limit": 2, **cursor})).json()
        everything += [row["id"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert sorted(everything) == sorted(one.track_id for one in tracks)
    rows = (await client.get("/v1/library", params={"q": "wild", "year_min": 1983})).json()["items"]
    assert sorted(row["title"] for row in rows) == ["Song 3", "Song 4"]
    one = rows[0]
    around = {"tempo_min": one["tempo"] - 0.01, "tempo_max": one["tempo"] + 0.01}
    same = (await client.get("/v1/library", params={**around, "key": one["camelot"]})).json()
    assert one["id"] in [row["id"] for row in same["items"]]
    for wrong in ({"key": "H"}, {"cursor": "x"}, {"limit": 0}, {"tempo_min": "x"}):
        assert (await client.get("/v1/library", params=wrong)).status_code == 400


async def test_what_cannot_be_paid_is_not_added(api: Application, demo_audio: bytes) -> None:
    client = api.client("basic")
    asset_id = await upload(client, demo_audio)
    payer = Caller("k", "owner-basic", "owner-basic", "basic", frozenset(), is_test=False)
    left = await api.remaining("basic")
    await api.stores.ledger.reserve(payer, "all", left + api.stores.tiers["basic"].grace_credits)
    answer = await client.post("/v1/library", json={"asset_id": asset_id, "ids": [ISRC]})
    assert answer.status_code == 402
    assert (await client.get("/v1/library")).json()["items"] == []


async def test_a_body_that_says_too_little_or_too_much_is_refused(api: Application) -> None:
    client = api.client("pro")
    for wrong in (
        {},
        {"asset_id": "afa_x", "url": "https://example.org/a.mp3"},
        {"url": "http://127.0.0.1:1/a.mp3", "ids": ["nonsense"]},
        {"url": "http://127.0.0.1:1/a.mp3", "year": 12},
    ):
        assert (await client.post("/v1/library", json=wrong)).status_code == 400
    missing = {"asset_id": "afa_00000000000000000000000000"}
    assert (await client.post("/v1/library", json=missing)).status_code == 404
    assert (await client.get("/v1/library")).json()["items"] == []


async def test_bounds_the_wrong_way_round_are_a_400(api: Application) -> None:
    client = api.client("pro")
    for path in ("/v1/library", f"/v1/similar/{ISRC}"):
        refused = await client.get(path, params={"tempo_min": 140, "tempo_max": 120})
        assert refused.status_code == 400, path
        assert "swap them" in refused.json()["message"]


async def test_a_404_says_what_is_known_and_what_to_do(api: Application) -> None:
    shared(api, track())
    answer = await api.client("pro").get(f"/v1/audio-features/{SPOTIFY}")
    message = answer.json()["message"]
    assert "library (tracks: 1) or catalog (30); no provider is on" in message
    assert "/v1/assets/upload?track=ID" in message


async def test_a_deleted_asset_is_gone_and_counts_no_longer(
    api: Application, demo_audio: bytes
) -> None:
    client, other = api.client("pro"), api.client("scale")
    asset_id = await upload(client, demo_audio)
    path = f"/v1/assets/{asset_id}"
    assert (await other.delete(path)).status_code == 404
    assert (await client.delete(path)).status_code == 204
    for answer in (await client.get(path), await client.delete(path)):
        assert (answer.status_code, answer.json()["error"]) == (404, "asset_not_found")
    assert (await client.get("/v1/assets")).json()["items"] == []
    caller = await api.stores.accounts.authenticate(api.keys["pro"])
    assert await api.services.assets.stored_bytes(caller) == 0
    assert [info.key async for info in api.stores.objects.scan("assets/")] == []
    again = await upload(client, demo_audio)
    assert again != asset_id
    assert await api.services.assets.stored_bytes(caller) == len(demo_audio)
    assert await api.services.assets.delete_expired() == 0
    assert (await client.get(f"/v1/assets/{again}")).status_code == 200


async def test_the_operator_may_keep_adding_for_itself(
    api_stores: StoreOptions, demo_catalog: Path, demo_audio: bytes
) -> None:
    closed = open_application(api_stores, demo_catalog, library_adding="operator")
    async with closed as api:
        client = api.client("pro")
        asset_id = await upload(client, demo_audio, track=f"isrc:{ISRC}")
        answer = await client.post("/v1/library", json={"asset_id": asset_id})
        assert (answer.status_code, answer.json()["error"]) == (403, "library_closed")
        assert await api.remaining("pro") == 60_000
        assert (await client.get("/v1/library")).json()["items"] == []


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    """Titles of all pages in order, with two tracks a page."""
    titles: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        params = {"limit": 2, **query, **cursor}
        answer = await client.get("/v1/library", params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        titles += [row["title"] for row in page["items"]]
        if page["next_cursor"] is None:
            return titles
        cursor = {"cursor": page["next_cursor"]}


def sounding(api: Application, title: str, tempo: float, camelot: str, energy: float) -> None:
    key, mode = {"1A": (8, 0), "1B": (11, 1), "10A": (11, 0), "2A": (3, 0)}[camelot]
    one = track(title)
    what = heard(title)
    features = replace(
        what.features, tempo=tempo, key=key, mode=mode, camelot=camelot, energy=energy
    )
    api.library.write([adding(one, replace(what, features=features))])


async def test_a_listing_goes_by_what_is_asked_for_through_all_pages(api: Application) -> None:
    sounding(api, "Delta", 90.0, "10A", 0.5)
    sounding(api, "alpha", 120.0, "2A", 0.9)
    sounding(api, "Charlie", 120.0, "1B", 0.1)
    sounding(api, "Bravo", 70.0, "1A", 0.494)
    api.library.write([adding(track("Unheard"))])
    client = api.client("free")
    assert await listed(client) == ["Unheard", "Bravo", "Charlie", "alpha", "Delta"]
    assert await listed(client, sort="added") == ["Delta", "alpha", "Charlie", "Bravo", "Unheard"]
    assert await listed(client, sort="name") == ["alpha", "Bravo", "Charlie", "Delta", "Unheard"]
    assert await listed(client, sort="-tempo") == ["Charlie", "alpha", "Delta", "Bravo", "Unheard"]
    assert await listed(client, sort="tempo") == ["Bravo", "Delta", "alpha", "Charlie", "Unheard"]
    assert await listed(client, sort="key") == ["Bravo", "Charlie", "alpha", "Delta", "Unheard"]
    assert await listed(client, sort="-energy", energy_max=50) == ["Delta", "Bravo", "Charlie"]
    assert await listed(client, energy_min=50) == ["alpha", "Delta"]
    assert (await client.get("/v1/library", params={"sort": "size"})).status_code == 400


@pytest.mark.parametrize("key", ["A minor", "13A", "8A\n", "8a"])
async def test_a_key_is_asked_for_by_the_camelot_wheel(api: Application, key: str) -> None:
    answer = await api.client("free").get("/v1/library", params={"key": key})
    assert answer.status_code == 400
    told = "should be on the Camelot wheel: minor keys are 1A to 12A, major ones 1B to 12B"
    assert answer.json()["message"] == f"key.0: {told}, not {key!r}"


async def test_a_track_without_a_beat_is_not_slow(api: Application) -> None:
    for title, tempo in (("Rain", 0.0), ("Slow", 70.0), ("Fast", 150.0)):
        sounding(api, title, tempo, "1A", 0.5)
    client = api.client("free")
    assert await listed(client, sort="tempo") == ["Slow", "Fast", "Rain"]
    assert await listed(client, tempo_max=100) == ["Slow"]
    assert await listed(client, tempo_min=0) == ["Fast", "Slow"]


@pytest.mark.parametrize("sort", ["tempo", "name", "-energy", "key", "added"])
async def test_a_page_follows_a_track_that_was_changed_or_removed(
    api: Application, sort: str
) -> None:
    for number, title in enumerate(["Älpha", "bravo", "Charlie 日本", "Delta", "Echo"]):
        sounding(api, title, 90.0 + number / 3, ["1A", "1B", "2A", "10A", "10A"][number], 0.5)
    api.library.write([adding(track("Unheard"))])
    client = api.client("free")
    query = {"sort": sort, "limit": 2}
    expected = await listed(client, sort=sort)
    first = (await client.get("/v1/library", params=query)).json()
    ids = [row["id"] for row in first["items"]]
    renamed = where_there(lambda known: replace(known, identity=replace(known.identity, title="Z")))
    again = heard("again")
    elsewhere = replace(again.features, tempo=60.0, key=8, mode=0, camelot="1A", energy=1.0)
    changed = Edit(ids[1], renamed, replace(again, features=elsewhere))
    for edit in (changed, Edit(ids[1], removed)):
        api.library.write([edit])
        query["cursor"] = first["next_cursor"]
        second = (await client.get("/v1/library", params=query)).json()
        assert [row["title"] for row in second["items"]] == expected[2:4]


async def test_the_map_shows_what_the_account_sees(api: Application) -> None:
    nothing = (await api.client("free").get("/v1/library/map")).json()
    assert (nothing["model"], nothing["items"], nothing["total"]) == (None, [], 0)
    for number in range(5):
        shared(api, track(f"Song {number}"))
    own, what = track("Own", owner="owner-pro"), heard("own")
    what = replace(what, features=replace(what.features, tempo=124.00607))
    api.library.write([adding(own, what), adding(track("Unheard"))])
    drawn = (await api.client("pro").get("/v1/library/map")).json()
    assert (len(drawn["items"]), drawn["total"]) == (6, 6)
    assert 124.006 in {one["tempo"] for one in drawn["items"]}
    assert drawn["_meta"]["credits_used"] == 0
    assert 0 < drawn["variance_shown"] < 1
    assert max(abs(one[axis]) for one in drawn["items"] for axis in "xy") == 1.0
    again = (await api.client("pro").get("/v1/library/map")).json()
    assert again["items"] == drawn["items"]
    others = (await api.client("scale").get("/v1/library/map")).json()
    assert own.track_id not in {one["id"] for one in others["items"]}
    assert others["total"] == 5
    api.library.write([Edit(own.track_id, removed)])
    assert (await api.client("pro").get("/v1/library/map")).json()["total"] == 5


async def test_sent_audio_becomes_a_track_named_by_its_owner_or_its_tags(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    said = {"title": "Mine", "ids": ISRC, "tags": ["a", "b"]}
    sent = await client.post("/v1/library", content=demo_audio, headers=MP3, params=said)
    assert sent.status_code == 202, sent.text
    body = sent.json()
    assert (body["track"]["title"], body["track"]["isrc"]) == ("Mine", ISRC)
    assert body["track"]["tags"] == ["a", "b"]
    await ended(client, body["job_id"])
    (asset,) = (await client.get("/v1/assets")).json()["items"]
    assert body["track"]["files"][0]["location"] == asset["asset_id"]
    assert (await client.delete(f"/v1/library/{body['track']['id']}")).status_code == 204
    form = await client.post("/v1/library", files={"file": ("a.mp3", demo_audio)})
    await ended(client, form.json()["job_id"])
    track_id = form.json()["track"]["id"]
    named = (await client.get(f"/v1/library/{track_id}")).json()["track"]
    assert (named["artist"], named["title"]) == ("The afa Demo Band", "Demo in A minor")
    assert named["sources"]["title"] == "tags"
    text = await client.post("/v1/library", content=b"<html>" * 50)
    assert (text.status_code, text.json()["error"]) == (415, "unsupported_media_type")
    for wrong in ('{"asset_id": 1}', '{"ids": []}', "[]", '{"asset_id": '):
        answer = await client.post(
            "/v1/library", content=wrong, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), answer.text


async def test_null_of_a_body_leaves_what_the_address_says(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client()
    asset = (await client.post("/v1/assets/upload", content=demo_audio)).json()["asset_id"]
    answer = await client.post(
        "/v1/library?title=Mine&tags=a", json={"asset_id": asset, "title": None, "tags": None}
    )
    track = answer.json()["track"]
    assert (track["title"], track["tags"]) == ("Mine", ["a"])
