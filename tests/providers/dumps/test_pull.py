import errno
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import Result
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from serve_app.cli.main import app
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.catalog import build
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.dumps import features, musicbrainz, pull
from serve_app.providers.dumps.files import DumpReport
from serve_app.providers.dumps.pull import Dump, Pulling, fetch
from tests.providers.dumps.test_dumps import silent, tar_of
from tests.providers.serving import serving

N = 5


def mbid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"id": mbid(n), "title": f"Song {n}", "artist-credit": [{"name": "Ada"}]})
        for n in range(N)
    ]
    body = "\n".join(lines).encode() + b"\n"
    return tar_of(tmp_path / "recording.tar.xz", {"mbdump/recording": body}, "w:xz")


def converted(room: Path) -> list[Path]:
    return sorted(room.glob("parts*/*.parquet"))


def test_a_conversion_goes_on_after_the_last_whole_part(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PART_ITEMS", 2)
    real = musicbrainz.identities_in

    def dies(lines: Iterable[bytes], dump: Path, report: DumpReport) -> Iterator[TrackIdentity]:
        for identity in real(lines, dump, report):
            if identity.mbid == mbid(3):
                raise MemoryError
            yield identity

    pulling = Pulling(tmp_path / "room")
    with monkeypatch.context() as patched:
        patched.setattr(musicbrainz, "identities_in", dies)
        with pytest.raises(MemoryError):
            pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent)
    (first,) = converted(tmp_path / "room")
    assert not pulling.parts()
    done_at = first.stat().st_mtime_ns
    report = pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent)
    assert (report.n_items, report.n_used) == (N, N)
    assert first.stat().st_mtime_ns == done_at
    assert [int(part.stem) for part in pulling.parts()] == [2, 4, 5]
    assert pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent) == report
    assert first.stat().st_mtime_ns == done_at
    dump.touch()  # it may have changed, as far as one can tell
    assert pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent) == report
    assert not first.exists()


