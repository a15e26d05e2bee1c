"""Requests exactly as AudioMuse-AI's plugins send them, and what they read from the answers."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from serve_app.library.edit import Edit, where_there
from serve_app.library.track import LibraryTrack, ServerItem
from tests.api.application import Application
from tests.api.test_similar import put, sounding

pytestmark = pytest.mark.redis

HOME, WORK = "navidrome.home:4533", "work"
SEED = "6b1df71d-7e4b-4a36-b6f5-0d4d0a52b7e1"
# The queries that the plugin's Go code sent, without their ids.
NAVIDROME = "eliminate_duplicates=true&item_id={}&n={}&radius_similarity=true"
NAVIDROME_PATH = (
    "count=400&end_song_id={}&max_steps=400&mood_pct=100&path_fix_size=false&start_song_id={}"
)
NAVIDROME_ARTISTS = "artist={}&include_component_matches=true&n=10"


def linked(
    api: Application, title: str, away: float, *items: ServerItem, artist: str = "The Cure"
) -> LibraryTrack:
    """Put a track into the library that media servers know under the ids in ``items``."""
    one = put(api, title, sounding(away), album="Seventeen Seconds", artist=artist)
    api.library.write([Edit(one.track_id, where_there(lambda known: replace(known, items=items)))])
    return one


@pytest.fixture
def home(api: Application) -> Application:
    linked(api, "Seed", 0.1, ServerItem(HOME, SEED))
    linked(api, "Near", 0.2, ServerItem(HOME, "near"), ServerItem(WORK, "7"))
    linked(api, "Not There", 0.25)
    linked(api, "Far", 1.0, ServerItem(HOME, "far"))
    linked(api, "Elsewhere", 0.15, ServerItem(WORK, "8"))
    return api


async def asked(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_navidrome_gets_its_own_ids_nearest_first(home: Application) -> None:
    answer = await home.client("free").get(f"/api/similar_tracks?{NAVIDROME.format(SEED, 50)}")
    near, far = answer.json()
    assert {name: near[name] for name in ("item_id", "title", "author", "album")} == {
        "item_id": "near",
        "title": "Near",
        "author": "The Cure",
        "album": "Seventeen Seconds",
    }
    assert 0 < near["distance"] < far["distance"] < 2
    assert far["item_id"] == "far"
    assert answer.headers["X-Credits-Used"] == "1"
    assert await home.remaining("free") == 499


async def test_lyrion_mixes_several(home: Application) -> None:
    items = [{"id": SEED, "op": "ADD", "type": "song"}, {"id": "far", "op": "SUBTRACT"}]
    answer = await home.client().post("/api/alchemy", json={"items": items, "n": 40})
    assert [one["item_id"] for one in answer.json()["results"]] == ["near"]
    for wrong in (
        [{"id": SEED, "op": "SUBTRACT"}],
        [{"id": SEED, "op": "ADD", "type": "artist"}],
        [],
    ):
        answer = await home.client().post("/api/alchemy", json={"items": wrong})
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("items")


async def test_a_way_leads_over_the_servers_tracks_alone(home: Application) -> None:
    answer = await home.client().get(f"/api/find_path?{NAVIDROME_PATH.format('far', SEED)}")
    body = answer.json()
    assert [one["item_id"] for one in body["path"]] == [SEED, "near", "far"]
    short = await asked(
        home.client(), "/api/find_path", start_song_id=SEED, end_song_id="far", max_steps=3
    )
    assert [one["item_id"] for one in short["path"]] == [SEED, "near", "far"]
    assert body["total_distance"] == pytest.approx(sum(one["distance"] for one in body["path"]))


async def test_tracks_are_found_by_words(home: Application) -> None:
    client = home.client()
    found = await asked(client, "/api/search_tracks", search_query="seven", server=HOME)
    assert [one["item_id"] for one in found] == ["far", "near", SEED]
    page = await asked(client, "/api/search_tracks", artist="Cure", start=1, end=2, server=HOME)
    assert [one["item_id"] for one in page] == ["near"]
    assert await asked(client, "/api/search_tracks") == []
    by_name = await asked(
        client, "/api/similar_tracks", title="seed", artist="the cure", n=1, server=WORK
    )
    assert [one["item_id"] for one in by_name] == ["8"]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("item_id=none", 404, "no such item 'none' is linked"),
        ("item_id=near&server=elsewhere", 404, "the operator links a media server with `afa link`"),
        ("title=Seed&artist=The+Cure", 400, f"server: name one of {HOME}, {WORK}"),
        ("title=Nothing&artist=Nobody&server=work", 404, "no such track"),
        ("title=Seed", 400, "send item_id, or title and artist"),
        ("item_id=near&n=0", 400, "n:"),
    ],
)
async def test_what_cannot_be_answered_says_why(
    home: Application, query: str, status: int, text: str
) -> None:
    answer = await home.client().get(f"/api/similar_tracks?{query}")
    assert (answer.status_code, text in answer.json()["message"]) == (status, True), answer.text
    assert await home.remaining("pro") == 60_000


async def test_one_id_of_two_servers_needs_the_servers_name(home: Application) -> None:
    linked(home, "Twin", 0.3, ServerItem(WORK, "near"))
    client = home.client()
    answer = await client.get("/api/similar_tracks?item_id=near")
    assert answer.json()["message"] == f"server: name one of {HOME}, {WORK}"
    found = await asked(client, "/api/similar_tracks", item_id="near", server=WORK, n=1)
    assert [one["item_id"] for one in found] == ["8"]


async def test_keys_are_asked_for_as_everywhere(home: Application) -> None:
    answer = await home.client(None).get(f"/api/similar_tracks?item_id={SEED}")
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    simulated = await asked(home.client("test"), "/api/similar_tracks", item_id=SEED)
    assert json.dumps(simulated) == "[]"


@pytest.mark.parametrize("artist", ["ar-cure", "the CURE"])
async def test_navidromes_artist_radio_finds_the_artists_around_one(
    api: Application, artist: str
) -> None:
    def song(item_id: str, artist_id: str | None) -> ServerItem:
        return ServerItem(HOME, item_id, artist_id)

    for n, away in enumerate((0.10, 0.14)):
        linked(api, f"Own {n}", away, song(f"own{n}", "ar-cure"))
    linked(api, "Close", 0.2, song("close", "ar-near"), artist="Near Ones")
    linked(api, "Closer", 0.16, song("closer", "ar-near"), artist="Near Ones")
    linked(api, "Apart", 0.9, song("apart", None), artist="Far Ones")
    linked(api, "Not There", 0.12, ServerItem(WORK, "x", "ar-x"), artist="Elsewhere")
    where = {"artist": artist, "n": 10, "server": HOME}
    path = f"/api/similar_artists?{NAVIDROME_ARTISTS.format(artist)}"
    answer = await api.client().get(f"{path}&server={HOME}")
    near, far = answer.json()
    assert (near["artist"], near["artist_id"]) == ("Near Ones", "ar-near")
    assert (far["artist"], far["artist_id"]) == ("Far Ones", None)
    assert 0 < near["divergence"] < far["divergence"]
    (match,) = near["component_matches"]
    assert sorted(one["item_id"] for one in match["artist1_representative_songs"]) == [
        "own0",
        "own1",
    ]
    assert match["artist2_representative_songs"] == [
        {"item_id": "closer", "title": "Closer"},
        {"item_id": "close", "title": "Close"},
    ]
    assert answer.headers["X-Credits-Used"] == "1"
    (only,) = await asked(api.client(), "/api/similar_artists", **where | {"n": 1})
    assert (only["artist_id"], only["component_matches"]) == ("ar-near", [])
    unknown = await api.client().get("/api/similar_artists", params={**where, "artist": "Nobody"})
    assert (unknown.status_code, "'Nobody'" in unknown.json()["message"]) == (404, True)
    assert await api.remaining("pro") == 60_000 - 2
