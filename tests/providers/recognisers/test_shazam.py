import sys
from types import ModuleType, SimpleNamespace

import pytest
from starlette.responses import PlainTextResponse

from serve_app.domain.providers import ProviderBusyError
from serve_app.providers.recognisers.shazam import Shazam, installed_signer
from tests.providers.recognisers.identify_stub import IdentifyStub, as_json, shazam_found
from tests.providers.recognisers.services import EXCERPT, SIGNATURE


@pytest.fixture
def service_name() -> str:
    return "shazam"


async def test_a_signature_is_sent(remote: IdentifyStub, service: Shazam) -> None:
    await service.recognise(EXCERPT)
    sent = remote.received[0]
    parts = sent.path.split("/")
    assert parts[2:9] == ["discovery", "v5", "en-US", "US", "iphone", "-", "tag"]
    assert len(parts[9]) == len(parts[10]) == 36
    assert sent.query["shazamapiversion"] == "v3"
    assert sent.headers["x-shazam-platform"] == "IPHONE"
    assert sent.headers["x-shazam-appversion"] == "14.1.0"
    body = as_json(sent)
    assert body["signature"] == {"uri": SIGNATURE, "samplems": 12_000}
    assert set(body) == {"timezone", "signature", "timestamp", "context", "geolocation"}


@pytest.mark.parametrize(("skew", "confidence"), [(0, 100), (-0.0005, 75), (0.001, 50)])
async def test_skew_costs_confidence(
    remote: IdentifyStub, service: Shazam, skew: float, confidence: int
) -> None:
    remote.answers["shazam"] = shazam_found(skew)
    found = await service.recognise(EXCERPT)
    assert found is not None
    assert found.confidence == confidence


async def test_its_rate_limit_comes_as_plain_text(remote: IdentifyStub, service: Shazam) -> None:
    remote.answers["shazam"] = lambda: PlainTextResponse("Too many requests", 429)
    with pytest.raises(ProviderBusyError):
        await service.recognise(EXCERPT)
    assert len(remote.received) == 1


async def test_the_signer_is_the_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shazamio_core", None)
    assert installed_signer() is None

    class Recognizer:
        async def recognize_bytes(self, excerpt: bytes) -> object:
            return SimpleNamespace(signature=SimpleNamespace(uri=SIGNATURE, samples=len(excerpt)))

    core = ModuleType("shazamio_core")
    core.Recognizer = Recognizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shazamio_core", core)
    signer = installed_signer()
    assert signer is not None
    assert await signer(b"wav") == (SIGNATURE, 3)
