import asyncio
import logging
import pickle
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProvidersFailedError,
    ProviderSkippedError,
    ProviderUnavailableError,
    RateLimit,
)
from serve_app.providers.web.breaker import CircuitBreaker
from serve_app.providers.web.http_client import LocalRateLimiter, ProviderClient, Reply, retry_after
from tests.providers.stub_server import Stub


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def judge(reply: Reply) -> object:
    reply.check_status()
    return reply.json()


async def no_sleep(seconds: float) -> None:
    slept.append(seconds)


slept: list[float] = []


@pytest.fixture
async def client(stub: Stub) -> AsyncIterator[ProviderClient]:
    slept.clear()
    made = ProviderClient(
        "itunes",
        f"{stub.url}/itunes",
        limit=RateLimit(1000, 1.0),
        limiter=LocalRateLimiter(),
        breaker=CircuitBreaker(Clock()),
        read_timeout_s=60.0,
        sleep=no_sleep,
    )
    yield made
    await made.close()


async def lookup(client: ProviderClient) -> object:
    return await client.read("/lookup", judge, params={"id": "1600000001", "key": "s3cret"})


async def test_a_failing_read_is_repeated_twice_with_growing_pauses(
    stub: Stub, client: ProviderClient
) -> None:
    stub.faults["itunes"], stub.fault_lasts["itunes"] = "down", 2
    assert await lookup(client) is not None
    assert len(stub.requests) == 3
    assert 0.125 <= slept[0] <= 0.375
    assert 0.25 <= slept[1] <= 0.75


async def test_a_retry_after_of_no_time_is_not_taken_at_its_word(client: ProviderClient) -> None:
    def is_busy(reply: Reply) -> object:
        raise ProviderBusyError("itunes", "status 429", 0.0)

    with pytest.raises(ProviderBusyError):
        await client.read("/lookup", is_busy, params={"id": "1600000001"})
    assert len(slept) == 2
    assert min(slept) >= 0.5


async def test_a_read_is_not_repeated_for_ever(stub: Stub, client: ProviderClient) -> None:
    stub.faults["itunes"] = "down"
    with pytest.raises(ProviderUnavailableError, match="status 500"):
        await lookup(client)
    assert len(stub.requests) == 3


async def test_a_slow_answer_is_cut_and_not_repeated(stub: Stub) -> None:
    client = ProviderClient(
        "itunes",
        f"{stub.url}/itunes",
        limit=RateLimit(1000, 1.0),
        limiter=LocalRateLimiter(),
        read_timeout_s=0.3,
        sleep=no_sleep,
    )
    stub.faults["itunes"] = "slow"
    slept.clear()
    with pytest.raises(ProviderUnavailableError, match="too slow"):
        await lookup(client)
    assert slept == []
    async with asyncio.timeout(60):
        while not stub.requests:  # noqa: ASYNC110  its thread may be slow to start it
            await asyncio.sleep(0.01)
    assert len(stub.requests) == 1
    await client.close()


async def test_a_refusal_is_not_repeated_and_opens_the_circuit(
    stub: Stub, client: ProviderClient
) -> None:
    stub.faults["itunes"] = "rate_limited"
    with pytest.raises(ProviderRefusedError, match="403"):
        await lookup(client)
    with pytest.raises(ProviderSkippedError):
        await lookup(client)
    assert len(stub.requests) == 1


@pytest.mark.parametrize("fault", ["html", "cut_off"])
async def test_a_body_that_makes_no_sense_is_a_failure(
    stub: Stub, client: ProviderClient, fault: str
) -> None:
    stub.faults["itunes"] = fault
    with pytest.raises(ProviderUnavailableError, match="not JSON"):
        await lookup(client)


async def test_redirects_are_not_followed(stub: Stub, client: ProviderClient) -> None:
    stub.faults["itunes"] = "redirect"
    with pytest.raises(ProviderUnavailableError, match="302"):
        await lookup(client)


async def test_an_endless_body_is_cut(stub: Stub, client: ProviderClient) -> None:
    stub.faults["itunes"] = "huge"
    with pytest.raises(ProviderUnavailableError, match="too large"):
        await lookup(client)


async def test_five_failures_open_the_circuit_and_a_probe_closes_it(stub: Stub) -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    client = ProviderClient(
        "itunes",
        f"{stub.url}/itunes",
        limit=RateLimit(1000, 1.0),
        limiter=LocalRateLimiter(),
        breaker=breaker,
        sleep=no_sleep,
    )
    stub.faults["itunes"] = "down"
    for _ in range(2):
        with pytest.raises(ProviderError):
            await lookup(client)
    assert len(stub.requests) == 5
    with pytest.raises(ProviderSkippedError):
        await lookup(client)
    stub.faults.clear()
    clock.now += 15.1
    assert await lookup(client) is not None
    assert breaker.try_pass() == 0
    assert len(stub.requests) == 6
    await client.close()


async def test_no_connection_is_a_failure_that_hides_the_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = ProviderClient(
        "x",
        "http://127.0.0.1:9",
        limit=RateLimit(10, 1.0),
        limiter=LocalRateLimiter(),
        sleep=no_sleep,
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderUnavailableError) as caught:
        await lookup(client)
    await client.close()
    assert "s3cret" not in repr(caught.value) + str(caught.value) + caplog.text
    assert caught.value.__suppress_context__


