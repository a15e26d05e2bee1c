import errno
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
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
from serve_app.providers.dumps import musicbrainz, pull
from serve_app.providers.dumps.files import DumpReport
from serve_app.providers.dumps.pull import Dump, Pulling, fetch
from tests.providers.dumps.test_dumps import tar_of
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


def silent(step: str, done: int, total: int | None) -> None:
    pass


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
    (first,) = pulling.parts()
    done_at = first.stat().st_mtime_ns
    report = pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent)
    assert report is not None
    assert report.n_items == N - 2
    assert first.stat().st_mtime_ns == done_at
    assert [int(part.stem) for part in pulling.parts()] == [2, 4, 5]
    assert pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent) is None
    dump.touch()  # another state of it, for all that is known
    again = pulling.run(Dump.MUSICBRAINZ, [str(dump)], silent)
    assert again is not None
    assert again.n_items == N


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
    (pulling.parts_dir / "whole").unlink()
    pulling.parts()[-1].unlink()
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
        for n_here in (100, len(whole)):  # as a kill leaves it, also just before the end
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
