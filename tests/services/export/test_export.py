"""Exports: the grid, the maker's documentation of rekordbox XML, and what other programs read."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyrekordbox.rbxml import RekordboxXml
from traktor_nml_utils.models.collection import Nmltype
from xsdata.formats.dataclass.parsers import XmlParser

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.identity import TrackIdentity
from serve_app.library.edit import Edit, Heard, added
from serve_app.library.library import Library
from serve_app.library.track import Analysis, LibraryTrack, Place, TrackFile, new_track_id
from serve_app.services.export import rekordbox, tables, traktor
from serve_app.services.export.beat_grid import TOLERANCE_S, beat_grid
from serve_app.services.export.key_names import KeyFormat, key_name
from serve_app.services.export.tracks import ExportTrack, looked_for, tracks_of
from serve_app.services.simulation.features import simulated_features

ODD = Path("/music/Ünïcode & <Co>/100% #1?/“a” + b;c.mp3")


def features(beats: np.ndarray, *, first: int = 0, metre: int = 4) -> TrackFeatures:
    downbeats = beats[first::metre].tolist()
    return replace(
        simulated_features("x"),
        beats=beats.tolist(),
        downbeats=downbeats,
        time_signature=metre,
        tempo=124.0,
        key=9,
        mode=0,
        camelot="8A",
    )


def exported(path: Path = ODD, heard: TrackFeatures | None = None) -> ExportTrack:
    heard = heard or features(np.arange(0.25, 180, 60 / 124))
    who = TrackIdentity(
        artist="Sigur Rós & <Co>", title='"Hoppípolla" = 1', album="Takk…", year=2005,
        genres=("Post-Rock", "Art & Pop"), isrc="GBAYE0500123",
    )  # fmt: skip
    file = TrackFile(Place.PATH, str(path), size_bytes=1234)
    now = datetime(2026, 1, 2, tzinfo=UTC)
    track = LibraryTrack(new_track_id(), who, files=(file,), added_at=now)
    return ExportTrack(replace(track, analysis=Analysis(heard, "m", now)), file, heard)


@pytest.mark.parametrize("bpm", [61.37, 124.0, 173.99])
def test_steady_music_is_one_stretch(bpm: float) -> None:
    jitter = np.random.default_rng(0).normal(0, 0.004, 1000)
    beats = 0.41 + np.arange(int(240 * bpm / 60)) * 60 / bpm
    (mark,) = beat_grid(features(beats + jitter[: len(beats)], first=2))
    assert mark.bpm == pytest.approx(bpm, abs=0.02)
    assert mark.start_s == pytest.approx(0.41, abs=0.01)
    assert mark.beat == 3
    (without_bars,) = beat_grid(replace(features(beats), downbeats=[]))
    assert without_bars.beat == 1


def test_beats_that_were_misplaced_change_no_tempo() -> None:
    rng = np.random.default_rng(1)
    beats = 0.4 + np.arange(300) * 60 / 110
    wrong = beats + rng.normal(0, 0.008, 300)
    wrong[::9] += 0.06
    wrong[[100, 101]] -= 0.09
    (mark,) = beat_grid(features(wrong))
    assert mark.bpm == pytest.approx(110, abs=0.05)
    assert mark.start_s == pytest.approx(0.4, abs=0.015)


def test_each_change_of_tempo_begins_a_stretch_and_no_beat_is_off() -> None:
    beats = np.concatenate([np.arange(0.5, 60, 60 / 120), np.arange(60.0, 120, 60 / 97)])
    beats = np.concatenate([beats, np.arange(beats[-1] + 60 / 140, 170, 60 / 140)])
    marks = beat_grid(features(beats))
    assert [round(mark.bpm) for mark in marks] == [120, 97, 140]
    assert marks[0].beat == 1
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        end = following.start_s if following else beats[-1] + 0.01
        heard = beats[(beats >= mark.start_s - 0.001) & (beats < end - 0.001)]
        grid = mark.start_s + np.arange(len(heard)) * 60 / mark.bpm
        assert np.abs(grid - heard).max() <= TOLERANCE_S + 0.002
    assert beat_grid(features(np.zeros(0))) == []


@pytest.mark.parametrize(
    ("key", "mode", "names"),
    [(9, 0, ("Am", "8A", "1m")), (0, 1, ("C", "8B", "1d")), (1, 1, ("Db", "3B", "8d")),
     (6, 0, ("F#m", "11A", "4m")), (10, 0, ("Bbm", "3A", "8m")), (-1, -1, ("", "", ""))],
)  # fmt: skip
def test_keys_in_every_notation(key: int, mode: int, names: tuple[str, str, str]) -> None:
    assert tuple(key_name(key, mode, form) for form in KeyFormat) == names


# The maker's documentation: the attributes of every element, and what their values look like.
NUMBER, DECIMAL, ANY = r"\d+", r"\d+\.\d{2,3}", r"(?s).*"
DOCUMENTED = {
    "DJ_PLAYLISTS": {"Version": r"1\.0\.0|1,0,0"},
    "PRODUCT": {"Name": ANY, "Version": ANY, "Company": ANY},
    "COLLECTION": {"Entries": NUMBER},
    "COLLECTION/TRACK": {
        "TrackID": NUMBER, "Name": ANY, "Artist": ANY, "Composer": ANY, "Album": ANY,
        "Grouping": ANY, "Genre": ANY, "Kind": ANY, "Size": NUMBER, "TotalTime": NUMBER,
        "DiscNumber": NUMBER, "TrackNumber": NUMBER, "Year": NUMBER, "AverageBpm": DECIMAL,
        "DateModified": r"\d{4}-\d\d-\d\d", "DateAdded": r"\d{4}-\d\d-\d\d", "BitRate": NUMBER,
        "SampleRate": NUMBER, "Comments": ANY, "PlayCount": NUMBER, "Rating": NUMBER,
        "Location": r"file://localhost/[A-Za-z0-9._~/%-]+", "Remixer": ANY, "Tonality": ANY,
        "Label": ANY, "Mix": ANY,
    },
    "TEMPO": {
        "Inizio": DECIMAL, "Bpm": DECIMAL, "Metro": r"[2-7]/[48]", "Battito": r"[1-7]",
    },
    "PLAYLISTS": {},
    "NODE": {
        "Type": "[01]", "Name": ANY, "Count": NUMBER, "KeyType": "[01]", "Entries": NUMBER,
    },
    "NODE/TRACK": {"Key": NUMBER},
}  # fmt: skip


def check(element: ElementTree.Element, parent: str = "") -> None:
    documented = DOCUMENTED.get(f"{parent}/{element.tag}", DOCUMENTED.get(element.tag))
    assert documented is not None, f"{element.tag} in {parent}"
    for name, value in element.attrib.items():
        assert name in documented, f"{element.tag} has no {name}"
        assert re.fullmatch(documented[name], value), (element.tag, name, value)
    for child in element:
        check(child, element.tag)


def test_rekordbox_is_as_documented_and_read_by_another_program(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    beats = np.concatenate([np.arange(0.5, 60, 60 / 120), np.arange(60.0, 120, 60 / 97)])
    tracks = [exported(), exported(Path("/music/b.flac"), features(beats, metre=3))]
    rekordbox.collection(tracks, "1.2", KeyFormat.CAMELOT).write(
        path, encoding="UTF-8", xml_declaration=True
    )
    check(ElementTree.parse(path).getroot())  # noqa: S314  our own file
    read = RekordboxXml(path)
    one, two = read.get_tracks()
    assert (one.Name, one.Artist, one.Album) == ('"Hoppípolla" = 1', "Sigur Rós & <Co>", "Takk…")
    assert one.Location.lstrip("/") == str(ODD).lstrip("/")
    assert (one.Tonality, one.Year, one.Size, one.TotalTime) == ("8A", 2005, 1234, 180)
    assert one.AverageBpm == 124.0
    (tempo,) = one.tempos
    assert (tempo.Inizio, tempo.Bpm, tempo.Metro, tempo.Battito) == (0.25, 124.0, "4/4", 1)
    assert [(mark.Bpm, mark.Metro) for mark in two.tempos] == [(120.0, "3/4"), (97.0, "3/4")]
    assert read.get_playlist("afa").get_tracks() == [1, 2]


def test_traktor_is_read_by_another_program(tmp_path: Path) -> None:
    path = tmp_path / "collection.nml"
    traktor.collection([exported()], KeyFormat.OPENKEY).write(
        path, encoding="UTF-8", xml_declaration=True
    )
    (entry,) = XmlParser().from_bytes(path.read_bytes(), Nmltype).collection.entry
    assert (entry.title, entry.artist) == ('"Hoppípolla" = 1', "Sigur Rós & <Co>")
    assert entry.location.file == ODD.name
    assert entry.location.dir == "/:music/:Ünïcode & <Co>/:100% #1?/:"
    assert entry.tempo.bpm == 124.0
    assert entry.musical_key.value_attribute == 21
    assert entry.info.key == "1m"
    (cue,) = entry.cue_v2
    assert (cue.type, cue.start, cue.grid.bpm) == (4, 250.0, 124.0)


def test_traktor_has_a_playlist_that_names_the_tracks_as_the_collection_does() -> None:
    """Without playlists Mixxx says that the collection has an error."""
    tree = traktor.collection([exported(), exported(Path("/music/b.flac"))], KeyFormat.CLASSIC)
    read = XmlParser().from_bytes(ElementTree.tostring(tree.getroot()), Nmltype)
    root = read.playlists.node
    assert (root.type, root.name, root.subnodes.count) == ("FOLDER", "$ROOT", 1)
    (node,) = root.subnodes.node
    assert (node.type, node.name, node.playlist.entries) == ("PLAYLIST", "afa", 2)
    located = [one.location.dir + one.location.file for one in read.collection.entry]
    assert [one.primarykey.key for one in node.playlist.entry] == located
    assert {one.primarykey.type for one in node.playlist.entry} == {"TRACK"}


def test_tables(tmp_path: Path) -> None:
    track = exported()
    evil = replace(track, track=replace(track.track, identity=TrackIdentity(title="=1+1")))
    sheet = io.StringIO()
    tables.write_csv([track, evil], sheet)
    first, second = csv.DictReader(io.StringIO(sheet.getvalue()))
    assert (first["artist"], first["tempo"], first["camelot"]) == (
        "Sigur Rós & <Co>",
        "124.0",
        "8A",
    )
    assert first["file"] == str(ODD)
    assert second["title"] == "'=1+1"
    with (tmp_path / "a.parquet").open("wb") as file:
        tables.write_parquet([track], file)
    (row,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert (row["isrc"], row["beats"][0]) == ("GBAYE0500123", 0.25)
    bare = replace(track.identity, album=None, year=None, isrc=None)
    unnamed = replace(track, track=replace(track.track, identity=bare))
    for number, tracks in enumerate(([unnamed], [])):
        with (tmp_path / f"{number}.parquet").open("wb") as file:
            tables.write_parquet(tracks, file)
        schema = pq.read_schema(tmp_path / f"{number}.parquet")
        assert schema == pq.read_schema(tmp_path / "a.parquet")
        assert schema.names == [*tables.row_of(track), "beats", "downbeats"]
    playlist = io.StringIO()
    broken = replace(track.identity, title='"Hoppípolla"\n= 1')
    tables.write_m3u([replace(track, track=replace(track.track, identity=broken))], playlist)
    assert playlist.getvalue().splitlines() == [
        "#EXTM3U", '#EXTINF:180,Sigur Rós & <Co> - "Hoppípolla" = 1', str(ODD)
    ]  # fmt: skip


def test_a_large_library_is_never_in_memory_as_a_whole() -> None:
    table = io.BytesIO()

    def library() -> Iterator[ExportTrack]:
        one = exported()
        for n in range(2 * tables.ROWS_TOGETHER):
            assert n < tables.ROWS_TOGETHER or table.tell() > tables.ROWS_TOGETHER
            yield one

    tables.write_parquet(library(), table)
    assert pq.ParquetFile(table).metadata.num_rows == 2 * tables.ROWS_TOGETHER


def test_odd_names_break_no_file() -> None:
    odd = exported(Path("/music/a\x01b\nc\uffff.mp3"))
    who = replace(odd.identity, title="a\x01b\x0bc \N{MUSICAL SYMBOL G CLEF}")
    odd = replace(odd, track=replace(odd.track, identity=who))
    for tree in (
        rekordbox.collection([odd], "1", KeyFormat.CLASSIC),
        traktor.collection([odd], KeyFormat.CLASSIC),
    ):
        read = ElementTree.fromstring(ElementTree.tostring(tree.getroot()))  # noqa: S314  our own
        names = [element.get("Name") or element.get("TITLE") for element in read.iter()]
        assert "abc \N{MUSICAL SYMBOL G CLEF}" in names
    playlist = io.StringIO()
    tables.write_m3u([odd], playlist)
    assert playlist.getvalue().splitlines()[2:] == ["file:///music/a%01b%0Ac%EF%BF%BF.mp3"]
    belled = replace(odd, file=replace(odd.file, location="/music/a\x07é.mp3"))
    playlist = io.StringIO()
    tables.write_m3u([belled], playlist)
    assert playlist.getvalue().splitlines()[1:] == [
        "#EXTINF:180,Sigur Rós & <Co> - a b c \N{MUSICAL SYMBOL G CLEF}",
        "file:///music/a%07%C3%A9.mp3",
    ]


def test_only_tracks_whose_file_is_there_are_exported(tmp_path: Path) -> None:
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    gone = datetime(2026, 1, 1, tzinfo=UTC)
    here = tmp_path / "b.mp3"
    here.touch()
    files = {
        "here": (TrackFile(Place.PATH, "/a.mp3", missing_since=gone),
                 TrackFile(Place.PATH, "/gone/since/the/last/scan.mp3"),
                 TrackFile(Place.PATH, str(here))),
        "missing": (TrackFile(Place.PATH, "/c.mp3", missing_since=gone),),
        "away": (TrackFile(Place.PATH, "/no/such/disk/d.mp3"),
                 TrackFile(Place.PATH, f"/{'long' * 99}.mp3")),
        "asset": (TrackFile(Place.ASSET, "afa_x"),),
    }  # fmt: skip
    edits = []
    for title, of_track in files.items():
        track = LibraryTrack(new_track_id(), TrackIdentity(title=title), files=of_track)
        edits.append(Edit(track.track_id, added(track), Heard(simulated_features(title), "m")))
    silent = LibraryTrack(new_track_id(), TrackIdentity(title="unheard"), files=files["here"])
    library.write([*edits, Edit(silent.track_id, added(silent))])
    (found,) = tracks_of(library)
    assert sorted(looked_for(library), key=bool) == [None, found]
    assert (found.identity.title, found.file.location) == ("here", str(here))
