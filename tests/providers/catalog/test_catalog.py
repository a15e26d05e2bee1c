import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tantivy
from hypothesis import given
from hypothesis import strategies as st

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId, parse_track_id
from serve_app.library.spelling import (
    normalise,
    normalise_artist,
    normalise_title,
    similarity,
)
from serve_app.providers.catalog import build, search
from serve_app.providers.catalog.build import (
    CatalogBusyError,
    CatalogFileError,
    ImportReport,
    build_catalog,
    export_catalog,
    write_parquet,
)
from serve_app.providers.catalog.rows import SCHEMA, AudioPolicy, RowError, parse_row, table_of
from serve_app.providers.catalog.search import Catalog

DEMO = Path("serve_app/data/demo_catalog.parquet")
SPOTIFY = "1StUbTrAcK0000000000Aa"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("catalog")
    report = build_catalog([DEMO], folder)
    assert (report.n_rows, report.n_imported) == (30, 30)
    return Catalog.open(folder)


def titles(catalog: Catalog, artist: str, title: str) -> list[str]:
    return [match.identity.title for match in catalog.find(artist, title)]


@pytest.mark.parametrize(
    "text",
    [
        SPOTIFY,
        "mbid:5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f",
        "QZ-TST-21-00001",
        "apple:1600000001",
        "deezer:990000001",
        "StubVideo0A",
    ],
)
def test_a_track_is_found_by_each_of_its_identifiers(demo: Catalog, text: str) -> None:
    track_id = parse_track_id(text)
    assert isinstance(track_id, TrackId)
    found = demo.by_id(track_id)
    assert found is not None
    assert (found.artist, found.title, found.duration_s) == (
        "The Stub Quartet",
        "Paper Lanterns",
        213.0,
    )


def test_an_unknown_identifier_is_not_found(demo: Catalog) -> None:
    assert demo.by_id(TrackId(Platform.DEEZER, "1")) is None
    assert demo.by_id(TrackId(Platform.APPLE, "990000001")) is None


def test_the_demo_track_is_verified_and_its_audio_is_bundled(demo: Catalog) -> None:
    found = demo.by_id(TrackId(Platform.ISRC, "QZAFA2600001"))
    assert found is not None
    assert (found.tempo, found.key, found.mode, found.is_verified) == (124.0, 9, 0, True)
    assert found.audio_url == f"file://{Path('serve_app/data/demo.mp3').resolve()}"
    assert (len(found.beats), len(found.downbeats)) == (64, 16)
    assert found.beats[1] - found.beats[0] == pytest.approx(60 / 124, abs=1e-3)


def test_the_bundled_audio_is_as_long_and_begins_where_the_catalog_says(demo: Catalog) -> None:
    found = demo.by_id(TrackId(Platform.ISRC, "QZAFA2600001"))
    assert found is not None
    assert found.audio_url is not None
    with av.open(found.audio_url.removeprefix("file://")) as container:
        decoded = [frame.to_ndarray() for frame in container.decode(audio=0)]
    mono = np.abs(np.concatenate(decoded, axis=1)).mean(axis=0)
    assert mono.size / 44_100 == pytest.approx(found.duration_s, abs=0.01)
    assert np.argmax(mono > 0.05) / 44_100 == pytest.approx(found.beats[0], abs=0.005)
    # The kick on each beat is louder than what sounds half a beat later.
    loudness = [mono[int(t * 44_100) :][:4410].mean() for t in found.beats]
    between = [mono[int((t + 30 / 124) * 44_100) :][:4410].mean() for t in found.beats]
    assert np.mean(loudness) > 1.5 * np.mean(between)


@pytest.mark.parametrize(
    ("artist", "title", "expected"),
    [
        ("The Stub Quartet", "Paper Lanterns", "Paper Lanterns"),
        ("stub quartet", "PAPER LANTERNS!", "Paper Lanterns"),
        ("The Stub Quartet ft. A", "Paper Lanterns (feat. X) [2011 Remaster]", "Paper Lanterns"),
        ("The Stub Quartet", "Paper Lanterns - Live", "Paper Lanterns (Live)"),
        ("Bjork Pase", "Smorgasbord", "Smörgåsbord"),
        ("cafe reseau", "LHEURE BLEUE", "L'heure bleue"),
        ("東京ループ", "夜の電車", "夜の電車"),
        ("Cron and the Daemons", "no such job", "No Such Job"),
        ("Stub Quartett", "Paper Lantrens", "Paper Lanterns"),
        ("Claude Debusy", "Clare de lune", "Clair de lune"),
        ("The Null Pointers", "Use after free", "Use After Free"),
        ("Beethoven", "Fur Elise", "Für Elise"),
    ],
)
def test_a_track_is_found_however_it_is_spelt(
    demo: Catalog, artist: str, title: str, expected: str
) -> None:
    assert titles(demo, artist, title) == [expected]


