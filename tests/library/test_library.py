"""The library: what is written is there for its owners, after crashes and with other writers."""

import asyncio
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, get_args

import lance
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from pipelines.analysis.features import from_json, to_json
from serve_app.domain.errors import BadRequestError, ServiceUnavailableError
from serve_app.domain.track_ids import parse_track_id
from serve_app.library.edit import Edit, Entry, removed, where_there
from serve_app.library.library import Library
from serve_app.library.measures import measures_of
from serve_app.library.query import Sort, TrackQuery
from serve_app.library.rows import audio_term, content_term, location_term
from serve_app.library.spelling import normalise
from serve_app.library.track import OPERATOR, LibraryTrack, Place, TrackFile, pack, unpack
from serve_app.library.view import View
from serve_app.library.writer import LibraryWriter
from tests.library.library_setting import MODEL_SET, adding, heard, track

REPOSITORY = Path(__file__).parents[2]
EVERYBODY = (OPERATOR,)
MBID = "4f0a8b3c-1d2e-4f5a-8b6c-7d8e9f0a1b2c"
ISRC = "QZTST2100001"

Opened = Callable[..., Library]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A function that opens libraries, by default the test's own; they are closed afterwards."""
    libraries: list[Library] = []

    def open_library(url: str = "", view: str = "view") -> Library:
        libraries.append(Library(url or (tmp_path / "shared").as_uri(), tmp_path / view))
        return libraries[-1]

    yield open_library
    for library in libraries:
        library.close()


def titles(tracks: list[LibraryTrack]) -> list[str]:
    return [one.identity.title for one in tracks]


def test_a_record_is_read_as_it_was_written() -> None:
    files = (
        TrackFile(Place.PATH, "/music/a forest.mp3", "c" * 64, "a" * 64, 5_000_000, 17),
        TrackFile(Place.ASSET, "afa_0", missing_since=datetime(2026, 5, 1, tzinfo=UTC)),
    )
    stored = replace(
        track(isrc=ISRC, genres=("new wave",), beats=(0.5, 1.0)),
        sources={"isrc": "tags"},
        files=files,
        tags=("night",),
        fingerprint="AQAB",
        asked="musicbrainz",
        added_at=datetime(2026, 5, 1, 12, tzinfo=UTC),
        revision=3,
    )
    assert unpack(pack(stored)) == stored


def test_a_track_is_found_by_everything_that_names_it(opened: Opened) -> None:
    library = opened()
    one = replace(
        track(isrc=ISRC, mbid=MBID, spotify_id="4uLU6hMCjMI75M1A2tKUQC"),
        files=(
            TrackFile(Place.PATH, "/music/a.mp3", "c" * 64, "a" * 64),
            TrackFile(Place.PATH, "/music/a.flac", "d" * 64, "b" * 64),
        ),
    )
    library.write([adding(one), adding(track("Lullaby"))])
    for text in (ISRC, MBID, "spotify:track:4uLU6hMCjMI75M1A2tKUQC"):
        (hit,) = library.by_id(parse_track_id(text), EVERYBODY)
        assert (hit.track_id, hit.identity) == (one.track_id, one.identity)
    assert library.by_id(parse_track_id(one.track_id), EVERYBODY)[0].identity == one.identity
    for term in (location_term("/music/a.flac"), content_term("d" * 64), audio_term("a" * 64)):
        assert [found.track_id for found in library.of_term(term, OPERATOR)] == [one.track_id]
    for artist, title in (
        ("the cure", "A forest"),
        ("Cure", "A Forrest"),
        ("The Curre", "A Forest"),
    ):
        assert [hit.track_id for hit in library.named(artist, title, EVERYBODY)] == [one.track_id]
    assert library.named("The Cure", "A Forest (live)", EVERYBODY) == []


def test_every_recording_that_a_file_was_is_found_at_its_place(opened: Opened) -> None:
    library, bounce = opened(), "/music/mix.wav"
    file = TrackFile(Place.PATH, bounce)
    made = [replace(track(f"Take {n}"), files=(file,)) for n in range(20)]
    library.write([adding(one) for one in made])
    found = library.of_term(location_term(bounce), OPERATOR)
    assert {one.track_id for one in found} == {one.track_id for one in made}
    assert library.of_term(location_term(bounce), OPERATOR, 5) == found[:5]


