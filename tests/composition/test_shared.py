"""What must last is kept where every node sees it."""

import json
import shutil
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from configs.settings import Settings
from serve_app.app import build_app
from serve_app.cli.main import app
from serve_app.composition.files import LocalFiles, NoPepperError, NotSharedError, require_shared
from serve_app.composition.profile import AppArgs
from tests.cluster.nodes import environment_file

REDIS = "redis://10.0.0.1:6379"
PEPPER = "pepper of the test"


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ({}, ["AFA_SHARED"]),
        ({"shared": "/mnt/afa"}, ["AFA_SHARED"]),
        ({"shared": "s3://bucket/afa", "journal_store": "journal"}, ["AFA_JOURNAL_STORE"]),
        (
            {"shared": "file:///mnt/afa", "library": "/x", "object_store": "y"},
            ["AFA_OBJECT_STORE", "AFA_LIBRARY"],
        ),
    ],
)
def test_a_cluster_does_not_start_on_the_disk_of_a_node(
    places: dict[str, str], told: list[str]
) -> None:
    with pytest.raises(NotSharedError) as error:
        require_shared(Settings(redis_url=REDIS, **places))  # type: ignore[arg-type]
    assert str(error.value).startswith(f"{', '.join(told)}: ")


@pytest.mark.parametrize(
    "places", [{"shared": "s3://bucket/afa"}, {"shared": "file:///mnt/afa", "library": "s3://b/l"}]
)
def test_it_starts_on_shared_storage(places: dict[str, str]) -> None:
    require_shared(Settings(redis_url=REDIS, key_pepper=PEPPER, **places))  # type: ignore[arg-type]
    require_shared(Settings(redis_url=None))


def test_a_cluster_does_not_start_with_a_pepper_of_each_node(tmp_path: Path) -> None:
    shared = tmp_path.as_uri()
    with pytest.raises(NoPepperError, match=r"^AFA_KEY_PEPPER: .*`openssl rand -hex 32`"):
        require_shared(Settings(redis_url=REDIS, shared=shared))
    one_machine = LocalFiles(tmp_path / "data")
    assert len(one_machine.key_pepper(Settings())) == 64


@pytest.mark.parametrize("shared", ["/mnt/my afa", "file:///mnt/my%20afa"])
def test_what_one_machine_shares_may_be_a_folder(tmp_path: Path, shared: str) -> None:
    files, settings = LocalFiles(tmp_path), Settings(shared=shared)
    assert files.object_store_url(settings) == "file:///mnt/my%20afa/objects"
    assert files.payments_url(settings) == "file:///mnt/my%20afa/payments"


def test_a_torn_session_tells_of_no_service(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.session_path.write_text('{"url": "http://127.0.0.1:80')
    assert files.read_session() is None


def test_the_session_of_a_folder_is_not_that_of_its_copy(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "data")
    files.data_dir.mkdir()
    session: dict[str, Any] = {"folder": files.folder_id, "pids": {}}
    files.session_path.write_text(json.dumps(session))
    shutil.copytree(files.data_dir, tmp_path / "copy")
    assert LocalFiles(tmp_path / "copy").read_session() is None
    files.data_dir.rename(tmp_path / "moved")
    assert LocalFiles(tmp_path / "moved").read_session() == session
    session["folder"]["inode"] += 1
    files = LocalFiles(tmp_path / "data")
    files.data_dir.mkdir()
    files.session_path.write_text(json.dumps(session))
    assert files.read_session() == session


def test_the_example_of_a_nodes_settings_is_refused_until_it_is_filled_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment_file().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    with pytest.raises(ValidationError, match="too short to be a secret; `openssl"):
        build_app(AppArgs())
    told = CliRunner().invoke(app, ["doctor"])
    assert told.exit_code == 1
    assert (
        "AFA_KEY_PEPPER: empty or too short to be a secret; `openssl rand -hex 32`" in told.output
    )
    assert not (tmp_path / "pepper").exists()
    monkeypatch.delenv("AFA_KEY_PEPPER")
    with pytest.raises(NoPepperError):
        build_app(AppArgs())
    monkeypatch.setenv("AFA_KEY_PEPPER", token_hex(32))
    build_app(AppArgs())
    assert not (tmp_path / "pepper").exists()


def test_everything_lies_below_the_shared_storage(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    settings = Settings(
        shared="s3://bucket/afa?endpoint=http://minio:9000", journal_store="s3://vault/journal"
    )
    assert files.object_store_url(settings) == "s3://bucket/afa/objects?endpoint=http://minio:9000"
    assert files.library_url(settings) == "s3://bucket/afa/library?endpoint=http://minio:9000"
    assert files.payments_url(settings) == "s3://bucket/afa/payments?endpoint=http://minio:9000"
    assert files.journal_store_url(settings) == "s3://vault/journal"
    alone = Settings()
    assert files.object_store_url(alone) == (tmp_path / "objects").as_uri()
    assert files.payments_url(alone) == tmp_path.as_uri()
    assert files.served(alone) == files
    assert files.published_url(alone) is None
