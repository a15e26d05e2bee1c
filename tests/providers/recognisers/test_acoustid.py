from collections.abc import Callable

import pytest
from starlette.responses import JSONResponse, Response

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import ReleaseIds
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers import acoustid
from serve_app.providers.recognisers.acoustid import AcoustId, Answer, best_recognition
from tests.providers.recognisers.identify_stub import (
    ALBUM,
    GROUP,
    ISRC,
    KEY,
    MBID,
    TITLE,
    IdentifyStub,
)
from tests.providers.recognisers.services import SILENT


def file_of(duration_s: float, chromaprint: str | None = "AQAAfingerprint") -> Clip:
    return Clip(duration_s, SILENT, SILENT, b"", chromaprint)


WHOLE = file_of(213.4)


@pytest.fixture
def service_name() -> str:
    return "acoustid"


async def test_a_whole_file_is_recognised(remote: IdentifyStub, service: AcoustId) -> None:
    found = await service.recognise(WHOLE)
    assert found is not None
    assert found.identity == TrackIdentity(
        artist="The Stub & Quartet",
        title=TITLE,
        mbid=MBID,
        isrc=ISRC,
        album=ALBUM,
        duration_s=213,
        source="acoustid",
    )
    assert found.confidence == 93
    assert found.release == ReleaseIds(group_id=GROUP)
    sent = remote.received[0]
    assert sent.path == "/acoustid/v2/lookup"
    assert sent.form == {
        "client": KEY,
        "duration": "213",
        "fingerprint": "AQAAfingerprint",
        "meta": "recordings releasegroups sources isrcs compress",
        "format": "json",
    }


@pytest.mark.parametrize("clip", [file_of(10), file_of(213, None), file_of(59.9)])
def test_excerpts_are_not_sent(service: AcoustId, clip: Clip) -> None:
    assert not service.accepts(clip)
    assert service.accepts(WHOLE)


def answer(*results: dict[str, object]) -> Answer:
    return Answer.model_validate({"status": "ok", "results": results})


def recording(title: str, **values: object) -> dict[str, object]:
    return {"id": MBID, "title": title, **values}


def test_the_best_score_wins_then_sources_then_length() -> None:
    def title(*results: dict[str, object]) -> str | None:
        found = best_recognition(answer(*results), 200)
        return found.identity.title if found else None

    low = {"id": "a", "score": 0.6, "recordings": [recording("low", sources=99)]}
    high = {
        "id": "b",
        "score": 0.9,
        "recordings": [
            recording("rare", sources=1),
            recording("far", sources=5, duration=240),
            recording("near", sources=5, duration=202),
            recording("unknown length", sources=5),
        ],
    }
    assert title(low, high) == "near"
    assert title(low, {"id": "c", "score": 1.0}) == "low"
    assert title({**low, "score": 0.49}) is None
    assert title({"id": "d", "score": 0.9, "recordings": [recording("")]}) is None
    assert title() is None


def code(number: int, status: int) -> Callable[[], Response]:
    body = {"status": "error", "error": {"code": number, "message": "…"}}
    return lambda: JSONResponse(body, status)


@pytest.mark.parametrize(
    ("number", "status", "error"),
    [
        *((n, 400, ProviderUnavailableError) for n in (1, 2, 3, 7, 8, 11)),
        *((n, 400, ProviderRefusedError) for n in (4, 6, 12)),
        (5, 500, ProviderUnavailableError),
        (13, 503, ProviderUnavailableError),
        (14, 429, ProviderBusyError),
        (19, 413, ProviderUnavailableError),
    ],
)
async def test_error_codes(
    remote: IdentifyStub,
    service: AcoustId,
    number: int,
    status: int,
    error: type[ProviderError],
) -> None:
    remote.answers["acoustid"] = code(number, status)
    with pytest.raises(error) as caught:
        await service.recognise(WHOLE)
    assert type(caught.value) is error
    assert KEY not in str(caught.value)
    assert len(remote.received) == 1


async def test_an_unknown_fingerprint_is_no_match(remote: IdentifyStub, service: AcoustId) -> None:
    remote.answers["acoustid"] = code(18, 404)
    assert await service.recognise(WHOLE) is None


async def test_calls_keep_to_three_a_second(service: AcoustId) -> None:
    assert (acoustid.LIMIT.n_calls, acoustid.LIMIT.window_s) == (3, 1.0)
    assert service.client._limit == acoustid.LIMIT
