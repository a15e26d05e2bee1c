"""Ids that are added in the background, from stand-ins of the services on loopback."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from serve_app.domain.identity import TrackIdentity
from serve_app.library.edit import Edit, added
from serve_app.library.library import Library
from serve_app.library.track import LibraryTrack, Place, TrackFile, new_track_id
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.identities.memo import Memo
from serve_app.providers.identities.registry import build_providers
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.recognisers.acoustid import AcoustId
from serve_app.providers.web.http_client import ProviderClient
from serve_app.services.identify.completion import Completion
from tests.providers.identities.test_identity_providers import (
    Unlimited,
    clients_of,
    no_sleep,
    stub_settings,
)
from tests.providers.identities.test_resolver import ALL_IDS, Memory
from tests.providers.recognisers import identify_stub
from tests.providers.recognisers.identify_stub import IdentifyStub, running_identify_stub
from tests.providers.stub_server import ARTIST, ISRC, TITLE, Stub, running_stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as stub:
        yield stub


@pytest.fixture
def remote() -> Iterator[IdentifyStub]:
    with running_identify_stub() as stub:
        yield stub


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    yield library
    library.close()


Making = Callable[..., Completion]


@pytest.fixture
async def completion(library: Library, stub: Stub) -> AsyncIterator[Making]:
    clients: list[ProviderClient] = []

    def make(remote: IdentifyStub | None = None) -> Completion:
        providers = build_providers(stub_settings(stub), Unlimited())
        clients.extend(clients_of(providers))
        for client in clients:
            client._sleep = no_sleep
        acoustid = None
        if remote is not None:
            url = f"{remote.url}/acoustid/v2"
            acoustid = AcoustId(url, identify_stub.KEY, Unlimited())
            clients.append(acoustid.client)
        resolver = Resolver(Catalog.open(Path("none")), providers.identities, Memo(Memory()))
        names = ["musicbrainz", *(["acoustid"] if remote else [])]
        return Completion(library, resolver, acoustid, names)

    yield make
    for client in clients:
        await client.close()


def put(library: Library, identity: TrackIdentity, owner: str = "", **more: object) -> str:
    track = LibraryTrack(new_track_id(), identity, owner, **more)  # type: ignore[arg-type]
    library.write([Edit(track.track_id, added(track))])
    return track.track_id


async def test_one_identifier_brings_the_others_and_names_stay(
    library: Library, stub: Stub, completion: Making
) -> None:
    said = TrackIdentity(artist="TSQ", title="My name for it", isrc=ISRC)
    one = put(library, said, sources={"title": "tags", "artist": "tags", "isrc": "tags"})
    own = put(library, TrackIdentity(artist=ARTIST, title=TITLE), owner="acct")
    going = completion()
    assert await going.go_on() == 1
    track = library.get(one)
    assert track is not None
    assert {name: getattr(track.identity, name) for name in ALL_IDS} == ALL_IDS
    assert (track.identity.artist, track.identity.title) == ("TSQ", "My name for it")
    assert track.sources["isrc"] == "tags"
    assert track.sources["mbid"] != "tags"
    assert track.identity.source == "library"
    assert library.get(own).asked == ""  # type: ignore[union-attr]  # it is there
    n_calls = len(stub.requests)
    assert await going.go_on() == 0
    assert await completion().go_on() == 0, "nor after a restart"
    assert len(stub.requests) == n_calls


async def test_a_file_s_name_gives_way_to_what_its_sound_says(
    library: Library, remote: IdentifyStub, completion: Making
) -> None:
    guessed = {"title": "file name", "artist": "file name"}
    sounds = {"fingerprint": "AQAAfingerprint", "files": (TrackFile(Place.PATH, "/m/01.ogg"),)}
    one = put(library, TrackIdentity(title="01", duration_s=213.0), sources=guessed, **sounds)
    other = TrackIdentity(artist="Somebody", title="Something else", duration_s=213.0)
    two = put(library, other, sources={"title": "tags", "artist": "tags"}, **sounds)
    assert await completion(remote).go_on() == 2
    track, stays = library.get(one), library.get(two)
    assert track is not None
    assert stays is not None
    assert (track.identity.title, track.identity.mbid) == (identify_stub.TITLE, identify_stub.MBID)
    assert (track.sources["title"], track.sources["mbid"]) == ("acoustid", "acoustid")
    assert (stays.identity.mbid, stays.asked) == (None, "musicbrainz, acoustid")


async def test_a_track_is_asked_about_again_until_every_service_answers(
    library: Library, stub: Stub, completion: Making
) -> None:
    one = put(library, TrackIdentity(artist=ARTIST, title=TITLE))
    stub.faults.update(dict.fromkeys(("musicbrainz", "deezer", "spotify"), "down"))
    assert await completion().go_on() == 1
    track = library.get(one)
    assert track is not None
    assert (track.identity.mbid, track.identity.isrc) == (ALL_IDS["mbid"], None)
    stub.faults.clear()
    assert await completion().go_on() == 1
    track = library.get(one)
    assert track is not None
    assert {name: getattr(track.identity, name) for name in ALL_IDS} == ALL_IDS
    assert await completion().go_on() == 0


async def test_an_unsure_answer_names_no_track(
    library: Library, remote: IdentifyStub, completion: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.services.identify.completion.SURE", 94)  # the stub says 93
    guessed = {"title": "file name"}
    unnamed = TrackIdentity(title="01", duration_s=213.0)
    one = put(library, unnamed, sources=guessed, fingerprint="AQAAfingerprint")
    assert await completion(remote).go_on() == 1
    track = library.get(one)
    assert track is not None
    assert (track.identity.title, track.identity.mbid) == ("01", None)
    assert track.asked == "musicbrainz, acoustid"


async def test_who_cannot_answer_is_asked_again_later(
    library: Library, stub: Stub, completion: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = put(library, TrackIdentity(isrc=ISRC))
    stub.faults.update(dict.fromkeys(("musicbrainz", "listenbrainz", "deezer", "spotify"), "503"))
    stub.faults.update(dict.fromkeys(("itunes", "youtube"), "503"))
    going = completion()
    assert await going.go_on() == 1
    track = library.get(one)
    assert track is not None
    assert (track.asked, track.identity.mbid) == ("", None)
    assert await going.go_on() == 0, "not in the same pass"
    monkeypatch.setattr("serve_app.services.identify.completion.AGAIN_S", 0.0)
    assert await going.go_on() == 0, "the next pass begins"
    assert await going.go_on() == 1
    stub.faults.clear()
    assert await completion().go_on() == 1
    completed = library.get(one)
    assert completed is not None
    assert completed.identity.mbid == ALL_IDS["mbid"]
