from collections.abc import Iterator

import pytest

from tests.providers.recognisers.identify_stub import IdentifyStub, running_identify_stub
from tests.providers.stub_server import Stub, running_stub


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test's own server be slow on a busy machine."""
    monkeypatch.setattr("serve_app.providers.web.http_client.CONNECT_TIMEOUT_S", 30.0)


@pytest.fixture(scope="session")
def _server() -> Iterator[Stub]:
    with running_stub() as stub:
        yield stub


@pytest.fixture
def stub(_server: Stub) -> Stub:
    """The providers' stand-in, in a fresh state."""
    _server.requests.clear()
    _server.faults.clear()
    _server.fault_lasts.clear()
    _server.tokens.clear()
    _server.twins_agree = False
    return _server


@pytest.fixture
def remote() -> Iterator[IdentifyStub]:
    """The identification and enrichment services' stand-in."""
    with running_identify_stub() as running:
        yield running
