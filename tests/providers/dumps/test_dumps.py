import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.catalog.build import build_catalog
from serve_app.providers.catalog.index import identities_in_order
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.dumps.acousticbrainz import identity_in, import_features, import_lowlevel
from serve_app.providers.dumps.files import DumpFormatError
from serve_app.providers.dumps.musicbrainz import import_recordings

ONE = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
TWO = "000a9db8-949f-4fa2-9f40-856127df0dbc"
THREE = "cd2e7c47-16f5-46c6-a37c-a1eb7bf599ff"

RECORDING = {
    "id": ONE, "title": "Paper Lanterns", "length": 213000, "video": False, "disambiguation": "",
    "first-release-date": "2021-05-14", "isrcs": ["QZTST2100001", "QZTST2100099"],
    "artist-credit": [
        {"name": "The Stub Quartet", "joinphrase": " feat. ", "artist": {"id": "x", "name": "TSQ"}},
        {"name": "Ada", "joinphrase": "", "artist": {"id": "y", "name": "Ada"}},
    ],
    "relations": [
        {"type": "free streaming", "target-type": "url", "direction": "forward", "ended": False,
         "url": {"id": "z", "resource": "https://open.spotify.com/track/1StUbTrAcK0000000000Aa"}},
        {"type": "purchase", "target-type": "url", "direction": "forward", "ended": True,
         "url": {"id": "z", "resource": "https://www.deezer.com/track/1"}},
        {"type": "free streaming", "target-type": "url", "direction": "forward", "ended": False,
         "url": {"id": "z", "resource": "https://example.org/nothing"}},
        {"type": "performance", "target-type": "work", "direction": "forward", "ended": False,
         "work": {"id": "w", "title": "Paper Lanterns"}},
    ],
    "genres": [
        {"id": "g", "name": "downtempo", "count": 1}, {"id": "h", "name": "electronic", "count": 3},
    ],
    "tags": [], "aliases": [], "rating": {"value": None, "votes-count": 0}, "annotation": None,
}  # fmt: skip
BARE = {"id": TWO, "title": "Untitled", "length": None, "video": False, "isrcs": [],
        "artist-credit": [], "relations": [], "genres": [], "tags": []}  # fmt: skip


def tar_of(path: Path, members: dict[str, bytes], mode: str) -> Path:
    with tarfile.open(path, mode) as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return path


def zst_of(path: Path, members: dict[str, bytes]) -> Path:
    plain = tar_of(path.with_suffix(""), members, "w")
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(plain.read_bytes())
    plain.unlink()
    return path


def rows_of(parquet: Path, folder: Path) -> list[TrackIdentity]:
    report = build_catalog([parquet], folder)
    assert report.n_imported == report.n_rows
    return [
        row for rows in identities_in_order((folder / "current").resolve(), 100) for row in rows
    ]


def test_a_recording_dump_becomes_rows_found_by_every_identifier(tmp_path: Path) -> None:
    lines = [json.dumps(RECORDING), json.dumps(BARE), '{"title": "no id"}', "not json"]
    dump = tar_of(
        tmp_path / "recording.tar.xz",
        {
            "TIMESTAMP": b"2026-05-20 00:10:01",
            "COPYING": b"CC0",
            "JSON_DUMPS_SCHEMA_NUMBER": b"1",
            "mbdump/recording": "\n".join(lines).encode() + b"\n",
        },
        "w:xz",
    )
    report = import_recordings(dump, tmp_path / "out.parquet")
    assert (report.n_items, report.n_used, sum(report.reasons.values())) == (4, 2, 2)
    rows = rows_of(tmp_path / "out.parquet", tmp_path / "catalog")
    assert rows[0] == TrackIdentity(
        artist="The Stub Quartet feat. Ada",
        title="Paper Lanterns",
        mbid=ONE,
        isrc="QZTST2100001",
        spotify_id="1StUbTrAcK0000000000Aa",
        year=2021,
        genres=("electronic", "downtempo"),
        duration_s=213.0,
        source="musicbrainz",
    )
    assert [row.isrc for row in rows] == ["QZTST2100001", "QZTST2100099", None]
    catalog = Catalog.open(tmp_path / "catalog")
    by_second = catalog.by_id(TrackId(Platform.ISRC, "QZTST2100099"))
    assert by_second is not None
    assert by_second.mbid == ONE
    assert len(catalog.find("stub quartet", "paper lanterns")) == 1


