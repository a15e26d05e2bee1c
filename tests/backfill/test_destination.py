"""Tables of a back-fill: whole or not at all, remembered, and of one run at a time."""

from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.dataset as ds
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


def failed(name: str) -> Row:
    return source_row(Trouble(f"/music/{name}", "gone"), "set") | {"code": "c", "message": "m"}


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
    assert (error["location"], error["code"], error["message"]) == ("/music/4.mp3", "c", "m")
    expected = {row["id"] for row in [*rows, heard("3.mp3"), failed("4.mp3")]}
    assert Destination(str(tmp_path / "out")).done() == expected


def test_a_bucket_remembers_as_a_folder_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        assert httpx.put(f"{endpoint}/music").is_success
        place = f"s3://music/out?endpoint={endpoint}&region=us-east-1"
        with Destination(place).only_run():
            Destination(place).put("tracks", [heard("1.mp3")])
            Destination(place).put("errors", [failed("2.mp3")])
        assert Destination(place).done() == {heard("1.mp3")["id"], failed("2.mp3")["id"]}
    finally:
        server.stop()


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
