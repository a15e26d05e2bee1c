"""Which song of a media server is which track: by path, MusicBrainz id and names."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serve_app.library.library import Library
from serve_app.library.measures import measures_of
from serve_app.library.query import TrackQuery
from serve_app.library.rows import item_artist_term
from serve_app.library.track import OPERATOR, LibraryTrack, Place, ServerItem, TrackFile
from serve_app.providers.subsonic import Song
from serve_app.services.media_servers import Matcher, link, without_analysis
from serve_app.services.simulation.features import DURATION_S
from tests.library.library_setting import adding, heard, track

MBID = "5b11f4ce-a62d-471e-81fc-a69a8278c7da"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    yield library
    library.close()


def at(location: str, title: str = "A Forest", **who: object) -> LibraryTrack:
    return replace(track(title, **who), files=(TrackFile(Place.PATH, location),))


def song(item_id: str = "1", **said: object) -> Song:
    return Song.model_validate({"id": item_id, **said})


@pytest.mark.parametrize(
    ("path", "is_found"),
    [
        ("The Cure/Seventeen Seconds/07 A Forest.flac", True),
        ("/data/music/The Cure/Seventeen Seconds/07 A Forest.flac", True),
        ("C:\\Music\\Seventeen Seconds\\07 A Forest.flac", True),
        ("07 A Forest.flac", True),
        ("Greatest Hits/07 A Forest.flac", False),
        ("Seventeen Seconds/07 a forest.flac", False),
        ("", False),
    ],
)
def test_a_path_is_the_file_and_its_folder(path: str, is_found: bool) -> None:
    one = at("/mnt/music/The Cure/Seventeen Seconds/07 A Forest.flac")
    found = Matcher([one]).find(song(path=path))
    assert found == ((one, "path") if is_found else (None, "unknown"))


def test_accents_may_be_written_in_two_ways() -> None:
    one = at("/m/Björk/Vespertine/01 Hidden Place.flac")
    path = "Bjo\u0308rk/Vespertine/01 Hidden Place.flac"
    assert Matcher([one]).find(song(path=path))[1] == "path"
    other = at("/m/x/Bjo\u0308rk/a.flac")
    assert Matcher([other]).find(song(path="Björk/a.flac"))[1] == "path"


def test_the_path_that_agrees_most_is_meant() -> None:
    ours, theirs = at("/m/A/Live/01.flac"), at("/m/B/Live/01.flac")
    assert Matcher([ours, theirs]).find(song(path="B/Live/01.flac")) == (theirs, "path")
    assert Matcher([ours, theirs]).find(song(path="Live/01.flac")) == (None, "ambiguous")


def test_what_the_path_does_not_say_the_mbid_and_the_names_do() -> None:
    by_id, by_name = at("/m/1.flac", mbid=MBID), at("/m/2.flac", "Play for Today")
    matcher = Matcher([by_id, by_name])
    assert matcher.find(song(path="made/up.flac", mbid=MBID)) == (by_id, "mbid")
    named = song(artist="the cure", title="Play For Today")
    assert matcher.find(named) == (by_name, "name")
    assert matcher.find(song(artist="The Cure", title="M")) == (None, "unknown")


def test_a_song_of_another_length_is_another() -> None:
    one = at("/m/Live/01.flac", duration_s=354.6)
    assert Matcher([one]).find(song(path="Live/01.flac", duration=356))[1] == "path"
    assert Matcher([one]).find(song(path="Live/01.flac", duration=360))[1] == "unknown"


def test_two_tracks_of_one_name_are_not_guessed() -> None:
    found = Matcher([at("/m/1.flac"), at("/m/2.flac")]).find(
        song(artist="The Cure", title="A Forest")
    )
    assert found == (None, "ambiguous")


def test_items_are_noted_and_forgotten_by_server(library: Library) -> None:
    one, other = at("/m/Live/01.flac"), at("/m/Live/02.flac", "M")
    library.write([adding(one), adding(other)])
    elsewhere = song("9", path="Other/03.flac")
    first = song("a", path="Live/01.flac", artistId=7)
    songs = [first, song("b", path="Live/02.flac"), elsewhere]
    assert link(library, "home", songs) == {"path": 2, "unknown": 1}
    link(library, "über", [song("a", path="Live/02.flac")])
    assert items(library, one) == [ServerItem("home", "a", "7")]
    assert library.of_term(item_artist_term("7"), OPERATOR) == [library.get(one.track_id)]
    assert items(library, other) == [ServerItem("home", "b"), ServerItem("über", "a")]
    assert sorted(library.servers()) == ["home", "über"]
    of_work = library.page(TrackQuery(server="über"), [OPERATOR], 10).items
    assert [found.track_id for found in of_work] == [other.track_id]

    link(library, "home", [song("c", path="Live/02.flac"), song("d", path="Live/02.flac")])
    assert items(library, one) == []
    assert items(library, other) == [
        *(ServerItem("über", "a"), ServerItem("home", "c"), ServerItem("home", "d"))
    ]


def test_the_length_that_was_heard_counts_without_the_analysis(library: Library) -> None:
    one = at("/m/Live/01.flac")
    library.write([adding(one, heard("it"))])
    known = library.get(one.track_id)
    assert known is not None
    slim = without_analysis(known)
    assert (slim.analysis, measures_of(slim).duration_s) == (None, DURATION_S)
    assert link(library, "home", [song(path="Live/01.flac", duration=DURATION_S + 9)])["unknown"]
    assert link(library, "home", [song(path="Live/01.flac", duration=DURATION_S)])["path"]
    kept = library.get(one.track_id)
    assert kept is not None
    assert kept.analysis == known.analysis


def test_what_is_as_it_was_is_not_written_again(library: Library) -> None:
    one = at("/m/Live/01.flac")
    library.write([adding(one)])
    link(library, "home", [song(path="Live/01.flac")])
    before = library.get(one.track_id)
    link(library, "home", [song(path="Live/01.flac")])
    assert library.get(one.track_id) == before


def items(library: Library, one: LibraryTrack) -> list[ServerItem]:
    found = library.get(one.track_id)
    assert found is not None
    return list(found.items)
