"""`afa.Library`: a library folder from Python. Analysis is tested in test_library.py."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import afa
from serve_app.library.edit import Heard
from serve_app.library.library import Library as Stores
from serve_app.library.track import Place, TrackFile
from tests.conftest import REPOSITORY
from tests.library.library_setting import MODEL_SET, adding, heard, track

ISRC, DEEZER = "QZTST2100001", "123456789"
MODEL = "fake-embedding"
BASE = np.random.default_rng(7).standard_normal(768)


def put(folder: Path, title: str, away: float, **who: object) -> str:
    """Add a track to the library whose sound differs from `BASE` by ``away``; return its id."""
    random = np.random.default_rng(sum(title.encode()))
    vector = BASE + away * random.standard_normal(768)
    unit = (vector / np.linalg.norm(vector)).tolist()
    measured = {"tempo": who.pop("tempo", 120.0), "camelot": who.pop("camelot", "8A")}
    said = heard(title, model=MODEL).features
    features = replace(said, embedding=unit, key=9, mode=0, mood_tags=[], **measured)  # type: ignore[arg-type]
    one = replace(track(title, **who), files=(TrackFile(Place.PATH, f"/music/{title}.flac"),))
    stores = Stores((folder / "library").as_uri(), folder / "view-of-another-machine")
    stores.write([adding(one, Heard(features, MODEL_SET))])
    stores.close()
    return one.track_id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, "Far", 1.0, tempo=90.0, genres=("post-punk",))
    put(tmp_path, "Near", 0.2, year=1980)
    put(tmp_path, "Seed", 0.0, isrc=ISRC, deezer_id=DEEZER, album="Seventeen <Seconds>")
    return tmp_path


@pytest.fixture
def library(folder: Path) -> Iterator[afa.Library]:
    with afa.Library(folder) as library:
        yield library


def test_tracks_are_counted_gone_through_and_found_by_any_id(library: afa.Library) -> None:
    assert len(library) == 3
    assert [one.title for one in library] == ["Seed", "Near", "Far"]
    seed = library[ISRC]
    assert seed == library[f"isrc:{ISRC}"] == library[DEEZER] == library[seed.id]
    assert seed.ids == {"isrc": ISRC, "deezer_id": DEEZER}
    assert (seed.artist, seed.tempo, seed.key, seed.camelot) == ("The Cure", 120.0, "A minor", "8A")
    assert seed.paths == (Path("/music/Seed.flac"),)
    assert repr(seed) == "<LibraryTrack The Cure - Seed: 120.0 BPM, A minor>"
    assert library.get("isrc:QZTST2199999") is None
    with pytest.raises(KeyError, match="nothing like an id"):
        library["nothing like an id"]


def test_a_search_asks_for_words_tempo_year_key_and_tags(library: afa.Library) -> None:
    def titles(*text: str, **wanted: object) -> list[str]:
        return [one.title for one in library.search(*text, **wanted)]  # type: ignore[arg-type]

    assert titles() == ["Seed", "Near", "Far"]
    assert titles("cure sev") == ["Seed"]
    assert titles(tempo=(100, None), limit=1) == ["Seed"]
    assert titles(tempo=(None, 100)) == ["Far"]
    assert titles(year=(1979, 1981)) == ["Near"]
    assert titles(key="8A", tags=["post-punk"]) == ["Far"]
    assert titles(key=["1A", "9B"]) == []


def test_what_sounds_alike_comes_nearest_first(library: afa.Library) -> None:
    near, far = library.similar(ISRC)
    assert [near.track.title, far.track.title] == ["Near", "Far"]
    assert 0 < near.distance < far.distance < 2
    assert library.similar(library[ISRC], 1) == [near]
    assert [one.track.title for one in library.similar(near.track, tempo=(80, 100))] == ["Far"]
    rows = library.embeddings([near.track, library[ISRC]])
    assert (rows.shape, rows.dtype) == ((2, 768), np.float32)
    assert 1 - float(rows[0] @ rows[1]) == pytest.approx(near.distance, abs=1e-5)
    assert library.embeddings([]).shape == (0, 768)


def test_what_is_not_there_says_what_to_do(library: afa.Library, folder: Path) -> None:
    with pytest.raises(afa.LibraryError, match="`add` its file, or `afa scan` it"):
        library.similar("isrc:QZTST2199999")
    stores = Stores((folder / "library").as_uri(), folder / "library-view")
    bare = track("Bare")
    stores.write([adding(bare)])
    with pytest.raises(afa.LibraryError, match="analyse it with `afa scan --again`"):
        library.similar(bare.track_id)
    with pytest.raises(afa.LibraryError, match="other made no embedding of trk_"):
        library.embeddings([library[ISRC]], "other")
    (folder / "file").write_text("")
    with pytest.raises(afa.LibraryError, match="the library cannot be opened"):
        afa.Library(folder / "file")


@pytest.mark.parametrize("key", ["Am", "8a", "H", "13A", "0B", ""])
def test_what_no_track_can_be_is_refused(key: str, library: afa.Library) -> None:
    forms = "minor keys are 1A to 12A, major ones 1B to 12B"
    with pytest.raises(ValueError, match=f"key: '{key}' is not a key; {forms}"):
        library.search(key=key)
    with pytest.raises(ValueError, match=forms):
        library.similar(ISRC, key=["8A", key])
    with pytest.raises(ValueError, match="limit must be 1 or more, not -1"):
        library.search(limit=-1)
    with pytest.raises(ValueError, match="n must be 1 or more, not -1"):
        library.similar(ISRC, -1)


def test_a_closed_library_says_so(folder: Path) -> None:
    with afa.Library(folder) as library:
        seed = library[ISRC]
    library.close()
    assert repr(library) == f"<Library {folder}: closed>"
    asked = (
        library.search,
        library.table,
        lambda: library.similar(ISRC),
        lambda: library.embeddings([seed], "any"),
        lambda: len(library),
    )
    for ask in asked:
        with pytest.raises(afa.LibraryError, match="the library is closed"):
            ask()


def test_an_empty_library_has_the_same_columns(library: afa.Library, tmp_path: Path) -> None:
    with afa.Library(tmp_path / "none") as empty:
        assert empty.table().schema == library.table().schema
        assert len(empty.table()) == 0
    assert library.table().schema.field("tags").type.value_type == "string"


def test_a_library_is_a_table(library: afa.Library) -> None:
    table = library.table()
    assert table.column_names[:4] == ["id", "artist", "title", "album"]
    assert table["title"].to_pylist() == ["Seed", "Near", "Far"]
    assert library.table(library.search("near"))["year"].to_pylist() == [1980]
    shown = library._repr_html_()
    assert "3 tracks, the newest 3 of them" in shown
    assert "<td>Seventeen &lt;Seconds&gt;</td>" in shown
    assert repr(library).endswith(": 3 tracks>")


def test_what_others_write_is_seen_at_once(library: afa.Library, folder: Path) -> None:
    put(folder, "New", 0.3)
    assert [one.title for one in library.search(limit=1)] == ["New"]
    with pytest.raises(ValueError, match="tempo: 130 is above 120"):
        library.search(tempo=(130, 120))
    assert len(library) == 4


def test_no_server_comes_with_it(folder: Path) -> None:
    servers = ("ray", "fastapi", "uvicorn")
    code = (
        "import sys, afa; before = 'serve_app' in sys.modules; "
        f"found = afa.Library({str(folder)!r}).similar({ISRC!r}); "
        f"print(before, len(found), [name for name in {servers} if name in sys.modules])"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False 2 []"