def test_an_exact_search_forgives_case_and_accents_but_no_typing_error(demo: Catalog) -> None:
    found = demo.find_exact("BJORK PASE", "smörgåsbord!")
    assert [match.identity.title for match in found] == ["Smörgåsbord"]
    assert demo.find_exact("Stub Quartett", "Paper Lanterns") == []


@pytest.mark.parametrize(
    ("artist", "title"),
    [
        ("The Stub Quartet", "Paper Lanterns (Acoustic)"),
        ("Another Band", "Paper Lanterns"),
        ("The Stub Quartet", "Paper Planes"),
        ("", "Paper Lanterns"),
        ("The Stub Quartet", "  "),
        ("a" * 5000, "b " * 5000),
        ("\x00", "\x00"),
    ],
)
def test_another_track_is_not_passed_off(demo: Catalog, artist: str, title: str) -> None:
    assert titles(demo, artist, title) == []


def test_exports_give_back_what_was_imported(demo: Catalog, tmp_path: Path) -> None:
    build_catalog([DEMO], tmp_path / "one")
    seen: list[tuple[str, int, int | None]] = []
    n_rows = export_catalog(tmp_path / "one", tmp_path / "out.parquet", lambda *p: seen.append(p))
    assert (n_rows, seen) == (30, [("exporting", 30, 30)])
    before, after = pq.read_table(DEMO), pq.read_table(tmp_path / "out.parquet")
    assert after.schema == before.schema == SCHEMA
    assert after.drop_columns("audio_url") == before.drop_columns("audio_url")
    elsewhere = AudioPolicy(anywhere=True)
    build_catalog([tmp_path / "out.parquet"], tmp_path / "two", audio=elsewhere)
    assert Catalog.open(tmp_path / "two").n_tracks == 30


