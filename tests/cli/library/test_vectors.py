"""`afa models embed` on a real library and a real checkpoint."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from serve_app.cli.main import app
from serve_app.library.edit import Edit, removed
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR, LibraryTrack, Place, TrackFile
from serve_app.services.similar.neighbours import LibraryNeighbours
from serve_app.services.similar.search import Search
from serve_app.services.similar.wanted import Seed, Wanted
from tests.data.audio_files import click_track, encode
from tests.library.library_setting import adding, heard, refuse_writes, track

USED, MODEL = "simulated", "efficientat-mn04"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("AFA_LIBRARY", f"file://{tmp_path}/shared")
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AFA_DEVICE", "cpu")
    return Library(f"file://{tmp_path}/shared", tmp_path / "view")


def put(library: Library, path: Path) -> LibraryTrack:
    one = replace(track(path.stem), files=(TrackFile(Place.PATH, str(path)),))
    library.write([adding(one, heard(path.stem))])
    return one


def run(model: str) -> Result:
    return CliRunner().invoke(app, ["models", "embed", model])


def test_a_further_model_is_searched_beside_the_one_in_use(
    library: Library, tmp_path: Path
) -> None:
    for bpm in (90, 150):
        put(library, encode(tmp_path / f"{bpm}.ogg", click_track(bpm, 3), "ogg", "vorbis"))
    bad = tmp_path / "bad.ogg"
    bad.write_text("nothing to hear")
    broken = put(library, bad)
    before = {one.track_id: library.whole(one.track_id) for one in library.all([OPERATOR])}
    done = run(MODEL)
    assert (done.exit_code, done.stdout) == (1, "2 embedded, 0 were so already, 1 failed\n")
    assert f"{bad}: " in done.stderr
    library.write([Edit(broken.track_id, removed)])
    assert run(MODEL).stdout == "0 embedded, 2 were so already, 0 failed\n"
    seed, other = library.all([OPERATOR])
    assert seed.embeddings == (USED, MODEL)
    assert all(library.whole(one.track_id) == before[one.track_id] for one in (seed, other))
    wanted = Wanted(5, [Seed(track=seed.track_id)], model=MODEL)
    model, (near,) = Search(LibraryNeighbours(library)).similar(OPERATOR, wanted, [seed])
    assert (model, near.track.track_id) == (MODEL, other.track_id)
    assert 0 < near.distance < 1


def test_what_cannot_be_done_is_said(library: Library, tmp_path: Path) -> None:
    assert "`afa scan FOLDER` adds them" in run(MODEL).stderr
    put(library, encode(tmp_path / "90.ogg", click_track(90, 3), "ogg", "vorbis"))
    for model, why in (("nobody-s", "nobody-s"), ("musicnn-mtt", "musicnn-mtt")):
        refused = run(model)
        assert (refused.exit_code, why in refused.stderr) == (1, True), refused.stderr


def test_a_library_that_cannot_be_written_is_told(library: Library, tmp_path: Path) -> None:
    put(library, encode(tmp_path / "90.ogg", click_track(90, 3), "ogg", "vorbis"))
    assert run(MODEL).stdout == "1 embedded, 0 were so already, 0 failed\n"
    put(library, encode(tmp_path / "150.ogg", click_track(150, 3), "ogg", "vorbis"))
    refuse_writes(tmp_path / "shared" / "vectors" / f"{MODEL}.lance")
    refused = run(MODEL)
    assert refused.exit_code == 1
    assert "afa: the store of the library cannot be reached" in refused.stderr