def test_the_files_of_a_folder_are_found_by_how_they_begin(opened: Opened) -> None:
    library = opened()
    where = ["/music/a.mp3", "/music/a.mp3.flac", "/music/é/b.mp3", "/music2/a.mp3"]
    for location in where:
        file = TrackFile(Place.PATH, location)
        library.write([adding(replace(track(location), files=(file,)))])
    assert library.locations("/music") == sorted(where)
    assert library.locations("/music/") == sorted(where[:3])
    assert library.locations(where[0]) == where[:2]
    assert library.locations("/other") == []


def test_an_account_s_tracks_are_its_own(opened: Opened) -> None:
    library = opened()
    mine, everybody_s = track(isrc=ISRC, owner="acct_1"), track("Lullaby")
    library.write([adding(mine), adding(everybody_s)])
    code = parse_track_id(ISRC)
    for owner, expected in (("acct_1", 1), ("acct_2", 0)):
        owners = (owner, OPERATOR)
        assert len(library.by_id(code, owners)) == expected
        assert len(library.by_id(parse_track_id(mine.track_id), owners)) == expected
        assert len(library.named("The Cure", "A Forest", owners)) == expected
        assert len(library.page(TrackQuery(), owners, 10).items) == expected + 1
        assert library.count(owners) == expected + 1


def test_a_change_goes_by_what_the_track_is_then(opened: Opened) -> None:
    library = opened()
    one = track(isrc=ISRC)
    (first,) = library.write([adding(one)])
    (second,) = library.write(
        [Edit(one.track_id, where_there(lambda known: replace(known, tags=("night",))))]
    )
    assert first is not None
    assert second is not None
    assert (first.revision, second.revision) == (1, 2)
    assert second.added_at == first.added_at
    assert library.get(one.track_id) == second
    assert titles(library.page(TrackQuery(tags=["Night"]), EVERYBODY, 10).items) == ["A Forest"]


def test_a_removed_track_is_gone_and_stays_so(opened: Opened) -> None:
    library = opened()
    one = track(isrc=ISRC)
    library.write([adding(one, heard("one"))])
    model = library.models()[0]
    assert library.write([Edit(one.track_id, removed)]) == [None]
    assert library.get(one.track_id) is None
    assert library.by_id(parse_track_id(ISRC), EVERYBODY) == []
    assert library.count(EVERYBODY) == 0
    assert library.whole(one.track_id) is None
    assert library.vectors(model).get([one.track_id]) == {}
    late = Edit(one.track_id, where_there(lambda known: replace(known, tags=("late",))))
    assert library.write([late]) == [None]
    assert opened(view="another").count(EVERYBODY) == 0


def test_what_was_heard_is_kept_whole(opened: Opened) -> None:
    library = opened()
    one, what = track(), heard("one")
    library.write([adding(one, what)])
    stored = library.get(one.track_id)
    assert stored is not None
    assert stored.analysis is not None
    assert stored.analysis.made_by == MODEL_SET
    assert stored.analysis.features == from_json(to_json(what.features.outline()))
    whole = library.whole(one.track_id)
    assert whole is not None
    assert whole.segments
    assert whole.embedding == pytest.approx(what.features.embedding, abs=1e-6)


def test_vectors_of_two_models_never_meet(opened: Opened) -> None:
    library = opened()
    one, other = track("One"), track("Other", owner="acct_1")
    edits = [adding(one, heard("one", model="m/1")), adding(other, heard("other", model="m/2"))]
    library.write(edits)
    assert sorted(library.models()) == ["m/1", "m/2"]
    vector = heard("one").features.embedding
    (found,) = library.nearest("m/1", vector, 5, ("acct_1", OPERATOR), TrackQuery())
    assert (found.track_id, round(found.distance, 5)) == (one.track_id, 0.0)
    assert library.nearest("m/2", vector, 5, EVERYBODY, TrackQuery()) == []


