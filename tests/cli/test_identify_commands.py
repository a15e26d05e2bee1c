"""`afa catalog fingerprint` and `afa identify` on real files, without any server."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from models.fingerprint.landmarks import Fingerprint
from pipelines.audio.decode import DecodeLimits, decode
from serve_app.cli.identify import build, drop_replaced
from serve_app.cli.main import app
from serve_app.composition.files import LocalFiles
from serve_app.library.library import Library
from serve_app.library.track import Place, TrackFile
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.index import FingerprintIndex
from serve_app.providers.fingerprints.manifest import FILE_NAME
from tests.data.audio_files import click_track, encode
from tests.library.library_setting import adding, heard, track

DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
runner = CliRunner()


@pytest.fixture
def music(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "music"
    (folder / "album").mkdir(parents=True)
    shutil.copy(DEMO, folder / "album" / "Some One - A Song.mp3")
    (folder / "broken.mp3").write_bytes(b"no audio")
    (folder / "cover.jpg").write_bytes(b"no audio either")
    return folder


def fingerprint(folder: Path, *options: str) -> str:
    done = runner.invoke(app, ["catalog", "fingerprint", str(folder), *options])
    assert done.exit_code == 1, done.output
    assert f"{folder / 'broken.mp3'}: " in done.stderr
    return " ".join(done.output.split())


def test_the_library_s_tracks_are_found_by_their_sound(music: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    library = Library((data / "library").as_uri(), data / "library-view")
    song = TrackFile(Place.PATH, str(music / "album" / "Some One - A Song.mp3"))
    one = replace(track("Known by its tags"), files=(song,))
    library.write([adding(one, heard("one"))])
    library.close()
    done = runner.invoke(app, ["catalog", "fingerprint", "--library"])
    assert "1 added" in done.output
    found = runner.invoke(app, ["identify", str(DEMO)])
    assert "The Cure - Known by its tags" in " ".join(found.output.split())
    assert runner.invoke(app, ["catalog", "fingerprint"]).exit_code == 1


def keys(data: Path) -> set[str]:
    return FingerprintIndex.open(LocalFiles(data).fingerprint_dir).keys()


def test_a_file_that_the_library_has_is_indexed_as_its_track(music: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = music / "album" / "Some One - A Song.mp3"
    fingerprint(music)
    assert keys(data) == {f"file:{path}"}
    status = path.stat()
    song = TrackFile(Place.PATH, str(path), size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)
    one = replace(track("Known by its tags"), files=(song,))
    library = Library((data / "library").as_uri(), data / "library-view")
    library.write([adding(one, heard("one"))])
    library.close()
    assert "1 added" in fingerprint(music)
    assert keys(data) == {one.track_id}
    assert "0 added, 1 left" in fingerprint(music)
    path.write_bytes(path.read_bytes() + b"\0")  # as far as anybody can tell, another recording
    fingerprint(music)
    assert keys(data) == {one.track_id, f"file:{path}"}
    runner.invoke(app, ["catalog", "fingerprint", "--library"])
    assert keys(data) == {one.track_id}


def test_without_a_library_none_is_made_to_be_indexed(music: Path, tmp_path: Path) -> None:
    refused = runner.invoke(app, ["catalog", "fingerprint", "--library"])
    assert refused.exit_code == 1
    assert "there is no library" in refused.stderr
    assert list(tmp_path.iterdir()) == [music]


def test_files_of_one_name_in_two_folders_are_two(
    music: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = music / "album" / "Intro.ogg", tmp_path / "other" / "Intro.ogg"
    second.parent.mkdir()
    for path, bpm in ((first, 132), (second, 96)):
        encode(path, click_track(bpm, 10), "ogg", "vorbis")
    monkeypatch.chdir(first.parent)
    for name in (str(second.parent), first.name, "../album/Intro.ogg"):
        assert runner.invoke(app, ["catalog", "fingerprint", name]).exit_code == 0
    assert keys(tmp_path / "data") == {f"file:{first}", f"file:{second}"}


def test_a_link_to_a_file_of_the_index_is_no_second_one(music: Path, tmp_path: Path) -> None:
    path = music / "album" / "Some One - A Song.mp3"
    link = music / "album" / "A link - Of that song.mp3"
    link.symlink_to(path.name)
    assert runner.invoke(app, ["catalog", "fingerprint", str(link)]).exit_code == 0
    assert keys(tmp_path / "data") == {f"file:{link}"}
    for n_added in (1, 0):
        assert f"{n_added} added" in fingerprint(music)
        assert keys(tmp_path / "data") == {f"file:{path}"}


def test_links_in_a_folder_that_is_a_link_are_no_second_ones(music: Path, tmp_path: Path) -> None:
    path = music / "album" / "Some One - A Song.mp3"
    (music / "album" / "A link - Of that song.mp3").symlink_to(path.name)
    other = encode(tmp_path / "Intro.ogg", click_track(96, 10), "ogg", "vorbis")
    for name in ("First.ogg", "Second.ogg"):
        (music / name).symlink_to(other)
    other_way = tmp_path / "way"
    other_way.symlink_to(music)
    fingerprint(other_way)
    first = {f"file:{other_way / name}" for name in ("album/Some One - A Song.mp3", "First.ogg")}
    assert keys(tmp_path / "data") == first


def test_a_folder_that_moved_is_indexed_once(music: Path, tmp_path: Path) -> None:
    fingerprint(music)
    lost = encode(music / "Intro.ogg", click_track(96, 10), "ogg", "vorbis")
    fingerprint(music)
    lost.unlink()  # as if its disk were not mounted
    moved = music.rename(tmp_path / "moved")
    intro = encode(moved / "Intro.ogg", click_track(132, 10), "ogg", "vorbis")
    song = moved / "album" / "Some One - A Song.mp3"
    assert "2 added" in fingerprint(moved)
    assert keys(tmp_path / "data") == {f"file:{path}" for path in (song, intro, lost)}


def test_what_was_indexed_as_below_its_folder_is_indexed_once(
    music: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    song = music / "album" / "Some One - A Song.mp3"
    monkeypatch.chdir(music)
    build(
        LocalFiles(tmp_path / "data").fingerprint_dir, [("file:album/Some One - A Song.mp3", song)]
    )
    fingerprint(music)
    assert keys(tmp_path / "data") == {f"file:{song}"}


def test_thousands_of_files_with_one_name_are_followed_in_no_time(tmp_path: Path) -> None:
    tracks = {
        root: [Path(root, str(number), "Track 1.mp3") for number in range(2000)]
        for root in ("/gone", "/moved")
    }
    with FingerprintIndexBuilder(tmp_path) as builder:
        for path in (path for paths in tracks.values() for path in paths):
            sound = np.array([int(path.parent.name)], np.uint64)
            builder.add(f"file:{path}", Fingerprint(*[np.zeros(0, np.float32)] * 3, 8, sound))
        builder.commit()
        begun_s = time.thread_time()
        drop_replaced(builder, [(f"file:{path}", path) for path in tracks["/moved"]])
        assert time.thread_time() - begun_s < 2.0
        assert set(builder) == {f"file:{path}" for path in tracks["/moved"]}


def test_a_folder_is_indexed_once_and_its_clips_are_named(music: Path, tmp_path: Path) -> None:
    first = fingerprint(music)
    assert "broken.mp3" in first
    assert "1 added, 0 left as they were, 1 failed" in first
    assert "0 added" in fingerprint(music)
    assert "1 added" in fingerprint(music, "--again")
    encode(music / "More - Clicks.ogg", click_track(132, 10), "ogg", "vorbis")
    assert "1 added, 1 left" in fingerprint(music)

    middle = decode(DEMO, DecodeLimits()).samples[:, 400_000:700_000]
    clip = encode(tmp_path / "clip.ogg", middle, "ogg", "vorbis")
    done = runner.invoke(app, ["identify", str(clip)])
    assert done.exit_code == 0, done.output
    assert "Some One - A Song, at 9." in done.output
    unknown = encode(tmp_path / "other.ogg", click_track(97, 8), "ogg", "vorbis")
    done = runner.invoke(app, ["identify", str(unknown)])
    assert (done.exit_code, done.output) == (1, "no match\n")


def test_an_index_of_another_version_is_started_over(music: Path, tmp_path: Path) -> None:
    fingerprint(music)
    manifest = LocalFiles(tmp_path / "data").fingerprint_dir / FILE_NAME
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**body, "model_id": "other"}))
    done = runner.invoke(app, ["identify", str(DEMO)])
    assert done.exit_code == 1
    assert "fingerprint its tracks again" in " ".join(done.output.split())
    again = fingerprint(music)
    assert "started over" in again
    assert "1 added" in again


def test_what_cannot_be_read_is_a_line_and_the_others_go_on(music: Path, tmp_path: Path) -> None:
    junk, gone, empty = tmp_path / "junk.parquet", tmp_path / "gone.parquet", tmp_path / "empty"
    junk.write_bytes(b"no catalog")
    empty.mkdir()
    command = ["catalog", "fingerprint", str(junk), str(gone), str(empty), "-"]
    done = runner.invoke(app, command, input=str(music))
    assert done.exit_code == 1
    assert done.stderr.splitlines()[:3] == [
        f"{junk}: not a readable Parquet file",
        f"{gone}: no such file",
        f"{empty}: no audio files in this folder",
    ]
    assert "1 added, 0 left as they were, 4 failed" in done.output


def test_a_catalog_file_that_is_damaged_is_a_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    names = pa.array([f"a name {n}" for n in range(1000)])
    table = pa.table({"artist": names, "title": names})
    pq.write_table(table, rows, compression="none", use_dictionary=False)
    content = rows.read_bytes()
    rows.write_bytes(content[:1000] + b"\xff" * 1000 + content[2000:])
    done = runner.invoke(app, ["catalog", "fingerprint", str(rows)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{rows}: cannot be read to its end: ")
    assert done.stdout == "0 added, 0 left as they were, 1 failed\n"


def test_an_answer_that_cannot_be_written_is_no_fault_of_the_file(music: Path) -> None:
    fingerprint(music)
    words = [sys.executable, "-c", "from serve_app.cli.main import main; main()", "identify"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*words, str(DEMO)], check=False, stdout=full, stderr=subprocess.PIPE, timeout=280
        )
    assert done.returncode == 1
    assert f"{DEMO}: ".encode() not in done.stderr


def test_where_there_is_no_index_nothing_is_made(music: Path, tmp_path: Path) -> None:
    done = runner.invoke(app, ["identify", str(DEMO)])
    assert done.exit_code == 1
    assert "`afa catalog fingerprint FOLDER` makes one" in " ".join(done.output.split())
    assert not (tmp_path / "data").exists()


def test_an_index_without_a_library_answers_and_makes_none(music: Path, tmp_path: Path) -> None:
    fingerprint(music)
    done = runner.invoke(app, ["identify", str(DEMO)])
    assert done.exit_code == 0, done.output
    assert "Some One - A Song" in done.output
    assert not (tmp_path / "data" / "library").exists()


def test_what_is_longer_than_goes_at_once_is_indexed_whole_and_named(
    music: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.cli.identify.LIMITS", DecodeLimits(max_seconds=12))
    path = music / "album" / "Some One - A Song.mp3"
    done = runner.invoke(app, ["catalog", "fingerprint", str(path)])
    assert "1 added" in done.output, done.output
    end = path.with_name("end.ogg")
    encode(end, decode(path, DecodeLimits()).samples[:, -10 * 44_100 :], "ogg", "vorbis")
    for heard_of in (path, end):
        assert "Some One - A Song" in runner.invoke(app, ["identify", str(heard_of)]).output