def test_a_dump_without_recordings_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    dump = tar_of(tmp_path / "artist.tar.xz", {"mbdump/artist": b"{}"}, "w:xz")
    with pytest.raises(DumpFormatError, match="mbdump/recording"):
        import_recordings(dump, tmp_path / "out.parquet")
    (tmp_path / "cut.tar.xz").write_bytes(dump.read_bytes()[:80])
    with pytest.raises(DumpFormatError):
        import_recordings(tmp_path / "cut.tar.xz", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    assert not (tmp_path / "out.parquet.partial").exists()


RHYTHM = (
    "mbid,submission_offset,bpm,bpm_histogram_first_peak_bpm_mean,"
    "bpm_histogram_first_peak_bpm_median,bpm_histogram_second_peak_bpm_mean,"
    "bpm_histogram_second_peak_bpm_median,danceability,onset_rate\r\n"
    f"{ONE},0,123.46,123,123,62,62,1.31,4.2\r\n"
    f"{TWO},0,90.5,90,90,45,45,1.1,3.0\r\n"
    f"{ONE},1,61.7,62,62,123,123,1.30,4.1\r\n"
    f"{ONE},2,124.0,124,124,62,62,1.29,4.3\r\n"
    f"{TWO},1,,,,,,,\r\n"
    f"{THREE},0,0.0,,,,,,\r\n"
)
TONAL = (
    "mbid,submission_offset,key_key,key_scale,tuning_frequency,tuning_equal_tempered_deviation\r\n"
    f"{ONE},0,F#,minor,440.0,0.1\r\n"
    f"{ONE},1,A,major,440.0,0.1\r\n"
    f"{ONE},2,F#,minor,441.0,0.1\r\n"
    f"{TWO},0,Bb,major,440.0,0.1\r\n"
    f"{TWO},1,,,,\r\n"
    f"{THREE},0,H,minor,440.0,0.1\r\n"
)


def test_newer_extractors_name_their_keys_otherwise() -> None:
    document = {"rhythm": {"bpm": 90.5}, "tonal": {"key_edma": {"key": "Bb", "scale": "minor"}}}
    assert identity_in(document) == TrackIdentity(
        tempo=90.5, key=10, mode=0, source="acousticbrainz"
    )
    for other in (
        [],
        {"rhythm": {}},
        document | {"tonal": 1},
        document | {"metadata": {"tags": 1}},
    ):
        assert identity_in(other) is None


def test_the_feature_dump_gives_the_median_tempo_and_the_commonest_key(tmp_path: Path) -> None:
    folder = "acousticbrainz-lowlevel-features-20220623"
    rhythm = zst_of(
        tmp_path / f"{folder}-rhythm.tar.zst",
        {f"{folder}/COPYING": b"CC0", f"{folder}/rhythm.csv": RHYTHM.encode()},
    )
    tonal = zst_of(
        tmp_path / f"{folder}-tonal.tar.zst",
        {f"{folder}/tonal.csv": TONAL.encode(), f"{folder}/COPYING": b"CC0"},
    )
    report = import_features(rhythm, tonal, tmp_path / "out.parquet")
    assert report.reasons == {"no plausible bpm": 2, "no known key": 2}
    rows = rows_of(tmp_path / "out.parquet", tmp_path / "catalog")
    assert rows == [
        TrackIdentity(mbid=TWO, tempo=90.5, key=10, mode=1, source="acousticbrainz"),
        TrackIdentity(mbid=ONE, tempo=123.46, key=6, mode=0, source="acousticbrainz"),
    ]


def test_names_and_features_of_two_dumps_meet_in_the_catalog(tmp_path: Path) -> None:
    dump = tar_of(
        tmp_path / "recording.tar.xz", {"mbdump/recording": json.dumps(RECORDING).encode()}, "w:xz"
    )
    import_recordings(dump, tmp_path / "names.parquet")
    for name, text in (("rhythm.csv", RHYTHM), ("tonal.csv", TONAL)):
        (tmp_path / name).write_text(text, newline="")
    import_features(tmp_path / "rhythm.csv", tmp_path / "tonal.csv", tmp_path / "ab.parquet")
    build_catalog([tmp_path / "names.parquet", tmp_path / "ab.parquet"], tmp_path / "catalog")
    catalog = Catalog.open(tmp_path / "catalog")
    found = catalog.by_id(TrackId(Platform.SPOTIFY, "1StUbTrAcK0000000000Aa"))
    assert found is not None
    assert (found.title, found.tempo, found.key, found.mode) == ("Paper Lanterns", 123.46, 6, 0)
    assert not found.is_verified
    named = catalog.find("The Stub Quartet", "Paper Lanterns")[0].identity
    assert named.tempo == 123.46


def lowlevel(bpm: float, key: str, scale: str, **tags: list[str]) -> bytes:
    return json.dumps(
        {
            "rhythm": {"bpm": bpm, "beats_count": 2, "beats_position": [0.47, 0.96]},
            "tonal": {"key_key": key, "key_scale": scale, "key_strength": 0.72},
            "lowlevel": {"average_loudness": 0.91},
            "metadata": {"audio_properties": {"length": 224.1}, "tags": tags},
        }
    ).encode()


def test_the_lowlevel_dump_gives_names_too(tmp_path: Path) -> None:
    root = "acousticbrainz-lowlevel-json-20220623/lowlevel"
    dump = zst_of(
        tmp_path / "acousticbrainz-lowlevel-json-20220623-0.tar.zst",
        {
            f"{root}/5f/0/{ONE}-0.json": lowlevel(
                123.46, "F#", "minor", artist=["The Stub Quartet"], title=["Paper Lanterns"]
            ),
            f"{root}/5f/0/{ONE}-1.json": lowlevel(61.0, "A", "major", isrc=["QZ-TST-21-00001"]),
            f"{root}/5f/0/{ONE}-2.json": lowlevel(124.0, "F#", "minor", isrc=["wrong"]),
            f"{root}/00/0/{TWO}-0.json": b'{"rhythm": {}}',
            f"{root}/00/0/{THREE}-0.json": lowlevel(0.0, "", ""),
        },
    )
    report = import_lowlevel(dump, tmp_path / "out.parquet")
    assert (report.n_items, report.n_used) == (5, 4)
    rows = rows_of(tmp_path / "out.parquet", tmp_path / "catalog")
    assert rows[0] == TrackIdentity(
        artist="The Stub Quartet",
        title="Paper Lanterns",
        mbid=ONE,
        isrc="QZTST2100001",
        duration_s=224.1,
        tempo=123.46,
        key=6,
        mode=0,
        source="acousticbrainz",
    )
    assert rows[1] == TrackIdentity(mbid=THREE, duration_s=224.1, source="acousticbrainz")


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rhythm.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DumpFormatError, match="bpm"):
        import_features(tmp_path / "rhythm.csv", tmp_path / "rhythm.csv", tmp_path / "out.parquet")
    empty = zst_of(tmp_path / "x.tar.zst", {"COPYING": b"CC0"})
    with pytest.raises(DumpFormatError, match="CSV"):
        import_features(empty, empty, tmp_path / "out.parquet")
    with pytest.raises(DumpFormatError, match="json"):
        import_lowlevel(empty, tmp_path / "out.parquet")
