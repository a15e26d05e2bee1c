"""Audio that a Parquet file names."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serve_app.domain.errors import UrlFetchError
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.scan.places import Found, Trouble
from serve_app.services.scan.table import Table
from tests.conftest import DEMO_TRACK


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def table(folder: Path, *ports: int, **columns: Any) -> Table:
    pq.write_table(pa.table(columns), folder / "list.parquet")
    return Table(folder / "list.parquet", UrlGuard(ports=ports, networks=["127.0.0.0/8"]))


def test_paths_are_looked_at_and_addresses_taken_as_they_are(tmp_path: Path) -> None:
    song = tmp_path / "song.mp3"
    song.write_bytes(b"12345")
    named = [str(song), str(tmp_path / "gone.mp3"), "https://host/a.mp3", "s3://b/a.mp3", None]
    place = table(tmp_path, note=["x"] * 5, path=named)
    found = list(place.find())
    of_song = song.stat()
    assert found[0] == Found(str(song), 5, of_song.st_mtime_ns, of_song.st_ctime_ns)
    assert isinstance(found[1], Trouble)
    assert found[2:4] == [
        Found("https://host/a.mp3", None, None),
        Found("s3://b/a.mp3", None, None),
    ]
    assert isinstance(found[4], Trouble)
    assert place.holds("s3://b/a.mp3")
    assert not place.holds("s3://b/b.mp3")
    with place.at_hand(found[0]) as path:
        assert path == song


def test_an_address_is_fetched_and_let_go_of(tmp_path: Path, port: int) -> None:
    (tmp_path / "a song.mp3").write_bytes(DEMO_TRACK.read_bytes())
    address = f"http://127.0.0.1:{port}/a%20song.mp3"
    place = table(tmp_path, port, url=[address])
    (found,) = place.find()
    assert isinstance(found, Found)
    with place.at_hand(found) as path:
        assert path.name == "a song.mp3"
        assert path.read_bytes() == DEMO_TRACK.read_bytes()
    assert not path.exists()


def test_an_address_that_may_not_be_fetched_is_the_rows_own_error(tmp_path: Path) -> None:
    place = table(tmp_path, 80, url=["http://127.0.0.1:99/a.mp3"])
    (found,) = place.find()
    assert isinstance(found, Found)
    with pytest.raises(UrlFetchError), place.at_hand(found):
        pass


def test_a_host_that_is_away_is_no_error_of_the_address(tmp_path: Path, port: int) -> None:
    gone, away = f"http://127.0.0.1:{port}/gone.mp3", "http://127.0.0.1:9/a.mp3"
    place = table(tmp_path, port, 9, url=[gone, away])
    first, second = (one for one in place.find() if isinstance(one, Found))
    with pytest.raises(UrlFetchError, match="answers 404"), place.at_hand(first):
        pass
    with pytest.raises(OSError, match="did not answer"), place.at_hand(second):
        pass


def test_schemes_are_taken_in_any_case_and_others_refused(tmp_path: Path) -> None:
    named = [
        "HTTPS://Host/A.mp3",
        "S3://b/A.mp3",
        "HTTP://h/a",
        "file:///a.mp3",
        "s3://b",
        "GS://b/a",
    ]
    *found, file, bucket, other = table(tmp_path, path=named).find()
    assert [one.location for one in found] == ["https://Host/A.mp3", "s3://b/A.mp3", "http://h/a"]
    assert all(isinstance(one, Found) for one in found)
    refused = "file:// is not read; name a path, s3:// or a web address"
    assert file == Trouble("file:///a.mp3", refused)
    assert bucket == Trouble("s3://b", "names no object; write s3://bucket/key")
    assert isinstance(other, Trouble)


def test_a_row_that_names_nothing_or_no_path_is_its_own_trouble(tmp_path: Path) -> None:
    place = table(tmp_path, path=[None, "", "a\0b.mp3", None])
    path = tmp_path / "list.parquet"
    assert [one.location for one in place.find()] == [
        *(f"{path}, row 1", f"{path}, row 2", "a\\0b.mp3", f"{path}, row 4")
    ]
    assert all(isinstance(one, Trouble) for one in place.find())


def test_the_first_column_of_text_is_read(tmp_path: Path) -> None:
    s3 = pa.array(["s3://b/1.mp3"])
    for text in (s3, s3.cast(pa.large_string()), s3.dictionary_encode()):
        assert list(table(tmp_path, location=[1], url=text).find()) == [
            Found("s3://b/1.mp3", None, None)
        ]
    for other in ([1], [b"s3://b/1.mp3"], [{"at": "s3://b/1.mp3"}]):
        with pytest.raises(ValueError, match=r"no column of text named .*; it has path \("):
            table(tmp_path, path=other)


def test_a_table_without_such_a_column_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"named location, .*; it has artist \(string\), id"):
        table(tmp_path, artist=["a"], id=["1"])
    (tmp_path / "other.parquet").write_bytes(b"no table")
    with pytest.raises(ValueError, match="is no Parquet file"):
        Table(tmp_path / "other.parquet", UrlGuard())
