"""Tables of a back-fill: complete or absent, remembered, and written by one run at a time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from serve_app.backfill.destination import Destination, DestinationError
from serve_app.backfill.rows import Row, heard_row, row_id, source_row
from serve_app.domain.identity import TrackIdentity
from serve_app.library.track import Place, TrackFile
from serve_app.services.scan.places import Found, Trouble
from serve_app.services.simulation.features import simulated_features


def heard(name: str) -> Row:
    found = Found(f"/music/{name}", 5, 7)
    file = TrackFile(Place.PATH, found.location, "c" * 64, "a" * 64, 5, 7)
    who = TrackIdentity(artist="A", title=name, source="tags")
    return heard_row(source_row(found, "set"), file, "trk_1", who, simulated_features(name))


def failed(name: str, code: str = "audio_too_short") -> Row:
    return source_row(Trouble(f"/music/{name}", "gone"), "set") | {"code": code, "message": "m"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    assert httpx.put(f"{endpoint}/music", timeout=120).is_success
    yield f"s3://music/out?endpoint={endpoint}&region=us-east-1"
    server.stop()


def test_what_was_put_is_read_as_one_table_and_known_by_the_next_run(tmp_path: Path) -> None:
    place = Destination(str(tmp_path / "out"))
    assert place.done() == set()
    rows = [heard("1.mp3"), heard("2.mp3")]
    place.put("tracks", rows)
    place.put("tracks", [heard("3.mp3")])
    place.put("errors", [failed("4.mp3")])
    table = ds.dataset(tmp_path / "out" / "tracks").to_table()
    assert sorted(table["location"].to_pylist()) == [f"/music/{n}.mp3" for n in (1, 2, 3)]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 768)
    one = table.filter(ds.field("location") == "/music/1.mp3").to_pylist()[0]
    features = simulated_features("1.mp3")
    assert one["tempo"] == features.tempo
    assert one["beats"] == features.beats
    assert one["embedding"] == pytest.approx(features.embedding or [0.0] * 768, abs=1e-6)
    assert dict(one["models"]) == features.models
    (error,) = ds.dataset(tmp_path / "out" / "errors").to_table().to_pylist()
    assert (error["location"], error["code"]) == ("/music/4.mp3", "audio_too_short")
    assert error["message"] == "m"
    expected = {row["id"] for row in [*rows, heard("3.mp3"), failed("4.mp3")]}
    assert Destination(str(tmp_path / "out")).done() == expected


def test_a_bucket_remembers_as_a_folder_does(bucket: str) -> None:
    with Destination(bucket).only_run():
        Destination(bucket).put("tracks", [heard("1.mp3")])
        Destination(bucket).put("errors", [failed("2.mp3"), failed("3.mp3", "unreadable")])
    assert Destination(bucket).done() == {heard("1.mp3")["id"], failed("2.mp3")["id"]}


def test_errors_that_may_pass_are_taken_out_to_be_tried_again(tmp_path: Path) -> None:
    place = Destination(str(tmp_path))
    passing = ("unreadable", "internal_error", "service_unavailable")
    lasting = ("unprocessable_audio", "audio_too_long", "audio_too_short", "url_fetch_failed")
    place.put("errors", [failed(code, code) for code in (*passing, *lasting)])
    place.put("errors", [failed("1.mp3", "unreadable")])
    place.put("errors", [failed("2.mp3")])
    files = {path: path.read_bytes() for path in (tmp_path / "errors").iterdir()}
    assert place.done() == {failed(name)["id"] for name in (*lasting, "2.mp3")}
    assert {path: path.read_bytes() for path in (tmp_path / "errors").iterdir()} == files
    place.put("errors", [failed("1.mp3", "internal_error")])
    settled = ("1.mp3", *passing[1:], *lasting)
    place.drop_passing({failed(name)["location"] for name in settled})
    codes = ds.dataset(tmp_path / "errors").to_table()["code"].to_pylist()
    assert sorted(codes) == sorted(("unreadable", "internal_error", *lasting, "audio_too_short"))


def test_a_store_that_is_away_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    place = Destination("s3://music/out?endpoint=http://127.0.0.1:9&region=us-east-1")
    told = r"^s3://music/out.* cannot be read or written \(.*\); see to it and run .* again: .*$"
    with pytest.raises(DestinationError, match=told):
        place.done()
    with pytest.raises(DestinationError, match=told):
        place.put("errors", [failed("1.mp3")])


FULL = """
import os
os.environ["TMPDIR"] = folder = os.environ["FOLDER"]
import sys
from obstore.store import MemoryStore
from serve_app.backfill.destination import Destination, DestinationError
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.scan.places import FULL, Found, fetched
from serve_app.services.scan.table import Table
place = Destination(folder)
row = {"id": "i", "location": "l", "made_by": "m", "code": "c", "message": os.urandom(99999).hex()}
try:
    place.put("errors", [row])