@pytest.mark.parametrize(
    "address",
    [
        *("../secret.mp3", "/proc/self/environ", "file:///etc/passwd", "sub/../../secret.mp3"),
        *("link.mp3", "http://127.0.0.1/a.mp3", "https://10.0.0.1/", "http://ann:x@example.org/a"),
    ],
)
def test_a_row_may_not_name_what_lies_elsewhere(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "catalog"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.mp3").touch()
    (folder / "link.mp3").symlink_to(tmp_path / "secret.mp3")
    row = FULL_ROW | {"audio_url": address}
    with pytest.raises(RowError, match="audio_url"):
        parse_row(row, folder)
    if not address.startswith("http"):
        assert parse_row(row, folder, AudioPolicy(anywhere=True)).audio_url is not None


def test_a_row_names_audio_below_its_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.mp3").touch()
    parsed = parse_row(FULL_ROW | {"audio_url": "sub/a.mp3"}, tmp_path)
    assert parsed.audio_url == f"file://{tmp_path.resolve()}/sub/a.mp3"


def test_an_import_order_survives_many_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BATCH_ROWS", 7)
    rows = [TrackIdentity(deezer_id=str(n + 1), title=f"t{n}", artist="a") for n in range(50)]
    write_parquet(rows, tmp_path / "in.parquet")
    progress: list[tuple[str, int, int | None]] = []
    build_catalog([tmp_path / "in.parquet"], tmp_path / "c", lambda *p: progress.append(p))
    assert progress == [("importing", min(n, 50), 50) for n in range(7, 57, 7)]
    export_catalog(tmp_path / "c", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet") == pq.read_table(tmp_path / "in.parquet")


def test_rejected_rows_are_counted_by_reason_and_the_good_ones_imported(tmp_path: Path) -> None:
    table = pa.table(
        {
            "artist": ["A", "A", None, "A", "A"],
            "title": ["one", "two", "three", "four", "five"],
            "isrc": ["QZTST2100001", "nonsense", None, "QZ-TST-21-00004", None],
            "year": [2020, 2020, 2020, 99999, 2020],
            "something_else": [1, 2, 3, 4, 5],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    report = build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    assert (report.n_rows, report.n_imported, report.reasons.total()) == (5, 2, 3)
    assert report.reasons == {
        "isrc: is not a valid identifier": 1,
        "neither an identifier nor artist and title": 1,
        "year: must be between 1000 and 2999": 1,
    }
    assert [example.row for example in report.examples] == [2, 3, 4]
    catalog = Catalog.open(tmp_path / "catalog")
    assert catalog.n_tracks == 2
    assert titles(catalog, "a", "five") == ["five"]


def test_a_file_that_is_no_catalog_leaves_the_old_one(tmp_path: Path) -> None:
    build_catalog([DEMO], tmp_path / "catalog")
    (tmp_path / "text.parquet").write_text("hello")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    for name in ("text.parquet", "other.parquet", "missing.parquet"):
        with pytest.raises(CatalogFileError, match=name):
            build_catalog([DEMO, tmp_path / name], tmp_path / "catalog")
    assert Catalog.open(tmp_path / "catalog").n_tracks == 30
    assert len(list((tmp_path / "catalog" / "versions").iterdir())) == 1


@pytest.mark.parametrize("at", [-1, 0], ids=["length", "letter"])
def test_a_catalog_file_that_is_damaged_is_named(tmp_path: Path, at: int) -> None:
    file = tmp_path / "rows.parquet"
    table = pa.table({"artist": ["The Stub Quartet"], "title": ["b"]})
    pq.write_table(table, file, use_dictionary=False, write_statistics=False)
    content = bytearray(file.read_bytes())
    content[content.index(b"The Stub") + at] = 0xFF
    file.write_bytes(content)
    with pytest.raises(CatalogFileError, match=f"{file}: cannot be read to its end"):
        build_catalog([file], tmp_path / "catalog")


def test_a_reader_follows_a_reimport_and_old_versions_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "CHECK_EVERY_S", 0.0)
    catalog = Catalog.open(tmp_path / "catalog")
    asked = TrackId(Platform.DEEZER, "5")
    assert catalog.by_id(asked) is None
    assert catalog.find("a", "b") == []
    for n in range(4):
        track = TrackIdentity(deezer_id="5", artist="a", title=f"version {n}")
        write_parquet([track], tmp_path / "in.parquet")
        build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
        found = catalog.by_id(asked)
        assert found is not None
        assert found.title == f"version {n}"
    assert len(list((tmp_path / "catalog" / "versions").iterdir())) == 2
    assert not list((tmp_path / "catalog").glob(".current*"))


def test_a_reader_checks_for_a_new_version_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_catalog([DEMO], tmp_path / "catalog")
    now_s = 0.0
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: now_s))
    catalog = Catalog.open(tmp_path / "empty")
    (tmp_path / "catalog").rename(tmp_path / "empty")
    now_s = 0.99
    assert catalog.n_tracks == 0
    now_s = 1.0
    assert catalog.n_tracks == 30


def test_an_index_of_another_format_is_not_read(tmp_path: Path) -> None:
    build_catalog([DEMO], tmp_path)
    meta = tmp_path / "current" / "catalog.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"format": 0}))
    assert Catalog.open(tmp_path).n_tracks == 0


def test_two_imports_do_not_run_at_once(tmp_path: Path) -> None:
    def again(step: str, done: int, total: int | None) -> None:
        with pytest.raises(CatalogBusyError):
            build_catalog([DEMO], tmp_path)

    build_catalog([DEMO], tmp_path, again)
    build_catalog([DEMO], tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from serve_app.providers.catalog import build

build.BATCH_ROWS, build.COMMIT_ROWS = 10, 20

def die(step, done, total):
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

build.build_catalog([Path(sys.argv[1])], Path(sys.argv[2]), die)
"""


def rows_to_import(path: Path) -> list[TrackIdentity]:
    """Write 100 rows, one in ten of which is rejected, and return the good ones."""
    good = [TrackIdentity(deezer_id=f"{n}", title=f"Song {n}", artist="A") for n in range(1, 101)]
    rows = table_of(good).to_pylist()
    for row in rows[::10]:
        row["deezer_id"] = "none"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return [one for n, one in enumerate(good) if n % 10]


def imported(folder: Path) -> list[TrackIdentity]:
    export_catalog(folder, folder / "out.parquet")
    return [parse_row(row, folder) for row in pq.read_table(folder / "out.parquet").to_pylist()]


def test_an_import_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows_to_import(tmp_path / "in.parquet")
    arguments = [sys.executable, "-c", KILLED, tmp_path / "in.parquet", tmp_path / "catalog"]
    for row, committed in (("50", 40), ("90", 80)):
        ended = subprocess.run([*arguments, row], check=False, capture_output=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        state = json.loads((tmp_path / "catalog" / "importing" / "state.json").read_text())
        assert state["committed"][-1]["n_rows"] == committed
        assert Catalog.open(tmp_path / "catalog").n_tracks == 0
    monkeypatch.setattr(build, "BATCH_ROWS", 10)
    report = build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    assert (report.n_rows, report.n_imported, report.n_before) == (100, 90, 80)
    assert report.reasons == {"deezer_id: is not a valid identifier": 10}
    assert [one.row for one in report.examples] == list(range(1, 101, 10))
    assert imported(tmp_path / "catalog") == expected
    assert not (tmp_path / "catalog" / "importing").exists()


def test_an_import_that_ended_between_its_note_and_its_commit_takes_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows_to_import(tmp_path / "in.parquet")
    monkeypatch.setattr(build, "BATCH_ROWS", 10)
    monkeypatch.setattr(build, "COMMIT_ROWS", 20)
    noted = build._write_state

    def full(version: Path, marks: list[str], states: list[ImportReport]) -> None:
        noted(version, marks, states)
        if states and states[-1].n_rows == 60:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(build, "_write_state", full)
        with pytest.raises(OSError, match="No space"):
            build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    report = build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    assert report.n_before == 40
    assert imported(tmp_path / "catalog") == expected
    (tmp_path / "in.parquet").touch()  # it may have changed, as far as one can tell
    assert build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog").n_before == 0


class SlowMerges:
    """Merges that run until `may_end` is set, and then fail."""

    def __init__(self, fault: BaseException) -> None:
        self.may_end = threading.Event()
        self._fault = fault

    def wait_merging_threads(self) -> None:
        self.may_end.wait()
        raise self._fault


@pytest.mark.parametrize("fault", [ValueError("no room"), BaseException("a panic of Rust's")])
def test_the_last_merges_are_told_and_their_fault_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    monkeypatch.setattr(build, "LOOK_S", 0.01)
    build_catalog([DEMO], tmp_path)
    index = tantivy.Index.open(str((tmp_path / "current").resolve()))
    merges, seen = SlowMerges(fault), []

    def progress(step: str, done: int, total: int | None) -> None:
        seen.append((step, done, total))
        merges.may_end.set()

    with pytest.raises(type(fault), match=str(fault)):
        build._wait_for_merges(index, merges, progress)
    assert seen[0] == ("merging the index, segments left:", index.searcher().num_segments, None)


FULL_DISK = """
import resource, sys
from pathlib import Path
from serve_app.providers.catalog import build

build.BATCH_ROWS, build.COMMIT_ROWS = 1000, 2000

def fill(step, done, total):
    if done == 3000:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))

