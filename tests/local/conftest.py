"""An installation at rest, for the tests of backups."""

import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from serve_app.local import embedded_redis
from tests.local.installation import (
    Installation,
    Kept,
    furnish,
    furnish_library,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folder: the path of a socket may have at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    yield folder
    for place in folder.glob("*/redis-ledger"):  # left by a test that failed
        running = embedded_redis.find_running(place)
        if running is not None:
            running.stop()
    shutil.rmtree(folder)


@pytest.fixture
async def kept(folder: Path) -> Kept:
    places = {"AFA_JOURNAL_STORE": str(folder / "journal")}
    installation = Installation(folder / "one", places)
    installation.start()
    async with installation.stores() as stores:
        before = await furnish(stores)
        await installation.exporter(stores).export()
    assert installation.server is not None
    installation.server.stop()
    library = installation.library()
    one = furnish_library(library)
    library.close()
    return Kept(installation, before, one)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty place for a backup."""
    if request.param == "folder":
        return (folder / "backup").as_uri()
    endpoint: str = request.getfixturevalue("s3_endpoint")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    made = urllib.request.Request(f"{endpoint}/{folder.name}", method="PUT")  # noqa: S310
    urllib.request.urlopen(made).close()  # noqa: S310
    return f"s3://{folder.name}/backup?endpoint={endpoint}&region=us-east-1"
