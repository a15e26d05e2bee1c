import io
import json
import random
import tarfile
from collections import Counter
from pathlib import Path
from statistics import median_low
from uuid import UUID

import pyarrow as pa
import pytest

from pipelines.analysis.tonality.notes import MODES, PITCH_CLASSES
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.catalog.build import build_catalog
from serve_app.providers.catalog.index import identities_in_order
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.dumps import features
from serve_app.providers.dumps.acousticbrainz import identity_in
from serve_app.providers.dumps.features import import_features
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


def silent(step: str, done: int, total: int | None) -> None:
    pass


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
    report = import_features(rhythm, tonal, tmp_path / "out.parquet", silent)
    assert (report.n_items, report.n_used) == (12, 8)
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
    import_features(
        tmp_path / "rhythm.csv", tmp_path / "tonal.csv", tmp_path / "ab.parquet", silent
    )
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


def test_a_lowlevel_document_gives_names_too() -> None:
    names = {
        "artist": ["The Stub Quartet"],
        "title": ["Paper Lanterns"],
        "isrc": ["QZ-TST-21-00001"],
    }
    assert identity_in(json.loads(lowlevel(123.46, "F#", "minor", **names))) == TrackIdentity(
        artist="The Stub Quartet",
        title="Paper Lanterns",
        isrc="QZTST2100001",
        duration_s=224.1,
        tempo=123.46,
        key=6,
        mode=0,
        source="acousticbrainz",
    )
    assert identity_in(json.loads(lowlevel(0.0, "", "", isrc=["wrong"]))) == TrackIdentity(
        duration_s=224.1, source="acousticbrainz"
    )


@pytest.mark.parametrize(
    ("packing", "fault"),
    [*((packing, "cut off") for packing in ("", "gz", "bz2", "xz")), ("bz2", "bad"), ("xz", "bad")],
)
def test_a_damaged_dump_says_so_in_a_line(tmp_path: Path, packing: str, fault: str) -> None:
    lines = b"".join(
        json.dumps(BARE | {"title": random.Random(n).randbytes(800).hex()}).encode() + b"\n"
        for n in range(300)
    )
    members = {"TIMESTAMP": b"now", "mbdump/recording": lines}
    dump = tar_of(tmp_path / "recording.tar", members, f"w:{packing}")
    body = bytearray(dump.read_bytes())
    if fault == "cut off":
        body = body[: len(body) // 2]
    else:
        body[len(body) // 2 : len(body) // 2 + 1000] = b"\xff" * 1000
    dump.write_bytes(body)
    with pytest.raises(DumpFormatError, match=r"recording\.tar: .* fetch it again"):
        import_recordings(dump, tmp_path / "out.parquet")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("packed", [True, False])
def test_a_cut_off_feature_dump_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(features, "BLOCK_BYTES", 1 << 16)
    rows = "".join(
        f"{UUID(int=random.Random(n).getrandbits(128))},{n},90.5\n" for n in range(50_000)
    )
    text = f"mbid,submission_offset,bpm\n{rows}".encode()
    whole = tmp_path / "whole.tar.zst"
    if packed:
        zst_of(whole, {"rhythm.csv": text})
    else:
        whole.write_bytes(text)
    cut = tmp_path / ("rhythm.tar.zst" if packed else "rhythm.csv")
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2 - 15])
    with pytest.raises(DumpFormatError, match=f"{cut.name}: .* fetch it again"):
        import_features(cut, cut, tmp_path / "out.parquet", silent)
    assert not list(tmp_path.glob("out*"))


def test_an_errant_disk_is_no_fault_of_the_dump(tmp_path: Path) -> None:
    for name in ("recording.tar.xz", "recording.tar.zst"):
        with pytest.raises(FileNotFoundError):
            import_recordings(tmp_path / name, tmp_path / "out.parquet")