except DestinationError as error:
    print(error)
store = MemoryStore()
store.put("a.mp3", b"1" * 99999)
url, port, listed = sys.argv[1:]
table = Table(listed, UrlGuard([int(port)], ["127.0.0.0/8"]))
for at_hand in (fetched(store, "a.mp3"), table.at_hand(Found(url, None, None))):
    try:
        at_hand.__enter__()
    except OSError as error:
        print(error.errno in FULL)
"""


class Sending(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"1" * 99999)


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    mounted = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = 'mount -t tmpfs -o size=64k none "$FOLDER"'
    environment = os.environ | {"FOLDER": str(tmp_path)}
    if subprocess.run([*mounted, mount], env=environment, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    listed = tmp_path.with_suffix(".parquet")
    pq.write_table(pa.table({"url": ["-"]}), listed)
    with HTTPServer(("127.0.0.1", 0), Sending) as server:
        Thread(target=server.handle_request, daemon=True).start()
        port = str(server.server_port)
        given = (f"http://127.0.0.1:{port}/a.mp3", port, str(listed))
        done = subprocess.run(
            [*mounted, f'{mount} && exec "$@"', "sh", sys.executable, "-c", FULL, *given],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
    put, *fetches = done.stdout.splitlines()
    assert put.startswith(f"{tmp_path} cannot be read or written (")
    assert "No space left on device" in put
    assert fetches == ["True", "True"]


@pytest.mark.parametrize("place", ["gs://music/out", "s3://", "file", "file/below"])
def test_what_is_no_destination_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    told = rf"cannot write tables to {place} \(.*\); name a folder or s3://"
    with pytest.raises(DestinationError, match=told):
        Destination(place)


def test_another_table_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "errors").mkdir()
    pq.write_table(pa.table({"other": [1]}), tmp_path / "errors" / "other.parquet")
    with pytest.raises(DestinationError, match=r"errors/other.parquet .*\); remove it"):
        Destination(str(tmp_path)).done()


def test_the_same_rows_are_one_file_however_often_they_are_put(tmp_path: Path) -> None:
    place = Destination(tmp_path.as_uri())
    place.put("tracks", [heard("1.mp3"), heard("2.mp3")])
    place.put("tracks", [heard("2.mp3"), heard("1.mp3")])
    place.put("tracks", [])
    assert len(list((tmp_path / "tracks").iterdir())) == 1


def test_a_torn_file_is_told_by_name(tmp_path: Path) -> None:
    place = Destination(str(tmp_path))
    place.put("tracks", [heard("1.mp3")])
    (part,) = (tmp_path / "tracks").iterdir()
    part.write_bytes(part.read_bytes()[:500])
    with pytest.raises(DestinationError, match=rf"tracks/{part.name} .* remove it and run again"):
        place.done()


def test_one_run_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    with Destination(str(tmp_path)).only_run():
        second = Destination(str(tmp_path)).only_run()
        with pytest.raises(DestinationError, match="another back-fill writes to"):
            second.__enter__()
    with Destination(str(tmp_path)).only_run():
        pass


def test_a_row_is_another_when_the_file_or_the_checkpoints_are() -> None:
    names = {
        row_id("/a", 1, 2, "set"),
        row_id("/b", 1, 2, "set"),
        row_id("/a", 2, 2, "set"),
        row_id("/a", 1, 3, "set"),
        row_id("/a", 1, 2, "other"),
        row_id("/a", None, None, "set"),
    }
    assert len(names) == 6