def test_a_conversion_tells_how_much_there_is(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PART_ITEMS", 2)
    monkeypatch.setattr(pull, "TOLD_ITEMS", 1)
    told: list[tuple[str, int, int | None]] = []
    pulling = Pulling(tmp_path / "room")
    pulling.run(Dump.MUSICBRAINZ, [str(dump)], lambda *words: told.append(words))
    assert told == [("converting recordings", n, N) for n in range(1, N + 1)]
    told.clear()
    last = pulling.parts()[-1]
    last.with_name("whole").unlink()
    last.unlink()
    pulling.run(Dump.MUSICBRAINZ, [str(dump)], lambda *words: told.append(words))
    passed = [("passing over what is converted", n, N - 1) for n in range(1, N)]
    assert told == [*passed, ("converting recordings", N, N)]


def test_a_fetch_goes_on_where_it_ended(tmp_path: Path) -> None:
    served = tmp_path / "served.bin"
    served.write_bytes(bytes(range(256)) * 40)
    asked: list[str | None] = []

    def answer(request: Request) -> Response:
        asked.append(request.headers.get("range"))
        return FileResponse(served)

    room = tmp_path / "room"
    whole = served.read_bytes()
    with serving(Starlette(routes=[Route("/a/dump.bin", answer)])) as url:
        first = fetch(f"{url}/a/dump.bin", room, silent)
        assert first.read_bytes() == whole
        partial = room / "dump.bin.partial"
        for n_here in (100, len(whole)):  # as after a kill, even just before the end
            first.rename(partial)
            partial.write_bytes(whole[:n_here])
            assert fetch(f"{url}/a/dump.bin", room, silent).read_bytes() == whole
        first.rename(partial)
        partial.write_bytes(b"of another state")
        served.write_bytes(whole[::-1])
        assert fetch(f"{url}/a/dump.bin", room, silent).read_bytes() == whole[::-1]
    assert asked == [None, "bytes=100-", f"bytes={len(whole)}-", "bytes=16-"]


def test_one_command_makes_a_dump_the_catalog(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    runner = CliRunner()
    done = runner.invoke(app, ["catalog", "pull", "musicbrainz", "--from", str(dump)])
    assert done.exit_code == 0, done.output
    rhythm, tonal = tmp_path / "rhythm.csv", tmp_path / "tonal.csv"
    rhythm.write_text(f"mbid,bpm\n{mbid(1)},96.5\n")
    tonal.write_text(f"mbid,key_key,key_scale\n{mbid(1)},A,minor\n")
    sources = ["--from", str(tonal), "--from", str(rhythm)]
    done = runner.invoke(app, ["catalog", "pull", "acousticbrainz", *sources])
    assert done.exit_code == 0, done.output
    found = Catalog.open(tmp_path / "data" / "catalog").by_id(TrackId(Platform.MBID, mbid(1)))
    assert found is not None
    assert (found.title, found.tempo, found.key) == ("Song 1", 96.5, 9)
    for wrong, message in ([], "Missing option"), (["--from", "no.tar.xz"], "no such file"):
        told = runner.invoke(app, ["catalog", "pull", "musicbrainz", *wrong])
        assert told.exit_code != 0
        assert message in told.output


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device; "),
    ],
)
@pytest.mark.parametrize("step", ["converting", "importing"])
def test_what_is_stopped_says_that_it_goes_on(
    dump: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    fault: BaseException,
    status: int,
    message: str,
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    command = ["catalog", "pull", "musicbrainz", "--from", str(dump)]

    def ends(*_: object) -> NoReturn:
        raise fault

    with monkeypatch.context() as patched:
        where, name = (musicbrainz, "identities_in") if step == "converting" else (build, "_fill")
        patched.setattr(where, name, ends)
        done = CliRunner().invoke(app, command)
    assert done.exit_code == status, done.output
    told = " ".join(done.output.split())
    assert message in told
    assert "the same command goes on from there" in told
    assert CliRunner().invoke(app, command).exit_code == 0


def pull_it(what: str, *files: Path) -> Result:
    sources = [word for file in files for word in ("--from", str(file))]
    return CliRunner().invoke(app, ["catalog", "pull", what, *sources])


def titles(data_dir: Path) -> list[str]:
    catalog = Catalog.open(data_dir / "catalog")
    found = [catalog.by_id(TrackId(Platform.MBID, mbid(n))) for n in range(N)]
    return ["" if one is None else one.title for one in found]


def test_what_was_pulled_stays_until_the_next_dump_is_whole(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(pull, "PART_ITEMS", 2)
    assert pull_it("musicbrainz", dump).exit_code == 0
    whole = titles(tmp_path / "data")
    assert whole == [f"Song {n}" for n in range(N)]
    rhythm, tonal = tmp_path / "rhythm.csv", tmp_path / "tonal.csv"
    rhythm.write_text(f"mbid,bpm\n{mbid(1)},96.5\n")
    tonal.write_text(f"mbid,key_key,key_scale\n{mbid(1)},A,minor\n")

    newer = tmp_path / "newer.tar.xz"
    newer.write_bytes(dump.read_bytes())
    room = tmp_path / "data" / "pulled" / "musicbrainz"
    real = musicbrainz.identities_in

    def dies(lines: Iterable[bytes], dump: Path, report: DumpReport) -> Iterator[TrackIdentity]:
        if report.n_items == 2:
            raise KeyboardInterrupt
        return real(lines, dump, report)

    with monkeypatch.context() as patched:
        patched.setattr(musicbrainz, "identities_in", dies)
        assert pull_it("musicbrainz", newer).exit_code == 130
    assert len(converted(room)) == 3 + 1
    assert pull_it("acousticbrainz", tonal, rhythm).exit_code == 0
    assert titles(tmp_path / "data") == whole

    for name, body in (
        ("nonsense.tar", b"nonsense"),
        ("empty.tar", tar_of(tmp_path / "e", {"mbdump/recording": b""}, "w").read_bytes()),
    ):
        (tmp_path / name).write_bytes(body)
        refused = pull_it("musicbrainz", tmp_path / name)
        assert refused.exit_code == 1
        assert name in refused.output
        assert refused.output.count("\n") == 1
        assert len(converted(room)) == 3 + 1
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert pull_it("acousticbrainz", tonal, tmp_path / "other.csv").exit_code == 1
    assert titles(tmp_path / "data") == whole

    done = pull_it("musicbrainz", newer)
    assert done.exit_code == 0
    assert f"{N} of {N} entries" in done.output
    assert len(converted(room)) == 3
    assert titles(tmp_path / "data") == whole


def test_a_kill_while_parts_are_removed_leaves_no_gap(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PART_ITEMS", 2)
    pulling = Pulling(tmp_path / "room")
    pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent)
    (pulling.parts()[0].with_name("whole")).unlink()
    other = dump.with_name("other.tar.xz")
    other.write_bytes(dump.read_bytes())

    def half(folder: Path, **_: object) -> None:
        if folder.exists():
            min(folder.glob("*.parquet")).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pull.shutil, "rmtree", half)
        with pytest.raises(KeyboardInterrupt):
            pulling.run(Dump.MUSICBRAINZ, [str(other)], silent)
    assert pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent).n_items == N
    assert [int(part.stem) for part in pulling.parts()] == [2, 4, 5]


