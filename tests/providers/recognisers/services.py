"""The recognition services, set up to call the stub, and the clips they are asked about."""

import numpy as np

from models.fingerprint.landmarks import Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.providers.recognisers.acoustid import AcoustId
from serve_app.providers.recognisers.acrcloud import AcrCloud
from serve_app.providers.recognisers.audd import Audd
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.shazam import Shazam
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import KEY, SECRET, wav

NOTHING = np.zeros(0, np.float32)
SILENT = Fingerprint(NOTHING, NOTHING, NOTHING, 0)
EXCERPT = Clip(30.0, SILENT, SILENT, wav(12))
WHOLE = Clip(213.0, SILENT, SILENT, wav(12), "AQAAfingerprint")
SIGNATURE = "data:audio/vnd.shazam.sig;base64,AAAA"

Service = AcoustId | Audd | AcrCloud | Shazam


async def sign(excerpt: bytes) -> tuple[str, int]:
    assert excerpt == EXCERPT.excerpt_wav
    return SIGNATURE, 12_000


def made(name: str, url: str, most_calls: int = 100) -> Service:
    limiter, cap = LocalRateLimiter(), MonthlyCap(most_calls)
    if name == "acoustid":
        return AcoustId(f"{url}/acoustid/v2", KEY, limiter)
    if name == "audd":
        return Audd(f"{url}/audd", KEY, limiter, cap)
    if name == "acrcloud":
        return AcrCloud(f"{url}/acrcloud", KEY, SECRET, limiter, cap)
    return Shazam(f"{url}/shazam", sign, limiter)