@pytest.mark.parametrize("body", [b"", b"not json\n{}\n"])
def test_a_dump_of_nothing_is_refused(tmp_path: Path, body: bytes) -> None:
    dump = tar_of(tmp_path / "recording.tar.xz", {"mbdump/recording": body}, "w:xz")
    with pytest.raises(DumpFormatError, match=r"an empty one|none of its 2 entries is a recording"):
        import_recordings(dump, tmp_path / "out.parquet")
    assert not list(tmp_path.glob("out*"))
    for name, head in (("rhythm.csv", "mbid,bpm"), ("tonal.csv", "mbid,key_key,key_scale")):
        (tmp_path / name).write_text(f"{head}\n")
    with pytest.raises(DumpFormatError, match=r"rhythm\.csv: none of its 0 rows"):
        import_features(
            tmp_path / "rhythm.csv", tmp_path / "tonal.csv", tmp_path / "out.parquet", silent
        )


def test_an_empty_line_that_is_a_block_of_its_own_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "BLOCK_BYTES", 1)
    (tmp_path / "rhythm.csv").write_text(f"mbid,bpm\n{UUID(int=7)},120.0\n\n")
    (tmp_path / "tonal.csv").write_text(f"mbid,key_key,key_scale\n{UUID(int=7)},A,minor\n\n")
    report = import_features(
        tmp_path / "rhythm.csv", tmp_path / "tonal.csv", tmp_path / "out.parquet", silent
    )
    assert (report.n_items, report.n_used) == (2, 2)


def test_features_meet_whatever_the_order_and_the_case_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with a plain calculation on the same rows, over many blocks and all 16 divisions."""
    monkeypatch.setattr(features, "BLOCK_BYTES", 4096)
    draw = random.Random(7)
    mbids = [str(UUID(int=draw.getrandbits(128))) for _ in range(300)]
    tempos: dict[str, list[float]] = {}
    keys: dict[str, list[tuple[int, int]]] = {}
    with (tmp_path / "rhythm.csv").open("w") as rhythm, (tmp_path / "tonal.csv").open("w") as tonal:
        rhythm.write("mbid,submission_offset,bpm,onset_rate\nno,0,90,\n")
        tonal.write("mbid,submission_offset,key_key,key_scale\n,0,C,major\n")
        for n in range(2000):
            mbid, bpm = draw.choice(mbids), round(draw.uniform(10, 420), 2)
            rhythm.write(f"{mbid.upper() if n % 7 == 0 else mbid},{n},{bpm},1\n")
            if 20 <= bpm <= 400:
                tempos.setdefault(mbid, []).append(bpm)
            mbid, key, mode = draw.choice(mbids), draw.randrange(12), draw.randrange(2)
            tonal.write(f"{mbid},{n},{PITCH_CLASSES[key]},{MODES[mode]}\n")
            keys.setdefault(mbid, []).append((key, mode))
    told: list[tuple[str, int, int | None]] = []
    report = import_features(
        tmp_path / "rhythm.csv",
        tmp_path / "tonal.csv",
        tmp_path / "out.parquet",
        lambda *words: told.append(words),
    )
    assert report.n_items == 4002
    assert report.reasons["no MBID"] == 2
    expected = {}
    for mbid in tempos.keys() | keys.keys():
        votes = Counter(keys.get(mbid, []))
        key, mode = min(votes, key=lambda one: (-votes[one], one), default=(None, None))
        tempo = median_low(tempos[mbid]) if mbid in tempos else None
        expected[mbid] = (tempo, key, mode)
    rows = rows_of(tmp_path / "out.parquet", tmp_path / "catalog")
    assert len(rows) == len(expected)
    assert {row.mbid: (row.tempo, row.key, row.mode) for row in rows} == expected
    of_rhythm = [one for one in told if "rhythm" in one[0]]
    assert len(of_rhythm) > 10
    assert all(done <= total for _, done, total in of_rhythm if total is not None)
    assert of_rhythm[-1][1:] == (2001, 2001)
    assert all(1900 < total < 2100 for _, _, total in of_rhythm[5:] if total is not None)


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rhythm.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DumpFormatError, match="bpm"):
        import_features(
            tmp_path / "rhythm.csv", tmp_path / "rhythm.csv", tmp_path / "out.parquet", silent
        )
    empty = zst_of(tmp_path / "x.tar.zst", {"COPYING": b"CC0"})
    with pytest.raises(DumpFormatError, match="CSV"):
        import_features(empty, empty, tmp_path / "out.parquet", silent)