try:
    build.build_catalog([Path(sys.argv[1])], Path(sys.argv[2]), fill)
except OSError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    """A limit on file size stands in for the disk: a write beyond it fails as on a full disk."""
    rows = [TrackIdentity(deezer_id=f"{n}", title=f"Song {n}", artist="A") for n in range(1, 5001)]
    write_parquet(rows, tmp_path / "in.parquet")
    arguments = [sys.executable, "-c", FULL_DISK, tmp_path / "in.parquet", tmp_path / "catalog"]
    ended = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "the index cannot be written" in ended.stderr
    report = build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    assert (report.n_imported, report.n_before) == (5000, 2000)
    assert imported(tmp_path / "catalog") == rows


def test_an_import_reads_no_file_again_that_it_took_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BATCH_ROWS", 10)
    monkeypatch.setattr(build, "COMMIT_ROWS", 10)
    rows = [TrackIdentity(deezer_id=f"{n}", title=f"Song {n}", artist="A") for n in range(1, 61)]
    parts = [tmp_path / f"{n}.parquet" for n in range(3)]
    for n, part in enumerate(parts):
        write_parquet(rows[20 * n : 20 * n + 20], part)

    def stop(step: str, done: int, total: int | None) -> None:
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_catalog(parts, tmp_path / "catalog", stop)
    state = parts[0].stat()
    parts[0].write_bytes(bytes(100) + parts[0].read_bytes()[100:])  # no row of it can be read now
    os.utime(parts[0], ns=(state.st_atime_ns, state.st_mtime_ns))
    assert build_catalog(parts, tmp_path / "catalog").n_before == 30
    assert imported(tmp_path / "catalog") == rows


