import sys
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from starlette.responses import PlainTextResponse

from models.fingerprint.landmarks import Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderBusyError
from serve_app.providers.recognisers.shazam import Shazam, installed_signer
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    ALBUM,
    APPLE,
    ARTIST,
    ISRC,
    LABEL,
    TITLE,
    IdentifyStub,
    as_json,
    shazam_found,
    wav,
)

NOTHING = np.zeros(0, np.float32)
CLIP = Clip(30.0, Fingerprint(NOTHING, NOTHING, NOTHING, 0), wav(12))
ADDRESS = "data:audio/vnd.shazam.sig;base64,AAAA"


async def sign(excerpt: bytes) -> tuple[str, int]:
    assert excerpt == CLIP.excerpt_wav
    return ADDRESS, 12_000


@pytest.fixture
async def service(remote: IdentifyStub) -> AsyncIterator[Shazam]:
    made = Shazam(f"{remote.url}/shazam", sign, LocalRateLimiter())
    yield made
    await made.client.close()


async def test_a_clip_is_recognised(remote: IdentifyStub, service: Shazam) -> None:
    assert service.accepts(CLIP)
    found = await service.recognise(CLIP)
    assert found is not None
    assert found.identity == TrackIdentity(
        artist=ARTIST,
        title=TITLE,
        isrc=ISRC,
        apple_id=APPLE,
        album=ALBUM,
        year=2021,
        label=LABEL,
        genres=("Electronic",),
        artwork_url="https://img.test/400.jpg",
        source="shazam",
    )
    assert found.confidence == 95
    sent = remote.received[0]
    parts = sent.path.split("/")
    assert parts[2:9] == ["discovery", "v5", "en-US", "US", "iphone", "-", "tag"]
    assert len(parts[9]) == len(parts[10]) == 36
    assert sent.query["shazamapiversion"] == "v3"
    assert sent.headers["x-shazam-platform"] == "IPHONE"
    assert sent.headers["x-shazam-appversion"] == "14.1.0"
    body = as_json(sent)
    assert body["signature"] == {"uri": ADDRESS, "samplems": 12_000}
    assert set(body) == {"timezone", "signature", "timestamp", "context", "geolocation"}


@pytest.mark.parametrize(("skew", "confidence"), [(0, 100), (-0.0005, 75), (0.001, 50)])
async def test_skew_costs_confidence(
    remote: IdentifyStub, service: Shazam, skew: float, confidence: int
) -> None:
    remote.moods["shazam"] = shazam_found(skew)
    found = await service.recognise(CLIP)
    assert found is not None
    assert found.confidence == confidence


async def test_too_much_skew_is_no_match(remote: IdentifyStub, service: Shazam) -> None:
    remote.moods["shazam"] = shazam_found(-0.0011)
    assert await service.recognise(CLIP) is None


async def test_its_rate_limit_comes_as_plain_text(remote: IdentifyStub, service: Shazam) -> None:
    remote.moods["shazam"] = lambda: PlainTextResponse("Too many requests", 429)
    with pytest.raises(ProviderBusyError):
        await service.recognise(CLIP)
    assert len(remote.received) == 1


async def test_the_signer_is_the_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shazamio_core", None)
    assert installed_signer() is None

    class Recognizer:
        async def recognize_bytes(self, excerpt: bytes) -> object:
            return SimpleNamespace(signature=SimpleNamespace(uri=ADDRESS, samples=len(excerpt)))

    core = ModuleType("shazamio_core")
    core.Recognizer = Recognizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shazamio_core", core)
    signer = installed_signer()
    assert signer is not None
    assert await signer(b"wav") == (ADDRESS, 3)
