"""What `afa backfill` says about sources and destinations, before and after its cluster works."""

from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner, Result

from serve_app.backfill import run
from serve_app.backfill.run import Actors
from serve_app.cli.library import backfill
from serve_app.cli.main import app
from serve_app.services.scan.places import Bucket, Folder, Found, Trouble
from tests.library.library_setting import is_scattered, scatter

AWAY = "endpoint=http://127.0.0.1:9&region=us-east-1"


@pytest.fixture(autouse=True)
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backfill, "_connected", lambda address: nullcontext())
    monkeypatch.setattr(run, "actors_for", lambda n, n_cpus: Actors(1, 1, 0))


def told(source: Path | str, out: str = "out") -> Result:
    done = CliRunner().invoke(app, ["backfill", str(source), "--out", out])
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done


def refusal(source: Path | str, out: str = "out") -> str:
    """Return what a command prints when it ends with an error and has written nothing."""
    done = told(source, out)
    assert (done.exit_code, done.stdout) == (1, "")
    assert not Path("out").exists()
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_source_that_is_not_there_is_no_finished_job(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert f"{gone} cannot be listed (no such file); see that it is mounted" in refusal(gone)
    away = refusal(f"s3://music/all?{AWAY}")
    assert "s3://music/all/ cannot be listed (Generic S3 error" in away
    assert "run the same command again" in away
    assert "No such file" in refusal("gone.parquet")


def test_a_folder_that_went_before_it_was_listed_is_no_finished_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "place_of", lambda source: Folder(Path(source)))
    assert "gone cannot be listed (no such file)" in refusal(tmp_path / "gone")


PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>music</Name><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>
{}</ListBucketResult>"""
OBJECT = """<Contents><Key>{}.mp3</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>
<ETag>"1"</ETag><Size>1</Size></Contents>"""


class BreakingOff(BaseHTTPRequestHandler):
    """Lists one page of objects, and fails at the next."""

    def do_GET(self) -> None:
        is_first = "continuation-token" not in self.path
        self.send_response(200 if is_first else 500)
        self.end_headers()
        if is_first:
            self.wfile.write(PAGE.format("".join(map(OBJECT.format, range(100)))).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_listing_that_breaks_off_is_no_finished_job() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BreakingOff) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        at = f"endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1"
        try:
            assert {type(one) for one in Bucket(f"s3://music?{at}").find()} == {Found, Trouble}
            assert "s3://music/ cannot be listed (Generic S3 error" in refusal(f"s3://music?{at}")
        finally:
            server.shutdown()


def test_a_bucket_that_is_none_or_empty_is_no_finished_job() -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        at = f"endpoint={endpoint}&region=us-east-1"
        assert "s3://none/ cannot be listed" in refusal(f"s3://none?{at}")
        assert httpx.put(f"{endpoint}/empty").is_success
        assert "S3://empty?" in (nothing := refusal(f"S3://empty?{at}"))
        assert "holds no audio; is its name right, and is it mounted?" in nothing
    finally:
        server.stop()


def test_a_source_without_audio_says_so(tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "cover.jpg").touch()
    assert "music holds no audio; is its name right" in refusal("music")
    pq.write_table(pa.table({"path": pa.array([], pa.string())}), "list.parquet")
    assert "list.parquet holds no audio" in refusal("list.parquet")


def test_a_cluster_needs_shared_storage_and_no_pepper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "music").mkdir()
    monkeypatch.setenv("AFA_REDIS_URL", "redis://127.0.0.1:9")
    monkeypatch.delenv("AFA_KEY_PEPPER", raising=False)
    assert "AFA_SHARED: not on storage that every node sees" in refusal("music")
    monkeypatch.setenv("AFA_SHARED", (tmp_path / "shared").as_uri())
    assert "music holds no audio" in refusal("music")


def test_what_is_no_source_is_refused() -> None:
    for source in ("gs://music/all", "file:///music", "https://host/a.mp3"):
        assert ":// is not read; name a folder, s3://bucket/prefix or" in refusal(source)
    for source in ("s3://music/list.parquet", f"s3://music/list.parquet?{AWAY}"):
        assert "a table is read on this machine alone; fetch s3://music/list" in refusal(source)
    pq.write_table(pa.table({"path": [1]}), "list.parquet")
    assert "it has path (int64)" in refusal("list.parquet")


def test_a_destination_that_is_none_or_away_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "a.mp3").touch()
    assert "cannot write tables to gs://x" in refusal("music", "gs://x")
    assert "cannot be read or written (Generic S3 error" in refusal("music", f"s3://x?{AWAY}")


def test_errors_that_may_pass_give_a_status_and_a_sentence(tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": ["gone.mp3", None]}), "list.parquet")
    for _ in range(2):
        done = told("list.parquet")
        assert done.exit_code == 1
        assert "0 heard, 0 from the library, 0 there before, 2 with errors" in done.stdout
        assert "2 of the errors may be temporary" in done.stderr
        assert "the table `errors` of out, and run the same command again" in done.stderr


def test_a_run_keeps_the_library_small(tmp_path: Path) -> None:
    scatter(tmp_path / "data")
    pq.write_table(pa.table({"path": ["gone.mp3"]}), "list.parquet")
    assert "1 with errors" in told("list.parquet").stdout
    assert not is_scattered(tmp_path / "data")