def test_rows_of_one_recording_complete_each_other_but_never_across_other_ids(
    tmp_path: Path,
) -> None:
    mbid = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
    write_parquet(
        [
            TrackIdentity(artist="A", title="T", mbid=mbid, isrc="QZTST2100001"),
            TrackIdentity(mbid=mbid, tempo=120.0, key=3, mode=1, is_verified=True),
            TrackIdentity(mbid=mbid, isrc="QZTST2100002", spotify_id=SPOTIFY),
            TrackIdentity(artist="B", title="Other", isrc="QZTST2100001", deezer_id="77"),
        ],
        tmp_path / "in.parquet",
    )
    build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    found = Catalog.open(tmp_path / "catalog").by_id(TrackId(Platform.ISRC, "QZTST2100001"))
    assert found == TrackIdentity(
        artist="A",
        title="T",
        mbid=mbid,
        isrc="QZTST2100001",
        tempo=120.0,
        key=3,
        mode=1,
        is_verified=True,
    )


def test_repeats_take_no_place_among_what_is_found(tmp_path: Path) -> None:
    mbid = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
    repeated = [
        TrackIdentity(artist="A", title="Song", mbid=mbid, isrc=f"QZTST210000{n}") for n in range(9)
    ]
    others = [
        TrackIdentity(artist="A", title=f"Song number {n}", deezer_id=f"{n + 1}") for n in range(3)
    ]
    write_parquet(repeated + others, tmp_path / "in.parquet")
    build_catalog([tmp_path / "in.parquet"], tmp_path / "catalog")
    catalog = Catalog.open(tmp_path / "catalog")
    found = [[one.title for one in catalog.find_text("song", limit=n)] for n in (3, 4, 50)]
    assert [len(titles) for titles in found] == [3, 4, 4]
    assert found[0] == found[1][:3]
    assert found[1] == found[2]


FULL = TrackIdentity(
    artist="Ärtist",
    title="Tïtle",
    mbid="5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f",
    isrc="QZTST2100001",
    spotify_id=SPOTIFY,
    apple_id="1600000001",
    deezer_id="990000001",
    youtube_id="StubVideo0A",
    album="Album",
    year=2021,
    label="Label",
    genres=("a", "b"),
    duration_s=1.5,
    audio_url="https://example.org/a.mp3",
    artwork_url="https://example.org/a.jpg",
    tempo=120.0,
    key=0,
    mode=1,
    beats=(0.5, 1.0),
    downbeats=(0.5,),
    is_verified=True,
    source="curator",
)
FULL_ROW = table_of([FULL]).to_pylist()[0]


def test_every_field_survives_a_row(tmp_path: Path) -> None:
    assert parse_row(FULL_ROW, tmp_path) == FULL
    assert {field.name for field in fields(TrackIdentity)} - {"library_id"} == set(SCHEMA.names)
    write_parquet([FULL], tmp_path / "in.parquet")
    build_catalog([tmp_path / "in.parquet"], tmp_path)
    assert Catalog.open(tmp_path).by_id(TrackId(Platform.YOUTUBE, "StubVideo0A")) == FULL


def test_identifiers_and_key_names_are_normalised() -> None:
    row = {
        "mbid": FULL.mbid.upper() if FULL.mbid else "",
        "isrc": "qz-tst-21-00001",
        "deezer_id": 7,
    }
    parsed = parse_row(row | {"key": "F#", "mode": "minor", "title": "  a \n b "}, Path())
    assert (parsed.mbid, parsed.isrc, parsed.deezer_id) == (FULL.mbid, FULL.isrc, "7")
    assert (parsed.key, parsed.mode, parsed.title) == (6, 0, "a b")


