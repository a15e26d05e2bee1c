"""Released Spotify clients, unmodified, against the mount: only their base URL is changed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import spotipy
import tekore

from serve_app.composition.options import StoreOptions
from serve_app.providers.catalog.search import Catalog
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import Folder
from serve_app.services.scan.report import Outcome
from tests.api.live import LiveApplication, serve_application
from tests.library.library_setting import adding, track
from tests.services.scan.test_scan import EarEngine, Setting, write

pytestmark = pytest.mark.redis

DEMO = "0AfaDemoTrack000000001"
SILENT = "1StUbTrAcK0000000000Aa"
UNKNOWN = "7unknownTrack000000000"
UNIT = ("danceability", "energy", "speechiness", "acousticness", "instrumentalness", "liveness")


@pytest.fixture(scope="module")
def live(api_stores: StoreOptions, demo_catalog: Path) -> Iterator[LiveApplication]:
    with serve_application(api_stores, demo_catalog) as live:
        yield live


@pytest.fixture
def spotipy_client(live: LiveApplication) -> Iterator[spotipy.Spotify]:
    client = spotipy.Spotify(auth=live.key("pro"), retries=0)
    client.prefix = f"{live.url}/spotify/v1/"
    yield client
    client._session.close()


@pytest.fixture
def tekore_client(
    live: LiveApplication, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tekore.Spotify]:
    monkeypatch.setattr("tekore._client.base.prefix", f"{live.url}/spotify/v1/")
    client = tekore.Spotify(live.key("pro"))
    yield client
    client.close()


def check_features(body: dict[str, Any]) -> None:
    assert body["id"] == DEMO
    assert body["type"] == "audio_features"
    assert (body["key"], body["mode"], body["tempo"]) == (9, 0, 120.0)
    assert body["duration_ms"] == pytest.approx(31_718, abs=2)
    assert all(0 <= body[name] <= 1 for name in UNIT)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spotipy_reads_features(spotipy_client: spotipy.Spotify) -> None:
    found = spotipy_client.audio_features([DEMO, UNKNOWN, DEMO])
    check_features(found[0])
    assert found[1] is None
    assert found[2] == found[0]
    assert spotipy_client.audio_features(DEMO) == [found[0]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spotipy_reads_the_analysis(spotipy_client: spotipy.Spotify) -> None:
    analysis = spotipy_client.audio_analysis(DEMO)
    assert analysis["track"]["tempo"] == 120.0
    assert [bar["start"] for bar in analysis["bars"][:3]] == [0.0, 2.0, 4.0]
    assert [beat["start"] for beat in analysis["beats"][:3]] == [0.0, 0.5, 1.0]
    assert [tatum["start"] for tatum in analysis["tatums"][:3]] == [0.0, 0.25, 0.5]
    assert analysis["beats"][0]["duration"] == 0.5
    assert len(analysis["segments"][0]["pitches"]) == len(analysis["segments"][0]["timbre"]) == 12


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spotipy_reads_an_own_upload(
    live: LiveApplication, spotipy_client: spotipy.Spotify, demo_audio: bytes
) -> None:
    job = httpx.post(
        f"{live.url}/v1/audio-features/upload?wait=60&include_embedding=true",
        content=demo_audio,
        headers={"Authorization": f"Bearer {live.key('pro')}"},
    ).json()
    bare = job["job_id"].removeprefix("job_")
    unknown, found, track = spotipy_client.audio_features(["0" * 26, bare, DEMO])
    assert (unknown, found["id"], found["tempo"]) == (None, bare, 120.0)
    assert found.keys() == track.keys()
    assert spotipy_client.audio_analysis(bare)["track"]["tempo"] == 120.0
    assert spotipy_client.track(bare)["name"] == job["result"]["title"]
    named = spotipy_client._get("audio-features", ids=job["job_id"])["audio_features"]
    assert named[0]["tempo"] == 120.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scanned_files_are_found_by_what_their_tags_say(
    live: LiveApplication, spotipy_client: spotipy.Spotify, tmp_path: Path
) -> None:
    spotify, mbid = "3scAnnedF11e0000000001", "5f0d3c3e-8a6b-4c8e-9a51-00000000f11e"
    names = {"artist": "Nina Scanned", "title": "On the disk", "isrc": "GBAYE9700777"}
    write(
        tmp_path / "music" / "a.ogg",
        11,
        **names,
        musicbrainz_trackid=mbid,
        spotify_track_id=f"https://open.spotify.com/track/{spotify}",
    )
    naming = Naming(Catalog.open(tmp_path / "catalog"), None)
    scanning = Setting(live.application.library, EarEngine(), naming, tmp_path / "fingerprints")
    report = asyncio.run(scanning.scan(Folder(tmp_path / "music")))
    assert report.counts == {Outcome.ADDED: 1}
    (features,) = spotipy_client.audio_features([spotify])
    assert (features["id"], features["duration_ms"]) == (spotify, 16_000)
    assert spotipy_client.track(spotify)["name"] == "On the disk"
    found = spotipy_client.search(f"isrc:{names['isrc']}", type="track")["tracks"]["items"]
    assert [one["name"] for one in found] == ["On the disk"]
    headers = {"Authorization": f"Bearer {live.key('pro')}"}
    for name in (f"mbid:{mbid}", f"isrc:{names['isrc']}", f"spotify:track:{spotify}"):
        answer = httpx.get(f"{live.url}/v1/audio-features/{name}", headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["tempo"] == pytest.approx(features["tempo"], abs=0.01)
    named = httpx.get(
        f"{live.url}/v1/audio-features",
        params={"artist": "nina scanned", "song": "On The Disk"},
        headers=headers,
    )
    assert named.json()["tempo"] == pytest.approx(features["tempo"], abs=0.01)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spotipy_has_scanned_files_without_any_id(
    live: LiveApplication, spotipy_client: spotipy.Spotify, tmp_path: Path
) -> None:
    write(tmp_path / "music" / "b.ogg", 12, artist="Nameless Quartet", title="Of no platform")
    naming = Naming(Catalog.open(tmp_path / "catalog"), None)
    scanning = Setting(live.application.library, EarEngine(), naming, tmp_path / "fingerprints")
    report = asyncio.run(scanning.scan(Folder(tmp_path / "music")))
    assert report.counts == {Outcome.ADDED: 1}
    (found,) = spotipy_client.search("of no platform", type="track")["tracks"]["items"]
    (features,) = spotipy_client.audio_features([found["id"]])
    assert (features["id"], features["duration_ms"]) == (found["id"], 16_000)
    assert spotipy_client.track(found["id"])["name"] == "Of no platform"
    listed = httpx.get(
        f"{live.url}/v1/library?q=nameless",
        headers={"Authorization": f"Bearer {live.key('pro')}"},
    ).json()["items"]
    assert [one["id"] for one in listed] == [f"trk_{found['id']}"]


def test_spotipy_reads_tracks_and_search(spotipy_client: spotipy.Spotify) -> None:
    track = spotipy_client.track(DEMO)
    assert (track["name"], track["artists"][0]["name"]) == ("Demo in A minor", "The afa Demo Band")
    assert spotipy_client.tracks([DEMO, UNKNOWN])["tracks"][1] is None
    page = spotipy_client.search("isrc:QZAFA2600001", type="track")["tracks"]
    assert [item["id"] for item in page["items"]] == [DEMO]
    assert spotipy_client.search("isrc:QZAFA2699999", type="track")["tracks"]["items"] == []


def test_spotipy_turns_the_pages_of_a_search(spotipy_client: spotipy.Spotify) -> None:
    whole = spotipy_client.search("Ada Loopback", type="track")["tracks"]
    page = spotipy_client.search("Ada Loopback", type="track", limit=2)["tracks"]
    assert (whole["next"], page["total"] > 2) == (None, True)
    first, found = page, page["items"]
    while page["next"]:
        page = spotipy_client.next(page)["tracks"]
        found = found + page["items"]
    assert found == whole["items"]
    assert page["total"] == whole["total"] == len(found)
    while page["previous"]:
        page = spotipy_client.previous(page)["tracks"]
    assert page["items"] == first["items"]


def test_tracks_of_an_artist_fill_a_page_though_many_titles_have_that_word(
    live: LiveApplication, spotipy_client: spotipy.Spotify
) -> None:
    of_artist = [track(f"Wave {n}", artist="Nordic Ocean") for n in range(3)]
    of_others = [track(f"Ocean {n}", artist="Somebody") for n in range(8)]
    for one in (*of_artist, *of_others):
        live.application.library.write([adding(one)])
    page = spotipy_client.search('artist:"ocean"', type="track", limit=2)["tracks"]
    assert [one["artists"][0]["name"] for one in page["items"]] == ["Nordic Ocean"] * 2
    assert len(spotipy_client.next(page)["tracks"]["items"]) == 1
    named = spotipy_client.search("track:wave artist:ocean", type="track")["tracks"]
    assert len(named["items"]) == 3
    assert spotipy_client.search("track:wave artist:somebody", type="track")["tracks"]["total"] == 0


def test_tekore_turns_the_pages_of_a_search(tekore_client: tekore.Spotify) -> None:
    (whole,) = tekore_client.search("Ada Loopback", types=("track",))
    (page,) = tekore_client.search("Ada Loopback", types=("track",), limit=2)
    assert list(tekore_client.all_items(page)) == whole.items


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spotipy_understands_errors(spotipy_client: spotipy.Spotify, live: LiveApplication) -> None:
    with pytest.raises(spotipy.SpotifyException) as missing:
        spotipy_client.audio_analysis(UNKNOWN)
    assert missing.value.http_status == 404
    assert "not in this server's library" in missing.value.msg
    with pytest.raises(spotipy.SpotifyException) as silent:
        spotipy_client.audio_analysis(SILENT)
    assert (silent.value.http_status, "upload it" in silent.value.msg) == (404, True)
    wrong = spotipy.Spotify(auth="afa_live_wrong", retries=0)
    wrong.prefix = f"{live.url}/spotify/v1/"
    with pytest.raises(spotipy.SpotifyException) as refused:
        wrong.track(DEMO)
    assert refused.value.http_status == 401
    wrong._session.close()


def test_spotipy_waits_as_long_as_a_429_says(
    live: LiveApplication, caplog: pytest.LogCaptureFixture
) -> None:
    client = spotipy.Spotify(auth=live.key("free"))
    client.prefix = f"{live.url}/spotify/v1/"
    for _ in range(300):  # 60 at once, and one more for each second that passes
        assert client.track(DEMO)["name"] == "Demo in A minor"
        if "Retry will occur after: 1 s" in caplog.text:
            break
    assert "Retry will occur after: 1 s" in caplog.text
    client._session.close()


@pytest.mark.parametrize("path", ["audio-features", "tracks", "search"])
def test_a_slash_at_the_end_changes_nothing(live: LiveApplication, path: str) -> None:
    params = {"ids": DEMO, "q": "isrc:QZAFA2600001"}
    headers = {"Authorization": f"Bearer {live.key('pro')}"}
    plain, slashed = (
        httpx.get(f"{live.url}/spotify/v1/{path}{end}", params=params, headers=headers)
        for end in ("", "/")
    )
    assert plain.status_code == slashed.status_code == 200
    if path != "search":
        assert plain.json() == slashed.json()


def test_tekore_parses_everything(tekore_client: tekore.Spotify) -> None:
    features = tekore_client.track_audio_features(DEMO)
    assert (features.key, features.mode, features.tempo) == (9, 0, 120.0)
    assert features.duration_ms == pytest.approx(31_718, abs=2)
    assert isinstance(features.time_signature, int)
    several = tekore_client.tracks_audio_features([DEMO, DEMO])
    assert [one.id for one in several] == [DEMO, DEMO]
    analysis = tekore_client.track_audio_analysis(DEMO)
    assert len(analysis.sections) == 1
    assert analysis.track["key"] == 9
    track = tekore_client.track(DEMO)
    assert (track.name, track.external_ids["isrc"]) == ("Demo in A minor", "QZAFA2600001")
    (page,) = tekore_client.search("isrc:QZAFA2600001", types=("track",))
    assert [item.id for item in page.items] == [DEMO]


def test_tekore_understands_errors(tekore_client: tekore.Spotify) -> None:
    with pytest.raises(tekore.NotFound, match="not in this server's library"):
        tekore_client.track_audio_features(UNKNOWN)


def test_tekore_works_asynchronously(
    live: LiveApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tekore._client.base.prefix", f"{live.url}/spotify/v1/")

    async def read() -> Any:
        client = tekore.Spotify(live.key("pro"), asynchronous=True)
        try:
            return await client.track_audio_features(DEMO)
        finally:
            await client.close()

    assert asyncio.run(read()).tempo == 120.0