@pytest.mark.parametrize("sort", get_args(Sort))
def test_a_sorted_listing_is_whole_whatever_its_pages(opened: Opened, sort: Sort) -> None:
    library = opened()
    tracks = [
        replace(
            track(
                ("Ähre", "aehre", "Zeit", "")[n % 4],
                owner=(OPERATOR, "acct_1", "acct_2")[n % 3],
                tempo=(None, 120.0, 90.5, 120.0)[n % 4],
                key=(9, 4, None)[n % 3],
                mode=(n // 3) % 2 if n % 3 < 2 else None,
            ),
            track_id=f"trk_{n:026d}",
        )
        for n in range(36)
    ]
    library.write([adding(one) for one in tracks])
    owners = ("acct_1", OPERATOR)

    def value(one: LibraryTrack) -> object:
        match sort.strip("-"):
            case "name":
                return f"{normalise(one.identity.artist)} {normalise(one.identity.title)}"
            case "tempo":
                return one.identity.tempo
            case "key":
                camelot = measures_of(one).camelot
                return camelot and (int(camelot[:-1]), camelot[-1])
        return None

    seen = [one for one in tracks if one.owner in owners]
    by_id = sorted(seen, key=lambda one: one.track_id, reverse=sort.startswith("-"))
    having = [one for one in by_id if value(one) is not None]
    having.sort(key=value, reverse=sort.startswith("-"))  # type: ignore[arg-type]  # all the same
    expected = [*having, *(one for one in by_id if value(one) is None)]
    for size in (1, 5, 24, 50):
        found: list[str] = []
        cursor: str | None = None
        while cursor is not None or not found:
            page = library.page(TrackQuery(sort=sort), owners, size, cursor)
            found += [one.track_id for one in page.items]
            cursor = page.next_cursor
        assert found == [one.track_id for one in expected]


def test_a_listing_filters_and_pages(opened: Opened) -> None:
    library = opened()
    tracks = [
        replace(
            track(f"Song {n}", tempo=100.0 + n, key=9, mode=0, year=1980 + n, album="Wild Mood"),
            track_id=f"trk_{n:026d}",
            tags=("even",) if n % 2 == 0 else (),
        )
        for n in range(10)
    ]
    library.write([adding(one) for one in tracks])

    def listed(**query: object) -> list[str]:
        return titles(library.page(TrackQuery(**query), EVERYBODY, 100).items)  # type: ignore[arg-type]

    assert listed(tempo_min=103, tempo_max=105) == ["Song 5", "Song 4", "Song 3"]
    assert listed(year_max=1981) == ["Song 1", "Song 0"]
    assert listed(keys=["8A"], tags=["EVEN"]) == [f"Song {n}" for n in (8, 6, 4, 2, 0)]
    assert listed(keys=["8B"]) == []
    assert listed(text="wild mo") == [f"Song {n}" for n in range(9, -1, -1)]
    assert listed(text='"; DROP TABLE track') == []
    assert listed(artist="cure", title="song 3") == ["Song 3"]
    assert listed(text="wild", title="wild") == []
    assert listed(artist="cu") == []
    seen: list[str] = []
    cursor = None
    for _ in range(4):
        page = library.page(TrackQuery(), EVERYBODY, 3, cursor)
        seen += titles(page.items)
        cursor = page.next_cursor
    assert seen == [f"Song {n}" for n in range(9, -1, -1)]
    assert cursor is None


def test_a_view_is_made_anew_from_what_is_shared(opened: Opened) -> None:
    library = opened()
    tracks = [track(f"Song {n}") for n in range(3)]
    for one in tracks:
        library.write([adding(one)])
    library.write([Edit(tracks[1].track_id, removed)])
    fresh = opened(view="another")
    fresh.follow()
    assert sorted(titles(fresh.page(TrackQuery(), EVERYBODY, 10).items)) == ["Song 0", "Song 2"]


def test_a_view_that_nobody_has_any_more_closes_its_connections(tmp_path: Path) -> None:
    view = View(tmp_path / "view")
    connection = view._connection()
    del view
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


def test_a_view_that_cannot_be_opened_is_told_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{tmp_path}: .*writable"):
        View(tmp_path)
    damaged = tmp_path / "view"
    damaged.write_text("of another kind")
    with pytest.raises(OSError, match=f"{damaged}: .* remove it: the library's view is made again"):
        View(damaged)


def test_others_write_while_a_view_is_filled_and_what_is_filled_stays(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = opened()
    library.write([adding(track(f"Song {n}")) for n in range(6)])
    (fragment,) = library._tracks.latest().get_fragments()
    rows = fragment.to_table().to_pylist()
    monkeypatch.setattr("serve_app.library.view.TOGETHER", 2)
    monkeypatch.setattr("serve_app.library.view.BUSY_S", 0.1)
    filling, other = View(tmp_path / "filled"), View(tmp_path / "filled")

    def breaking_off() -> Iterator[dict[str, object]]:
        yield from rows[:4]
        other.take_in(7, rows[5:])
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        filling.take_in(1, breaking_off())
    assert (filling.count(EVERYBODY), filling.lacking([1, 7])) == (5, [1])

    def emptied_meanwhile() -> Iterator[dict[str, object]]:
        yield from rows[:4]
        other.empty()
        yield from rows[4:]

    filling.take_in(1, emptied_meanwhile())
    assert (filling.count(EVERYBODY), filling.lacking([1])) == (2, [1])
    filling.take_in(1, rows)
    assert (filling.count(EVERYBODY), filling.lacking([1])) == (6, [])
    filling.close()
    other.close()


def test_a_new_machine_answers_with_what_others_have_seen(
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened().write([adding(track("A Forest"))])
    fresh = opened(view="of another machine")
    fresh.follow_on()
    assert fresh.named("The Cure", "A Forest", EVERYBODY)
    starting = opened(view="of a third")

    def away() -> None:
        raise ServiceUnavailableError("the store is away")

    monkeypatch.setattr(starting, "follow", away)
    starting.follow_on()
    assert "could not be followed" in caplog.text


def test_a_library_that_cannot_be_made_says_why(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(lance, "write_dataset", full)
    with pytest.raises(OSError, match="No space left"):
        opened()


def test_maintenance_changes_no_answer(opened: Opened) -> None:
    library, other = opened(), opened(view="another")
    tracks = [track(f"Song {n}") for n in range(40)]
    for one in tracks:
        library.write([adding(one, heard(one.track_id))])
    other.follow()
    library.write([Edit(tracks[0].track_id, removed)])
    library.maintain()
    library.write([adding(track("Last"))])
    expected = {"Last", *(f"Song {n}" for n in range(1, 40))}
    for one in (library, other, opened(view="third")):
        one.follow()
        assert set(titles(one.page(TrackQuery(), EVERYBODY, 100).items)) == expected
    vector = heard(tracks[7].track_id).features.embedding
    for one in (library, other):
        near = one.nearest(library.models()[0], vector, 1, EVERYBODY, TrackQuery())
        assert near[0].track_id == tracks[7].track_id


def test_a_library_that_was_set_back_is_seen_as_it_is(opened: Opened, tmp_path: Path) -> None:
    library = opened()
    library.write([adding(track("Kept"))])
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "shared", saved)
    library.write([adding(track("Lost"))])
    shutil.rmtree(tmp_path / "shared")
    saved.rename(tmp_path / "shared")
    again = opened()
    again.follow()
    assert titles(again.page(TrackQuery(), EVERYBODY, 10).items) == ["Kept"]


async def test_changes_of_one_moment_are_one_commit(opened: Opened) -> None:
    library = opened()
    writer = LibraryWriter(library)
    one = track()
    await writer.write(adding(one))

    def tagging(n: int) -> Edit:
        return Edit(
            one.track_id, where_there(lambda known: replace(known, tags=(*known.tags, str(n))))
        )

    tracks = await asyncio.gather(*(writer.write(tagging(n)) for n in range(50)))
    last = tracks[-1]
    assert last is not None
    assert last.tags == tuple(str(n) for n in range(50))
    assert last.revision <= 4


async def test_what_several_enter_at_once_is_one_track(opened: Opened) -> None:
    libraries = [opened(), opened(view="view")]  # as in two processes of one machine
    writers = [LibraryWriter(library) for library in libraries]

    def entry(n: int) -> Entry:
        library, new = libraries[n % 2], track(isrc=ISRC)

        def edit() -> Edit:
            known = library.of_term(f"isrc:{ISRC}", OPERATOR)
            if not known:
                return adding(replace(new, tags=(str(n),)))
            return Edit(
                known[0].track_id,
                where_there(lambda there: replace(there, tags=(*there.tags, str(n)))),
            )

        return Entry(OPERATOR, [f"isrc:{ISRC}"], edit)

    answers = await asyncio.gather(*(writers[n % 2].write(entry(n)) for n in range(20)))
    assert len({answer.track_id for answer in answers if answer is not None}) == 1
    (one,) = libraries[0].all(EVERYBODY)
    assert sorted(one.tags, key=int) == [str(n) for n in range(20)]


async def test_entries_that_have_nothing_in_common_are_one_commit(opened: Opened) -> None:
    library = opened()
    writer = LibraryWriter(library)
    await writer.write(adding(track("First")))
    before = library.version

    def entry(n: int, owner: str) -> Entry:
        return Entry(owner, [f"isrc:{n}"], lambda: adding(track(f"Song {n}", owner=owner)))

    await asyncio.gather(
        *(writer.write(entry(n, "acct_1")) for n in range(20)),
        *(writer.write(entry(n, "acct_2")) for n in range(20)),
    )
    assert library.count(["acct_1"]) == library.count(["acct_2"]) == 20
    assert library.version - before <= 2


async def test_an_entry_sees_what_was_removed_just_before(opened: Opened) -> None:
    library = opened()
    writer = LibraryWriter(library)
    old = track(isrc=ISRC)
    await writer.write(adding(old))

    def edit() -> Edit:
        known = library.of_term(f"isrc:{ISRC}", OPERATOR)
        if known:
            return Edit(known[0].track_id, where_there(lambda there: there))
        return adding(track(isrc=ISRC))

    gone, new = await asyncio.gather(
        writer.write(Edit(old.track_id, removed)),
        writer.write(Entry(OPERATOR, [f"isrc:{ISRC}"], edit)),
    )
    assert gone is None
    assert new is not None


async def test_who_waits_hears_of_a_failure(opened: Opened) -> None:
    writer = LibraryWriter(opened())

    def broken(_known: LibraryTrack | None) -> LibraryTrack | None:
        raise RuntimeError("broken change")

    with pytest.raises(RuntimeError, match="broken change"):
        await writer.write(Edit("trk_x", broken))
    one = track()
    assert await writer.write(adding(one)) is not None


def test_a_full_disk_under_a_view_is_told_and_passes(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    library = opened()
    library.write([adding(track())])
    view = library._view._connection()
    (n_pages,) = view.execute("PRAGMA page_count").fetchone()
    view.execute(f"PRAGMA max_page_count = {n_pages}")
    many = [track(f"Song {n}") for n in range(300)]
    with pytest.raises(ServiceUnavailableError, match="try again") as told:
        library.write([adding(one) for one in many])
    assert "full" in str(told.value.__cause__)
    assert caplog.messages[0].endswith("database or disk is full")
    assert not any(one.exc_info for one in caplog.records)
    assert titles(library.page(TrackQuery(), EVERYBODY, 10).items) == ["A Forest"]
    view.execute("PRAGMA max_page_count = 1000000")
    library.write([adding(track("Last"))])
    assert library.count(EVERYBODY) == 302


def start(url: str, track_id: str, n: int, view: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.library.library_setting", url, track_id, str(n), view]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )


def ended(writer: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    written, _ = writer.communicate(timeout=240)
    return writer.returncode, written.split()


def test_two_processes_lose_no_change_of_each_other(opened: Opened, tmp_path: Path) -> None:
    library = opened()
    one = track()
    library.write([adding(one)])
    url = (tmp_path / "shared").as_uri()
    writers = [start(url, one.track_id, 20, tmp_path / f"view{n}") for n in range(2)]
    assert [ended(writer)[0] for writer in writers] == [0, 0]
    library.follow()
    changed = library.get(one.track_id)
    assert changed is not None
    assert len(set(changed.tags)) == 40
    assert changed.revision == 41


def test_what_was_acknowledged_outlives_kill_9(opened: Opened, tmp_path: Path) -> None:
    url = (tmp_path / "shared").as_uri()
    acknowledged: list[str] = []
    for _ in range(3):
        writer = start(url, "-", 1000, tmp_path / "view")
        assert writer.stdout is not None
        acknowledged += [writer.stdout.readline().strip() for _ in range(10)]
        writer.send_signal(signal.SIGKILL)
        with writer:
            acknowledged += [line.strip() for line in writer.stdout if line.endswith("\n")]
    library = opened()
    library.follow()
    there = library.page(TrackQuery(), EVERYBODY, 4000).items
    assert set(acknowledged) <= {one.track_id for one in there}
    assert len(there) <= len(acknowledged) + 3
    model = library.models()[0]
    for one in there:
        assert one.analysis is not None
        assert library.whole(one.track_id) is not None
    vectors = library.vectors(model).get([one.track_id for one in there])
    assert len(vectors) == len(there)
    assert np.allclose(np.linalg.norm(list(vectors.values()), axis=1), 1.0, atol=1e-3)
    library.write([adding(track("Next"))])
    assert library.named("The Cure", "Next", EVERYBODY)


def write_one_at_a_time(server: ThreadedMotoServer) -> None:
    """Make it check for an object and write it in one step, as S3 does."""
    assert server._server is not None
    answer, turn = server._server.app, Lock()

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with turn if environ["REQUEST_METHOD"] == "PUT" else nullcontext():
            return list(answer(environ, start_response))

    server._server.app = app


@pytest.fixture
def store() -> Iterator[ThreadedMotoServer]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    write_one_at_a_time(server)
    yield server
    server.stop()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: ThreadedMotoServer) -> str:
    """A place for one test in an S3 bucket, which all servers of a process share."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    host, port = store.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    made = urllib.request.Request(f"{endpoint}/library", method="PUT")  # noqa: S310
    urllib.request.urlopen(made).close()  # noqa: S310
    return f"s3://library/{tmp_path.name}?endpoint={endpoint}&region=us-east-1"


def test_a_store_that_is_away_is_told_and_what_was_seen_is_answered(
    opened: Opened, bucket: str, store: ThreadedMotoServer, caplog: pytest.LogCaptureFixture
) -> None:
    node = opened(bucket)
    one = track("Seen")
    node.write([adding(one, heard("seen"))])
    store.stop()
    for ask in (lambda: node.whole(one.track_id), lambda: node.write([adding(track("New"))])):
        with pytest.raises(ServiceUnavailableError, match="store of the library"):
            ask()
    assert node.named("The Cure", "Seen", EVERYBODY)
    assert "the store of the library: " in caplog.text
    assert "Traceback" not in caplog.text


def test_three_nodes_read_one_library_on_s3(opened: Opened, bucket: str, tmp_path: Path) -> None:
    nodes = [opened(bucket, f"node{n}") for n in range(3)]
    writer = start(bucket, "-", 5, tmp_path / "writer")
    status, written = ended(writer)
    expected = sorted(written)
    assert (status, len(expected)) == (0, 5)
    before = time.monotonic()
    for node in nodes:
        node.follow()
        items = node.page(TrackQuery(), EVERYBODY, 10).items
        assert sorted(one.track_id for one in items) == expected
        assert node.whole(expected[0]) is not None
    assert time.monotonic() - before < 120
    nodes[0].write([Edit(expected[0], removed)])
    nodes[2].follow()
    assert nodes[2].get(expected[0]) is None


def test_two_nodes_lose_no_change_of_each_other_on_s3(
    opened: Opened, bucket: str, tmp_path: Path
) -> None:
    node = opened(bucket)
    one = track()
    node.write([adding(one)])
    writers = [start(bucket, one.track_id, 5, tmp_path / f"view{n}") for n in range(2)]
    assert [ended(writer)[0] for writer in writers] == [0, 0]
    node.follow()
    changed = node.get(one.track_id)
    assert changed is not None
    assert len(set(changed.tags)) == 10


@pytest.mark.parametrize("name", ["tempo", "year", "energy"])
def test_bounds_the_wrong_way_round_are_refused(name: str) -> None:
    TrackQuery(**{f"{name}_min": 90, f"{name}_max": 90})
    with pytest.raises(BadRequestError, match=f"{name}_min is above {name}_max"):
        TrackQuery(**{f"{name}_min": 91, f"{name}_max": 90})
