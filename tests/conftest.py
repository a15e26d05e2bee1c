"""Fixtures for every test: the model cards, the real default checkpoints, and the application in
this process on a real Redis.

Checkpoints are pulled once into AFA_MODEL_DIR (default: the user's cache) and stay there.
"""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import settings
from torch import Tensor

from configs.settings import Settings
from models.checkpoints.cache import load_tensors, pull
from models.checkpoints.cards import ModelCard, parse_cards
from serve_app.composition.options import StoreOptions
from serve_app.domain.telemetry.metrics import show_with
from serve_app.local import embedded_redis
from serve_app.providers.catalog.build import build_catalog
from tests.api.application import Application, open_application, store_options
from tests.recorded import Recorded

pytest_plugins = ["tests.by_module", "tests.redis_fixtures"]

REPOSITORY = Path(__file__).parents[1]
DEMO_CATALOG = REPOSITORY / "serve_app" / "data" / "demo_catalog.parquet"
DEMO_TRACK = REPOSITORY / "serve_app" / "data" / "demo.mp3"
COLOURED = ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE")
"""What makes rich and typer use colour even without a terminal."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", type=Path, help="keep the pictures of the pages here")
    parser.addoption("--write-book", action="store_true", help="paste what its commands print")


def pytest_configure(config: pytest.Config) -> None:
    """Make what commands print independent of the terminal in which the tests were started.

    Also let Hypothesis begin each property with the same seed, and take its time. Let torch use one
    thread: two whose processors are busy with other tests keep waiting for each other. Let Python
    cache the bytecode of tests and of what they start. Let each process compile librosa's numba
    functions itself, and quickly: processes that fill one numba cache crash each other
    (numba/numba#10128).
    """
    compiled = tempfile.TemporaryDirectory(prefix="afa-numba-")
    config.add_cleanup(compiled.cleanup)
    os.environ["NUMBA_CACHE_DIR"], os.environ["NUMBA_OPT"] = compiled.name, "0"
    settings.load_profile("ci")
    torch.set_num_threads(1)
    sys.dont_write_bytecode = False
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["COLUMNS"] = "80"
    for name in (*COLOURED, "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among imports, which stay: this saves a quarter of the collection."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


def process_restored() -> Iterator[None]:
    """Undo what a command that ran in this process changed as if the process were its own.

    Also seed torch, which pytest-randomly leaves as the previous test left it; only on the CPU, as
    `torch.manual_seed` records the whole stack for each kind of device that is missing.
    """
    torch.default_generator.manual_seed(0)
    torch.set_num_threads(1)
    environment = dict(os.environ)
    umask = os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


restored_after_test = pytest.fixture(autouse=True)(process_restored)
restored_after_module = pytest.fixture(autouse=True, scope="module")(process_restored)


@pytest.fixture(scope="session")
def cards() -> dict[str, ModelCard]:
    """The cards of configs/models.yaml, by id."""
    table = Path(__file__).parents[1] / "configs" / "models.yaml"
    return parse_cards(yaml.safe_load(table.read_text()))


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The model cache of this machine."""
    return Settings().resolved_model_dir()


@pytest.fixture(scope="session")
def checkpoint(cards: dict[str, ModelCard], model_dir: Path) -> Callable[[str], dict[str, Tensor]]:
    """Return a real checkpoint's tensors by model id, pulling it if it is missing."""

    def load(model_id: str) -> dict[str, Tensor]:
        pull(cards[model_id], model_dir)
        return load_tensors(cards[model_id], model_dir)

    return load


@pytest.fixture(scope="session")
def api_folder() -> Iterator[Path]:
    """Where the in-process application keeps its data; short, for the Redis sockets."""
    folder = Path(tempfile.mkdtemp(prefix="afa-api-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def api_stores(api_folder: Path) -> Iterator[StoreOptions]:
    """A ledger and a cache Redis for the in-process application."""
    extra = ("--appendonly", "no")
    servers = [embedded_redis.start(api_folder, role="ledger", extra=extra)]
    servers.append(embedded_redis.start(api_folder, role="cache"))
    yield store_options(servers[0].url, servers[1].url, api_folder)
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def demo_catalog(api_folder: Path) -> Path:
    """The demo catalog, imported."""
    folder = api_folder / "catalog"
    build_catalog([DEMO_CATALOG], folder)
    return folder


@pytest.fixture(scope="session")
def demo_audio() -> bytes:
    """The demo track's file."""
    return DEMO_TRACK.read_bytes()


@pytest.fixture
async def api(
    api_stores: StoreOptions, demo_catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Application]:
    """The application in this process, on empty servers, with a worker."""
    # Its clients have no connection that could be reset, and so nothing to linger for.
    monkeypatch.setattr("serve_app.api.unread.LINGER_S", 0.01)
    async with open_application(api_stores, demo_catalog) as application:
        yield application


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """The metrics that the code records during the test."""
    recorded = Recorded()
    show_with(recorded.record)
    yield recorded
    show_with(None)


@pytest.fixture
def quick_freezing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free only young objects: this process has so many that a full collection takes .3 s."""
    for module in ("exchange", "shelf"):
        monkeypatch.setattr(f"serve_app.checkpoints.{module}.freeze_loaded", partial(gc.collect, 1))
