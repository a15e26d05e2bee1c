import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from models.fingerprint.landmarks import Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import Outcome, Recognition
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderTerms,
    ProviderUnavailableError,
)
from serve_app.services.identify.cascade import (
    CASCADE_BUDGET_S,
    TOTAL_BUDGET_S,
    IdentifyCascade,
    IdentifyOutcome,
)
from serve_app.services.identify.clip_identifier import describe

NOTHING = np.zeros(0, np.float32)
SILENT = Fingerprint(NOTHING, NOTHING, NOTHING, 0)
CLIP = Clip(10.0, SILENT, SILENT, b"wav")
ORDER = ("local", "acoustid", "audd", "acrcloud", "shazam")
MATCH, NO_MATCH, ERROR, SKIPPED = "match", "no_match", "error", "skipped"


def recognition(name: str) -> Recognition:
    return Recognition(TrackIdentity(artist="A", title="T", source=name), 87)


@dataclass
class Service:
    name: str
    answer: Callable[[], Recognition | None] = lambda: None
    takes_s: float = 0.0
    timeout_s: float = 5.0
    is_of_use: bool = True
    terms: ProviderTerms = field(default_factory=lambda: ProviderTerms("", ""))
    n_calls: int = 0

    def accepts(self, clip: Clip) -> bool:
        return self.is_of_use

    async def recognise(self, clip: Clip) -> Recognition | None:
        assert clip is CLIP
        self.n_calls += 1
        await asyncio.sleep(self.takes_s)
        return self.answer()


def knows(name: str) -> Service:
    return Service(name, lambda: recognition(name))


def fails(name: str, error: type[ProviderError] = ProviderUnavailableError) -> Service:
    def answer() -> None:
        raise error(name, "down")

    return Service(name, answer)


def is_unavailable(found: IdentifyOutcome) -> bool:
    return describe(found, None).is_unavailable


async def outcome_of(*services: Service, budget_s: float = 5.0) -> list[str]:
    found = await IdentifyCascade(services, ORDER, budget_s).identify(CLIP)
    assert list(found.services_tried) == list(ORDER)
    return [str(one) for one in found.services_tried.values()]


async def test_the_first_match_ends_the_cascade() -> None:
    later = knows("acrcloud")
    cascade = IdentifyCascade([later, knows("audd"), Service("local")], ORDER)
    found = await cascade.identify(CLIP)
    assert found.matched
    assert found.recognition == recognition("audd")
    assert (found.source_service, found.confidence) == ("audd", 87)
    assert found.services_tried == {
        "local": Outcome.NO_MATCH,
        "acoustid": Outcome.SKIPPED,
        "audd": Outcome.MATCH,
        "acrcloud": Outcome.SKIPPED,
        "shazam": Outcome.SKIPPED,
    }
    assert later.n_calls == 0
    assert found.is_definite
    assert not is_unavailable(found)


async def test_nobody_knows_the_clip() -> None:
    found = await IdentifyCascade([Service(name) for name in ORDER], ORDER).identify(CLIP)
    assert not found.matched
    assert (found.recognition, found.source_service, found.confidence) == (None, None, 0)
    assert set(found.services_tried.values()) == {Outcome.NO_MATCH}
    assert found.is_definite
    assert not is_unavailable(found)


async def test_a_failure_goes_on_to_the_next() -> None:
    services = (fails("local"), fails("audd", ProviderRefusedError), knows("acrcloud"))
    assert await outcome_of(*services) == [ERROR, SKIPPED, ERROR, MATCH, SKIPPED]


@pytest.mark.parametrize(
    "error", [ProviderUnavailableError, ProviderRefusedError, ProviderBusyError]
)
async def test_all_that_were_tried_failing_is_unavailable(error: type[ProviderError]) -> None:
    cascade = IdentifyCascade([fails("local", error), fails("audd", error)], ORDER)
    found = await cascade.identify(CLIP)
    assert is_unavailable(found)
    assert not found.is_definite


async def test_nobody_to_ask_is_unavailable_too() -> None:
    for services in ([], [fails("audd", ProviderSkippedError)]):
        found = await IdentifyCascade(services, ORDER).identify(CLIP)
        assert set(found.services_tried.values()) == {Outcome.SKIPPED}
        assert is_unavailable(found)


async def test_one_definite_no_match_is_an_answer_but_not_to_be_kept() -> None:
    found = await IdentifyCascade([Service("local"), fails("audd")], ORDER).identify(CLIP)
    assert not is_unavailable(found)
    assert not found.is_definite


async def test_a_service_that_could_not_be_asked_leaves_no_answer_to_keep() -> None:
    for wait_s, is_definite in ((15.0, False), (None, True)):

        def skip(wait_s: float | None = wait_s) -> None:
            raise ProviderSkippedError("audd", "not now", wait_s)

        services = [Service("local"), Service("audd", skip)]
        found = await IdentifyCascade(services, ORDER).identify(CLIP)
        assert found.services_tried["audd"] is Outcome.SKIPPED
        assert found.is_definite is is_definite


async def test_an_open_circuit_or_a_full_quota_is_skipped() -> None:
    services = (fails("audd", ProviderSkippedError), Service("acrcloud"))
    assert await outcome_of(*services) == [SKIPPED, SKIPPED, SKIPPED, NO_MATCH, SKIPPED]


async def test_what_is_of_no_use_is_not_asked() -> None:
    whole_files_only = Service("acoustid", is_of_use=False)
    assert await outcome_of(whole_files_only, Service("audd")) == [
        SKIPPED, SKIPPED, NO_MATCH, SKIPPED, SKIPPED,
    ]  # fmt: skip
    assert whole_files_only.n_calls == 0


async def test_a_hanging_service_has_its_own_time_out() -> None:
    hangs = Service("audd", takes_s=30, timeout_s=0.1)
    start = time.monotonic()
    assert await outcome_of(Service("local"), hangs, knows("acrcloud")) == [
        NO_MATCH, SKIPPED, ERROR, MATCH, SKIPPED,
    ]  # fmt: skip
    assert time.monotonic() - start < 15


async def test_the_whole_keeps_its_budget() -> None:
    slow = [Service(name, takes_s=30, timeout_s=20) for name in ("local", "audd", "acrcloud")]
    start = time.monotonic()
    assert await outcome_of(*slow, budget_s=0.5) == [ERROR, SKIPPED, SKIPPED, SKIPPED, SKIPPED]
    assert time.monotonic() - start < 15
    assert [one.n_calls for one in slow] == [1, 0, 0]


async def test_the_budget_leaves_time_for_enrichment() -> None:
    assert TOTAL_BUDGET_S == 10
    assert CASCADE_BUDGET_S <= TOTAL_BUDGET_S - 2


async def test_a_fault_of_ours_is_not_hidden() -> None:
    def broken() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await IdentifyCascade([Service("local", broken)], ORDER).identify(CLIP)


def test_a_service_without_a_place_is_a_configuration_error() -> None:
    with pytest.raises(ValueError, match="other"):
        IdentifyCascade([Service("other")], ORDER)
