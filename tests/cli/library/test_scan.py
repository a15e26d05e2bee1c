"""`afa scan` and `afa export` with the real checkpoints, without any server."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from subprocess import run

import mutagen
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from serve_app.cli.library.opened import maintained, only_scan
from serve_app.cli.library.scan import Session, listed
from serve_app.cli.main import app
from serve_app.composition.files import LocalFiles
from serve_app.library.dataset import SMALL_FRAGMENTS
from serve_app.library.edit import Edit, removed
from serve_app.library.library import Library
from serve_app.library.query import TrackQuery
from serve_app.library.rows import location_term
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.services.scan.landmarks import LandmarkIndex
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import SingleFile
from serve_app.services.scan.scan import Hearing
from serve_app.services.simulation.features import simulated_features
from tests.data.audio_files import click_track, encode
from tests.library.library_setting import is_scattered, scatter

runner = CliRunner()
SCAN = "from serve_app.cli.main import main; main()"


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def tracks(data_dir: Path) -> list[LibraryTrack]:
    library = Library((data_dir / "library").as_uri(), data_dir / "library-view")
    library.follow()
    return library.page(TrackQuery(), [OPERATOR], 100).items


def song(folder: Path, bpm: int) -> Path:
    folder.mkdir(exist_ok=True)
    path = encode(folder / f"{bpm}.ogg", click_track(bpm, 12), "ogg", "vorbis")
    file = mutagen.File(path)
    file["title"], file["artist"] = f"At {bpm}", "The Clicks"
    file.save()
    return path


def check_export_into_links_and_pipes(tmp_path: Path) -> None:
    link, table, pipe = (tmp_path / name for name in ("link.csv", "table.csv", "pipe.csv"))
    table.write_text("old")
    link.symlink_to(table)
    assert runner.invoke(app, ["export", "csv", str(link)]).exit_code == 0
    assert link.is_symlink()
    assert "At 120" in table.read_text()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text)
        assert runner.invoke(app, ["export", "csv", str(pipe)]).exit_code == 0
        assert read.result(60) == table.read_text()
        read_table = reader.submit(pipe.read_bytes)
        assert runner.invoke(app, ["export", "parquet", str(pipe)]).exit_code == 0
        assert pq.read_table(BytesIO(read_table.result(60)))["title"].to_pylist() == ["At 120"]
    assert pipe.is_fifo()


def test_what_cannot_be_meant_is_told_in_a_line(data_dir: Path, tmp_path: Path) -> None:
    song(tmp_path / "music", 120)
    empty = runner.invoke(app, ["scan", ""])
    assert (empty.exit_code, "name" in empty.stderr, "empty" in empty.stderr) == (1, True, True)
    web = runner.invoke(app, ["scan", "https://host/song.ogg"])
    assert (web.exit_code, "https://host/song.ogg is not scanned" in web.stderr) == (1, True)
    wrong = runner.invoke(app, ["scan", str(tmp_path / "music"), "--config", "no.yaml"])
    assert (wrong.exit_code, "no.yaml" in wrong.stderr) == (1, True)
    assert "memory" not in wrong.stderr
    alone = runner.invoke(app, ["scan", str(tmp_path / "music"), "--every", "60"])
    assert (alone.exit_code, "add --watch" in alone.stderr) == (1, True)
    assert tracks(data_dir) == []


@pytest.mark.parametrize(
    "own", [["--here"], ["--partial"], ["--config", "configs/serve.local.yaml"]]
)
def test_what_the_service_does_not_do_is_done_here_though_one_runs(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: list[str]
) -> None:
    song(tmp_path / "music", 120)
    monkeypatch.setattr("serve_app.cli.library.scan.running_session", lambda _: {})
    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    done = runner.invoke(app, ["scan", str(tmp_path / "music"), *own])
    assert (done.exit_code, "1 added" in done.stdout) == (0, True), done.output


def test_a_folder_without_audio_is_told_and_changes_nothing(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    music = tmp_path / "music"
    music.mkdir()
    for dry in ([], ["--dry-run"]):
        done = runner.invoke(app, ["scan", str(music), *dry])
        assert done.exit_code == 1
        assert f"{music}: holds no audio; is its name right, and is it mounted?" in done.stderr
    song(music, 100)
    assert runner.invoke(app, ["scan", str(music)]).exit_code == 0
    (music / "100.ogg").unlink()
    for dry in ([], ["--dry-run"]):
        done = runner.invoke(app, ["scan", str(music), *dry])
        assert done.exit_code == 1
        assert "nothing is found where 1 files were; is it mounted?" in done.stderr
    (track,) = tracks(data_dir)
    assert track.files[0].missing_since is None
    forgetting = ["scan", str(music), "--forget"]
    assert "1 gone" in runner.invoke(app, [*forgetting, "--dry-run"]).stdout
    done = runner.invoke(app, forgetting)
    assert (done.exit_code, "1 forgotten" in done.stdout) == (0, True)


def test_a_folder_becomes_a_library_and_an_export(data_dir: Path, tmp_path: Path) -> None:
    os.umask(0o022)
    song(tmp_path / "music", 120)
    (tmp_path / "music" / "bad.mp3").write_bytes(b"nothing to hear")
    told = runner.invoke(app, ["scan", str(tmp_path / "music"), "--dry-run"])
    assert "2 new or changed, 0 unchanged" in told.stdout
    assert tracks(data_dir) == []
    command = ["scan", "-", "--jobs", "1", "--partial", "--tempo-range"]
    refused = runner.invoke(app, [*command, "fast"])
    assert "two whole BPM from 40 to 250" in refused.stderr
    done = runner.invoke(app, [*command, "50-70"], input=f"{tmp_path / 'music'}\n")
    assert done.exit_code == 1
    assert "1 added, 1 failed; 1 tracks in the library" in done.stdout
    assert str(tmp_path / "music" / "bad.mp3") in done.stderr
    (track,) = tracks(data_dir)
    assert track.identity.title == "At 120"
    assert track.analysis is not None
    assert track.analysis.features.tempo == pytest.approx(60, rel=0.02)
    assert track.embeddings == ("afa-embed-1",)
    assert [path for path in data_dir.rglob("*") if path.lstat().st_mode & 0o077] == []
    done = runner.invoke(app, ["export", "rekordbox", str(tmp_path / "dj.xml")])
    assert done.exit_code == 0, done.output
    assert 'Name="At 120"' in (tmp_path / "dj.xml").read_text()
    assert sorted(path.name for path in tmp_path.glob("*dj*")) == ["dj.xml"]
    check_export_into_links_and_pipes(tmp_path)
    (tmp_path / "music").rename(tmp_path / "away")
    done = runner.invoke(app, ["export", "csv", str(tmp_path / "none.csv")])
    assert (done.exit_code, "1 tracks are left out" in done.stderr) == (1, True)
    (tmp_path / "away").rename(tmp_path / "music")
    (tmp_path / "music" / "120.ogg").unlink()
    forgetting = ["scan", str(tmp_path / "music"), "--jobs", "1", "--forget"]
    told = runner.invoke(app, [*forgetting, "--dry-run"])
    assert f"gone: {tmp_path / 'music' / '120.ogg'}" in told.stdout
    assert "1 gone from where they were" in told.stdout
    assert len(tracks(data_dir)) == 1
    kept = runner.invoke(app, forgetting).stdout  # because bad.mp3 in the same folder fails
    assert "1 missing" in kept
    assert "run the command again to forget them" in " ".join(kept.split())
    assert "1 forgotten" in runner.invoke(app, forgetting).stdout
    assert tracks(data_dir) == []
    refused = runner.invoke(app, [*forgetting, "--watch"])
    assert (refused.exit_code, "one scan" in refused.stderr) == (1, True)


@pytest.mark.parametrize("command", ["scan", "tag", "analyze"])
def test_a_bad_file_is_one_line_whatever_its_name(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    Library((data_dir / "library").as_uri(), data_dir / "library-view").close()
    path = tmp_path / "two\nlines.ogg"
    path.write_bytes(b"nothing to hear")
    done = runner.invoke(app, [command, str(path)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{tmp_path}/two\\x0alines.ogg: ")


def test_a_data_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "file" / "data"))
    done = runner.invoke(app, ["scan", str(tmp_path)])
    assert done.exit_code == 1
    assert "Not a directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_workers_without_checkpoints_end_the_scan_and_say_so_once(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bpm in (100, 120, 140):
        song(tmp_path / "music", bpm)
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path / "none"))
    done = runner.invoke(app, ["scan", str(tmp_path / "music"), "--jobs", "2"])
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("afa: checkpoint ")
    assert "Run `afa models pull" in line
    assert "nothing to do" not in done.stdout
    assert tracks(data_dir) == []


class Simulated:
    n_at_once = 1

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def hear(self, path: Path) -> Hearing:
        return Hearing(replace(simulated_features(path.name), embedding=[]), None)

    def close(self) -> None:
        pass


def test_watching_follows_what_comes_and_goes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    song(tmp_path / "music", 100)
    copied, moved = song(tmp_path / "elsewhere", 120), song(tmp_path / "elsewhere", 140)
    os.utime(moved, (0, 0))
    whole = copied.read_bytes()
    pauses = iter(range(5))
    real_sleep = asyncio.sleep

    async def pause(seconds: float, *rest: object) -> None:
        if seconds != 3600:
            await real_sleep(seconds, *rest)
            return
        match next(pauses):
            case 0:
                (tmp_path / "music" / "120.ogg").write_bytes(whole[: len(whole) // 2])
            case 1:
                (tmp_path / "music" / "120.ogg").write_bytes(whole)
            case 2:
                pass
            case 3:
                (tmp_path / "music" / "100.ogg").unlink()
                moved.rename(tmp_path / "music" / "140.ogg")
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    monkeypatch.setattr(asyncio, "sleep", pause)
    done = runner.invoke(app, ["scan", str(tmp_path / "music"), "--watch", "--every", "3600"])
    assert done.exit_code == 130
    lines = [line.partition(";")[0] for line in done.stdout.splitlines()]
    # A file still being copied is not a track; one that is moved in is old, and complete.
    assert lines[:3] == ["1 added", "1 unchanged, 1 added", "1 unchanged, 1 added, 1 missing"]
    gone = [track for track in tracks(data_dir) if track.files[0].missing_since]
    assert [track.identity.title for track in gone] == ["At 100"]


def test_a_second_scan_of_the_library_is_refused_while_one_is_at_work(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    song(tmp_path / "music", 100)
    command = ["scan", str(tmp_path / "music")]
    other = [sys.executable, "-c", SCAN, *command]

    class Slow(Simulated):
        async def hear(self, path: Path) -> Hearing:
            told.append(await asyncio.to_thread(run, other, capture_output=True, text=True))
            return await super().hear(path)

    told: list[subprocess.CompletedProcess[str]] = []
    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Slow)
    done = runner.invoke(app, command)
    assert (done.exit_code, "1 added" in done.stdout) == (0, True), done.output
    (second,) = told
    assert second.returncode == 1
    assert f"another scan of this library is at work (process {os.getpid()});" in " ".join(
        second.stderr.split()
    )
    # The lock file of the first scan stays, and keeps nobody out.
    assert "1 unchanged" in runner.invoke(app, command).stdout


def test_whoever_watches_lets_others_scan_between_looks_and_waits_for_them(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    song(tmp_path / "music", 100)
    files, pauses, real_sleep = LocalFiles(data_dir), iter(range(3)), asyncio.sleep
    with ExitStack() as others:

        async def pause(seconds: float, *rest: object) -> None:
            if seconds != 7:
                await real_sleep(seconds, *rest)
                return
            match next(pauses):
                case 0:
                    others.enter_context(only_scan(files))
                    os.utime(song(tmp_path / "music", 120), (0, 0))
                case 1:
                    assert len(tracks(data_dir)) == 1
                    others.close()
                case _:
                    raise KeyboardInterrupt

        monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
        monkeypatch.setattr(asyncio, "sleep", pause)
        done = runner.invoke(app, ["scan", str(tmp_path / "music"), "--watch", "--every", "7"])
    assert done.exit_code == 130
    assert done.stderr == ""
    assert len(tracks(data_dir)) == 2


def test_a_scan_without_a_service_keeps_the_library_small(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    song(tmp_path / "music", 100)
    scatter(data_dir)
    assert runner.invoke(app, ["scan", str(tmp_path / "music")]).exit_code == 0
    assert len(tracks(data_dir)) == SMALL_FRAGMENTS + 1
    assert not is_scattered(data_dir)


def test_a_library_is_kept_small_while_no_scan_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    asked = []

    def maintain(_: Library) -> None:
        with (tmp_path / "view" / "turns.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        asked.append("maintained")

    monkeypatch.setattr(Library, "maintain", maintain)
    with maintained(library):
        pass
    assert asked == ["maintained"]


def test_whoever_watches_asks_the_library_only_if_something_has_changed(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    song(tmp_path / "music", 100)
    asked: list[list[str]] = [[]]
    of_term = Library.of_term

    def listening(library: Library, term: str, owner: str) -> list[LibraryTrack]:
        if term == location_term(str(tmp_path / "music" / "100.ogg")):
            asked[-1].append(term)
        return of_term(library, term, owner)

    real_sleep = asyncio.sleep

    async def pause(seconds: float, *rest: object) -> None:
        if seconds != 7:
            await real_sleep(seconds, *rest)
            return
        asked.append([])
        if len(asked) == 4:
            (known,) = tracks(data_dir)
            other = Library((data_dir / "library").as_uri(), data_dir / "library-view")
            other.write([Edit(known.track_id, removed)])
        if len(asked) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    monkeypatch.setattr(Library, "of_term", listening)
    monkeypatch.setattr(asyncio, "sleep", pause)
    done = runner.invoke(app, ["scan", str(tmp_path / "music"), "--watch", "--every", "7"])
    assert done.exit_code == 130
    assert list(map(bool, asked)) == [True, True, False, True, False]
    assert done.stdout.count("1 added") == 2


async def test_a_file_that_changes_while_two_places_are_listed_is_read(
    data_dir: Path, tmp_path: Path
) -> None:
    library = Library((data_dir / "library").as_uri(), data_dir / "library-view")
    prints = tmp_path / "fingerprints"
    naming = Naming.open(tmp_path / "catalog", prints)
    session = Session(library, naming, LandmarkIndex(prints), again=False, forget=False)
    place = SingleFile(song(tmp_path / "music", 100))
    before = listed([place])
    for _ in range(2):
        await session.look(Simulated(), before)
    song(tmp_path / "other", 120).replace(place.root)
    await session.look(Simulated(), [*before, *listed([place])])
    assert {track.identity.title for track in tracks(data_dir)} == {"At 100", "At 120"}


def test_whoever_watches_hears_of_a_bad_file_once_and_all_again_once(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    class Listed(Simulated):
        async def hear(self, path: Path) -> Hearing:
            heard.append(path.name)
            return await super().hear(path)

    song(tmp_path / "music", 100)
    (tmp_path / "music" / "bad.ogg").write_bytes(b"nothing to hear")
    pauses = iter(range(3))
    real_sleep = asyncio.sleep

    async def pause(seconds: float, *rest: object) -> None:
        if seconds != 7:
            await real_sleep(seconds, *rest)
        elif next(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Listed)
    monkeypatch.setattr(asyncio, "sleep", pause)
    watching = ["scan", str(tmp_path / "music"), "--watch", "--again", "--every", "7"]
    done = runner.invoke(app, watching)
    assert done.exit_code == 130
    assert heard == ["100.ogg"]
    assert done.stderr.count("bad.ogg") == 1
    assert [line for line in done.stdout.splitlines() if "failed" in line][1:] == []


def test_what_ends_a_scan_keeps_what_is_done_and_leaves_no_worker(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tempi = range(80, 200, 10)
    for bpm in tempi:
        song(tmp_path / "music", bpm)
    command = [sys.executable, "-c", SCAN, "scan", str(tmp_path / "music"), "--jobs", "1"]
    before: dict[str, object] = {}
    for number, words in ((signal.SIGTERM, "what is done is kept"), (signal.SIGKILL, "")):
        with subprocess.Popen(
            [*command, "--partial"],
            process_group=0,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            while process.poll() is None and len(tracks(data_dir)) < len(before) + 2:
                time.sleep(0.2)
            workers = children(process.pid)
            os.kill(process.pid, number)
            told, warned = process.communicate()
        assert process.returncode == -number
        assert words in told
        assert number == signal.SIGKILL or "leaked" not in warned
        after = {track.track_id: track.analysis for track in tracks(data_dir)}
        assert len(before) + 2 <= len(after) < len(tempi)
        assert before.items() <= after.items()
        before = after
        deadline = time.monotonic() + 120
        while any(is_running(worker) for worker in workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert workers
        assert not any(is_running(worker) for worker in workers)
    monkeypatch.setattr("serve_app.cli.library.scan.WorkersEngine", Simulated)
    done = runner.invoke(app, ["scan", str(tmp_path / "music"), "--jobs", "1", "--partial"])
    assert done.exit_code == 0, done.output
    assert f"{len(before)} unchanged, {len(tempi) - len(before)} added" in done.stdout
    after = {track.track_id: track.analysis for track in tracks(data_dir)}
    assert len(after) == len(tempi)
    assert before.items() <= after.items()


def children(pid: int) -> list[int]:
    return [
        int(found)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for found in (task / "children").read_text().split()
        if b"spawn_main" in Path(f"/proc/{found}/cmdline").read_bytes()
    ]


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