def test_whole_numbers_of_a_column_with_gaps_are_whole(tmp_path: Path) -> None:
    table = pa.table({"title": ["a", "b"], "artist": ["c", "d"], "year": [1999.0, None]})
    table = table.append_column("apple_id", pa.array([1440833098.0, None]))
    pq.write_table(table, tmp_path / "in.parquet")
    assert build_catalog([tmp_path / "in.parquet"], tmp_path).n_imported == 2
    found = Catalog.open(tmp_path).by_id(TrackId(Platform.APPLE, "1440833098"))
    assert found is not None
    assert found.year == 1999
    with pytest.raises(RowError, match="whole number"):
        parse_row(FULL_ROW | {"year": 1999.5}, Path())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mbid": "x"}, "mbid"),
        ({"tempo": 0.0}, "tempo"),
        ({"tempo": float("nan")}, "tempo"),
        ({"key": 12}, "key"),
        ({"key": "H"}, "key"),
        ({"mode": None}, "together"),
        ({"beats": [1.0, 1.0]}, "ascend"),
        ({"beats": [1.0, -1.0]}, "between"),
        ({"downbeats": [0.7]}, "downbeats"),
        ({"duration_s": -1.0}, "duration_s"),
        ({"year": True}, "year"),
        ({"title": "x" * 501}, "longer"),
        ({"title": 5}, "text"),
        ({"genres": "rock"}, "list"),
        ({"is_verified": "yes"}, "true or false"),
        ({"audio_url": "ftp://example.org/a"}, "audio_url"),
        ({"audio_url": "missing.mp3"}, "does not exist"),
        ({"artwork_url": "javascript:1"}, "artwork_url"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_with_a_reason(
    change: dict[str, object], reason: str
) -> None:
    with pytest.raises(RowError, match=reason):
        parse_row(FULL_ROW | change, Path("/nowhere"))


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Paper Lanterns (feat. X & Y) [2011 Remaster]", "paper lanterns"),
        ("Song - Radio Edit", "song"),
        ("Song (Original Mix)", "song"),
        ("Song (Live) [Remastered]", "song live"),
        ("Song (Taylor's Version)", "song taylors version"),
        ("(I Can't Get No) Satisfaction", "i cant get no satisfaction"),
        ("Ft. Worth Blues", "ft worth blues"),
        ("残酷な天使のテーゼ", "残酷な天使のテーゼ"),
        ("???", "???"),
        ("Straße ﬁn", "strasse fin"),
    ],
)
def test_titles_are_normalised(title: str, expected: str) -> None:
    assert normalise_title(title) == expected


def test_part_and_volume_may_be_abbreviated() -> None:
    wall = "Another Brick in the Wall, "
    assert similarity("Pink Floyd", f"{wall}Pt. 2", "Pink Floyd", f"{wall}Part 2") == 1.0
    assert similarity("Pink Floyd", f"{wall}Pt. 1", "Pink Floyd", f"{wall}Part 2") == 0.0
    assert similarity("A", "Songs, Vol. 3", "A", "Songs, Volume 3") == 1.0


def test_a_version_word_on_one_side_only_is_another_track() -> None:
    assert similarity("A", "Song", "A", "Song (Remix)") == 0.0
    assert similarity("A", "Live Forever", "A", "Live Forever (Live)") == 0.0
    assert similarity("A", "Live Forever", "A", "live forever") == 1.0
    assert similarity("The Beatles", "Love", "Eagles", "Love") == 0.0
    assert similarity("A", "Symphony No. 10", "A", "Symphony No. 11") == 0.0
    assert similarity("A", "Love Song", "A", "Lovesong") > 0.9


@given(st.text(max_size=80))
def test_normalising_is_idempotent_and_never_empties_a_text(text: str) -> None:
    for function in (normalise, normalise_title, normalise_artist):
        once = function(text)
        assert function(once) == once or function is normalise_artist
        assert bool(once) or not text.strip() or not normalise(text)


def test_unknown_fields_are_filled_and_known_ones_kept() -> None:
    sparse = TrackIdentity(artist="Mine", mbid=FULL.mbid, tempo=90.0)
    filled = sparse.filled_from(FULL)
    assert filled == replace(
        FULL, artist="Mine", tempo=90.0, key=None, mode=None, beats=(), downbeats=(),
        is_verified=False, source="catalog",
    )  # fmt: skip