async def test_calls_are_logged_without_their_parameters(
    client: ProviderClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="serve_app"):
        await lookup(client)
    (record,) = [one for one in caplog.records if one.name.startswith("serve_app")]
    logged = {**vars(record)}
    assert (logged["provider"], logged["route"], logged["status_class"]) == (
        "itunes",
        "/lookup",
        "2xx",
    )
    assert "s3cret" not in str(logged)


async def test_a_billed_call_is_sent_once(stub: Stub, client: ProviderClient) -> None:
    stub.faults["itunes"] = "down"
    with pytest.raises(ProviderUnavailableError):
        await client.send_once("/lookup", judge, client.build_post("/lookup", data={"a": "b"}))
    assert [one.method for one in stub.requests] == ["POST"]


@pytest.fixture
def limiter() -> LocalRateLimiter:
    """A limiter whose clock stands still and whose waits are recorded."""
    slept.clear()
    return LocalRateLimiter(Clock(), no_sleep)


async def test_the_rate_limit_spreads_calls_and_refuses_long_waits(
    limiter: LocalRateLimiter,
) -> None:
    limit = RateLimit(2, 0.25)
    assert all([await limiter.acquire("a", limit, 1.0) for _ in range(5)])
    assert slept == [0.25, 0.25, 0.5]
    assert await limiter.acquire("b", limit, 0.0)
    assert await limiter.acquire("b", limit, 0.0)
    assert not await limiter.acquire("b", limit, 0.125)
    assert slept == [0.25, 0.25, 0.5]


async def test_concurrent_callers_never_exceed_the_window(limiter: LocalRateLimiter) -> None:
    calls = (limiter.acquire("a", RateLimit(3, 0.25), 5.0) for _ in range(12))
    assert all(await asyncio.gather(*calls))
    assert slept == [0.25] * 3 + [0.5] * 3 + [0.75] * 3


def test_the_breaker_doubles_its_pause_up_to_five_minutes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    breaker.trip()
    pauses = []
    for _ in range(7):
        pauses.append(breaker.try_pass())
        clock.now += pauses[-1]
        assert breaker.try_pass() == 0
        assert breaker.try_pass() > 0
        breaker.fail()
    assert pauses == [15, 30, 60, 120, 240, 300, 300]
    clock.now += 300
    assert breaker.try_pass() == 0
    breaker.succeed()
    assert breaker.try_pass() == 0
    breaker.trip()
    assert breaker.try_pass() == 15


def test_a_probe_that_is_cut_short_and_then_counted_as_failed_doubles_the_pause() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    breaker.trip()
    for pause_s in (15, 30, 60):
        assert breaker.try_pass() == pause_s
        breaker.fail()  # of a call that was under way when the circuit opened
        assert breaker.try_pass() == pause_s
        clock.now += pause_s
        assert breaker.try_pass() == 0
        breaker.abandon()
        breaker.fail()


def test_a_success_forgets_earlier_failures_and_a_cancelled_probe_frees_the_next() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    for _ in range(3):
        for _ in range(4):
            breaker.fail()
        breaker.succeed()
    assert breaker.try_pass() == 0
    breaker.trip(at_least_s=79_892)
    breaker.fail()  # of a call that was under way
    assert breaker.try_pass() == 79_892
    clock.now += 79_892
    assert breaker.try_pass() == 0
    breaker.abandon()
    assert breaker.try_pass() == 0


@pytest.mark.parametrize(
    ("text", "expected"), [("17", 17.0), (" 0 ", 0.0), ("soon", None), ("-5", None), (None, None)]
)
def test_retry_after_in_seconds(text: str | None, expected: float | None) -> None:
    headers = {} if text is None else {"Retry-After": text}
    assert retry_after(httpx.Headers(headers)) == expected


def test_retry_after_in_a_digit_that_is_no_number_is_none() -> None:
    assert retry_after(httpx.Headers([(b"retry-after", b"\xb2")])) is None


def test_a_body_that_is_too_deep_makes_no_sense() -> None:
    reply = Reply("itunes", 200, httpx.Headers(), b"[" * 1_000_000)
    with pytest.raises(ProviderUnavailableError, match="not JSON"):
        reply.json()


def test_retry_after_as_a_date() -> None:
    until = datetime.now(UTC) + timedelta(seconds=60)
    headers = httpx.Headers({"Retry-After": format_datetime(until, usegmt=True)})
    assert retry_after(headers) == pytest.approx(60, abs=2)


def test_retry_after_as_a_date_is_counted_by_the_providers_clock() -> None:
    now = datetime(2020, 1, 1, tzinfo=UTC)
    headers = {
        "Date": format_datetime(now, usegmt=True),
        "Retry-After": format_datetime(now + timedelta(seconds=90), usegmt=True),
    }
    assert retry_after(httpx.Headers(headers)) == 90


def test_errors_survive_a_process_boundary() -> None:
    for error in (
        ProviderBusyError("deezer", "quota", 5.0),
        ProvidersFailedError({"deezer": "too slow"}),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
