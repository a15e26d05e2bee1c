"""What a run remembers, and what ends it, without the actors."""

from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from pipelines.audio.waveform import AudioTooShortError
from serve_app.backfill.destination import Destination
from serve_app.backfill.hearer import HearerOptions, _row
from serve_app.backfill.run import Actors, Backfill, NodeFullError, Report
from serve_app.composition.options import ModelOptions
from serve_app.library.library import Library
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.scan.places import Bucket, Found, Place
from serve_app.services.scan.table import Table


def backfill(folder: Path, place: Place) -> Backfill:
    options = ModelOptions(model_dir=folder / "models")
    return Backfill(
        Library((folder / "library").as_uri(), folder / "view"),
        Destination(str(folder / "out")),
        HearerOptions(place, options, options, folder / "no", folder / "none"),
        Actors(1, 1, 0),
        lambda _: None,
        lambda: None,
    )


def codes(folder: Path) -> list[tuple[str, str]]:
    rows = ds.dataset(folder / "out" / "errors").to_table().to_pylist()
    return sorted((row["location"], row["code"]) for row in rows)


def test_what_could_not_be_listed_is_told_anew_by_every_run(tmp_path: Path) -> None:
    listed = tmp_path / "list.parquet"
    gone = str(tmp_path / "gone.mp3")
    pq.write_table(pa.table({"path": [gone, None, None]}), listed)
    place = Table(listed, UrlGuard())
    expected = [(gone, "unreadable"), *((f"{listed}, row {n}", "unreadable") for n in (2, 3))]
    for _ in range(2):
        run = backfill(tmp_path, place)
        run.run(list(place.find()))
        assert run.report == Report(errors=3, passing=3)
        assert codes(tmp_path) == sorted(expected)


def test_a_store_that_went_away_costs_no_file_its_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    for key in ("", "/away.mp3", "/short.mp3"):
        assert httpx.put(f"{endpoint}/music{key}", timeout=120).is_success
    place = Bucket(f"s3://music?endpoint={endpoint}&region=us-east-1")
    away, short = listed = [one for one in place.find() if isinstance(one, Found)]
    server.stop()
    with pytest.raises(OSError, match="Generic S3 error") as caught, place.at_hand(away):
        pass
    run = backfill(tmp_path, place)
    run._enter([_row(away, caught.value), _row(short, AudioTooShortError("short"))])
    run._write()
    assert run.report == Report(errors=2, passing=1)
    assert codes(tmp_path) == [
        (away.location, "unreadable"),
        (short.location, "audio_too_short"),
    ]
    again = backfill(tmp_path, place)
    assert list(again._left(listed)) == [away]
    assert again.report == Report(before=1)
    assert len(codes(tmp_path)) == 2, "a run that is killed here loses no row"
    monkeypatch.setattr(again, "_answers", lambda todo: [[_row(away, AudioTooShortError("short"))]])
    again.report = Report()
    again.run(listed)
    assert again.report == Report(before=1, errors=1)
    assert codes(tmp_path) == [(one.location, "audio_too_short") for one in listed]


def test_a_run_leaves_the_errors_of_what_it_did_not_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Found(f"s3://{bucket}/1.mp3", 1, 1) for bucket in ("music", "other"))
    run = backfill(tmp_path, Bucket("s3://music"))
    run._enter([_row(first, MemoryError())])
    run._write()
    expected = codes(tmp_path)
    run = backfill(tmp_path, Bucket("s3://other"))
    monkeypatch.setattr(run, "_answers", lambda todo: [[_row(second, AudioTooShortError("short"))]])
    run.run([second])
    assert codes(tmp_path) == [*expected, (second.location, "audio_too_short")]

    def stopped(todo: object) -> None:
        raise KeyboardInterrupt

    run = backfill(tmp_path, Bucket("s3://music"))
    monkeypatch.setattr(run, "_answers", stopped)
    with pytest.raises(KeyboardInterrupt):
        run.run([first, first])
    assert codes(tmp_path) == [*expected, (second.location, "audio_too_short")]


def test_an_error_goes_though_the_run_that_heard_the_file_was_killed(tmp_path: Path) -> None:
    found = Found("s3://music/1.mp3", 1, 1)
    for error in (MemoryError(), AudioTooShortError("short")):
        run = backfill(tmp_path, Bucket("s3://music"))
        # With another file, so that the tables' names differ.
        beside = Found(f"s3://music/{error}.mp3", 1, 1)
        run._enter([_row(found, error), _row(beside, AudioTooShortError("short"))])
        run._write()
    assert len(codes(tmp_path)) == 4
    run = backfill(tmp_path, Bucket("s3://music"))
    run.run([found])
    assert run.report == Report(before=1)
    assert {code for _, code in codes(tmp_path)} == {"audio_too_short"}


def test_faults_of_ours_are_tried_again(tmp_path: Path) -> None:
    run = backfill(tmp_path, Bucket("s3://music"))
    found = [Found(f"s3://music/{n}.mp3", 1, 1) for n in range(2)]
    run._enter([_row(found[0], RuntimeError("lost")), _row(found[1], MemoryError())])
    run._write()
    assert run.report == Report(errors=2, passing=2)
    assert list(backfill(tmp_path, Bucket("s3://music"))._left(found)) == found


def test_a_full_disk_of_a_node_ends_the_run_and_is_no_error_of_the_file(tmp_path: Path) -> None:
    run = backfill(tmp_path, Bucket("s3://music"))
    full, short = (Found(f"s3://music/{n}.mp3", 1, 1) for n in range(2))
    answers = [
        _row(full, OSError(28, "No space left on device", "/tmp/0.mp3")),  # noqa: S108
        _row(short, AudioTooShortError("short")),
    ]
    told = r"a disk of a node is full \(.*No space left .*/tmp/0.mp3'\); make room, and run"
    with pytest.raises(NodeFullError, match=told):
        run._enter(answers)
    run._write()
    assert codes(tmp_path) == [(short.location, "audio_too_short")]


@pytest.mark.parametrize(
    ("actors", "n_files", "n_rows"),
    [
        (Actors(1, 1, 0), 1000, 8),
        (Actors(1, 16, 1), 1000, 32),
        (Actors(8, 16, 1), 200, 13),
        (Actors(8, 16, 1), 20, 8),
        (Actors(2, 1, 0), 1_000_000, 10),
    ],
)
def test_a_call_of_an_actor_has_files_for_each_of_its_cpus(
    actors: Actors, n_files: int, n_rows: int
) -> None:
    assert actors.block_rows(n_files) == n_rows