def test_one_pull_at_a_time(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    with build.locked(tmp_path / "data" / "pulled", "pull"):
        refused = pull_it("musicbrainz", dump)
    assert refused.exit_code == 1
    assert "another pull into" in refused.output
    assert pull_it("musicbrainz", dump).exit_code == 0


def test_a_damaged_dump_keeps_what_is_converted_and_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(pull, "PART_ITEMS", 2)
    draw = random.Random(1)
    lines = [
        json.dumps({"id": mbid(n), "title": f"Song {n}", "x": draw.randbytes(500_000).hex()})
        for n in range(N)
    ]
    served = tar_of(tmp_path / "a.tar.gz", {"mbdump/recording": "\n".join(lines).encode()}, "w:gz")
    whole = served.read_bytes()
    served.write_bytes(whole[: len(whole) * 3 // 4])

    def answer(request: Request) -> Response:
        return FileResponse(served)

    with serving(Starlette(routes=[Route("/a.tar.gz", answer)])) as url:
        command = ["catalog", "pull", "musicbrainz", "--from", f"{url}/a.tar.gz"]
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 1
        assert "fetch it again" in refused.output
        assert refused.output.count("\n") == 1
        assert len(converted(tmp_path / "data" / "pulled" / "musicbrainz")) == 1
        served.write_bytes(whole)
        assert CliRunner().invoke(app, command).exit_code == 0


def test_a_kill_before_the_first_byte_of_another_state_mixes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, room = tmp_path / "served.bin", tmp_path / "room"
    served.write_bytes(bytes(range(256)) * 40)

    def answer(request: Request) -> Response:
        return FileResponse(served)

    write_text = Path.write_text

    def dies(path: Path, text: str) -> NoReturn:
        write_text(path, text)
        raise KeyboardInterrupt

    with serving(Starlette(routes=[Route("/dump.bin", answer)])) as url:
        fetch(f"{url}/dump.bin", room, silent).rename(room / "dump.bin.partial")
        (room / "dump.bin.partial").write_bytes(b"begun")
        served.write_bytes(bytes(reversed(range(256))) * 50)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_text", dies)
            with pytest.raises(KeyboardInterrupt):
                fetch(f"{url}/dump.bin", room, silent)
        assert fetch(f"{url}/dump.bin", room, silent).read_bytes() == served.read_bytes()


@pytest.mark.parametrize("killed_in", ["rhythm", "tonal", "converting"])
def test_a_conversion_of_features_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    rhythm, tonal = tmp_path / "rhythm.csv", tmp_path / "tonal.csv"
    ids = [f"{digit}{mbid(n)[1:]}" for n, digit in enumerate(features.DIGITS)]
    rhythm.write_text("mbid,bpm\n" + "".join(f"{one},96.5\n" for one in ids))
    tonal.write_text("mbid,key_key,key_scale\n" + "".join(f"{one},A,minor\n" for one in ids))
    pulling, steps = Pulling(tmp_path / "room"), []

    def dies(step: str, done: int, total: int | None) -> None:
        if killed_in in step and (done == 3 or step.startswith("reading")):
            raise KeyboardInterrupt

    sources = [str(tonal), str(rhythm)]
    with pytest.raises(KeyboardInterrupt):
        pulling.run(Dump.ACOUSTICBRAINZ, sources, dies)
    assert not pulling.parts()
    before = {part: part.stat().st_mtime_ns for part in converted(tmp_path / "room")}
    report = pulling.run(Dump.ACOUSTICBRAINZ, sources, lambda step, done, total: steps.append(step))
    assert (report.n_items, report.n_used) == (32, 32)
    assert len(pulling.parts()) == 16
    assert len(before) == (3 if killed_in == "converting" else 0)
    assert all(part.stat().st_mtime_ns == at for part, at in before.items())
    read = [step for step in steps if step.startswith("reading")]
    assert len(read) == {"rhythm": 2, "tonal": 1, "converting": 0}[killed_in]
    assert {one.name for one in pulling.parts()[0].parent.iterdir()} == {
        "whole", *(f"{digit}.parquet" for digit in features.DIGITS)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://127.0.0.1:9/", "names no file; give the whole address of the archive"),
        ("http://127.0.0.1:port/recording.tar.xz", "Invalid port"),
        ("http://[a/recording.tar.xz", "Invalid IPv6 URL"),
        ("HTTP://127.0.0.1:9/r.tar.xz", "HTTP://127.0.0.1:9/r.tar.xz: [Errno 111] Connection ref"),
        ("ftp://127.0.0.1/r.tar.xz", "no such file, and no address with http:// or https://"),
    ],
)
def test_an_address_that_is_none_is_a_line(
    address: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    done = CliRunner().invoke(app, ["catalog", "pull", "musicbrainz", "--from", address])
    assert done.exit_code == 1
    assert done.stderr.startswith("afa: ")
    assert told in done.stderr


def test_an_error_is_told_with_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    with serving(Starlette()) as url:
        address = f"{url}/recording.tar.xz"
        done = CliRunner().invoke(app, ["catalog", "pull", "musicbrainz", "--from", address])
    assert (done.exit_code, done.stderr) == (1, f"afa: {address} answers 404 Not Found\n")
