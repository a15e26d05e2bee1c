"""HTTP client for one provider: time-outs, rate limit, retries of reads, circuit breaker.

Invariants: a body is judged before its status, because several providers report errors inside a
200; only idempotent reads are repeated; a call never exceeds its time-outs; nothing that could
hold a credential (parameters, headers, bodies) is logged or included in an error.
"""

import asyncio
import json
import logging
import random
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TypeVar

import httpx

from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
    RateLimit,
    RateLimiter,
)
from serve_app.domain.telemetry.metrics import PROVIDER_CALLS, PROVIDER_SECONDS
from serve_app.providers.web.breaker import CircuitBreaker

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 4.5
MAX_CONNECTIONS = 20
MAX_ATTEMPTS = 3
FIRST_BACKOFF_S = 0.25
LONGEST_RETRY_AFTER_S = 2.0
MAX_WAIT_FOR_TURN_S = 3.0
MAX_BODY_BYTES = 4 * 1024 * 1024

T = TypeVar("T")
Params = Mapping[str, str | int | list[str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """A provider's complete answer."""

    provider: str
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> object:
        """Return the parsed body, without nulls.

        Raises:
            ProviderUnavailableError: It is HTML, empty, cut off or too deep; the message has the
                status.
        """
        try:
            return json.loads(self.body, object_hook=without_nulls)
        except (ValueError, RecursionError) as error:
            raise ProviderUnavailableError(
                self.provider, f"status {self.status} with a body that is not JSON"
            ) from error

    def check_status(self) -> None:
        """Raise the error for an unsuccessful status; the caller handles 404.

        Raises:
            ProviderBusyError: The status is 429, or 503 with Retry-After.
            ProviderRefusedError: The status is 401 or 403.
            ProviderUnavailableError: The status is any other than 2xx.
        """
        retry_after_s = retry_after(self.headers)
        problem = f"status {self.status}"
        if self.status == 429 or (self.status == 503 and retry_after_s is not None):
            raise ProviderBusyError(self.provider, problem, retry_after_s)
        if self.status in (401, 403):
            raise ProviderRefusedError(self.provider, problem)
        if not 200 <= self.status < 300:
            raise ProviderUnavailableError(self.provider, problem)


def without_nulls(members: Mapping[str, object]) -> dict[str, object]:
    """Return a JSON object without null members and null items: providers mean "absent" by them."""
    return {
        name: [one for one in value if one is not None] if isinstance(value, list) else value
        for name, value in members.items()
        if value is not None
    }


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a ``Retry-After`` header in either form; None if absent or wrong.

    A date is compared with the answer's own, since our clock may be wrong.
    """
    text = headers.get("retry-after", "")
    if text.strip().isdecimal():
        return float(text)
    until, now = _moment(text), _moment(headers.get("date", ""))
    return None if until is None else max(0.0, (until - (now or datetime.now(UTC))).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@cache
def _tls_context() -> ssl.SSLContext:
    """Return one verifying context for all providers, since loading certificates takes a while."""
    return httpx.create_ssl_context(trust_env=False)


class LocalRateLimiter:
    """Rolling windows within this process: the default unless replicas share a limit."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._turns: dict[str, deque[float]] = {}

    async def acquire(self, provider: str, limit: RateLimit, max_wait_s: float) -> bool:
        """Reserve the next free turn and wait for it; see `RateLimiter`."""
        now = self._clock()
        turns = self._turns.setdefault(provider, deque(maxlen=limit.n_calls))
        turn = now
        if len(turns) == limit.n_calls:
            turn = max(now, turns[0] + limit.window_s)
        if turn - now > max_wait_s:
            return False
        turns.append(turn)
        if turn > now:
            await self._sleep(turn - now)
        return True


class ProviderClient:
    """Queries one provider over HTTP."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        limit: RateLimit,
        limiter: RateLimiter,
        headers: Mapping[str, str] | None = None,
        breaker: CircuitBreaker | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        max_wait_s: float = MAX_WAIT_FOR_TURN_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.breaker = breaker or CircuitBreaker()
        self._base_url = base_url.rstrip("/")
        self._limit = limit
        self._limiter = limiter
        self._max_wait_s = max_wait_s
        self._sleep = sleep
        self._http = httpx.AsyncClient(
            headers=dict(headers or {}),
            timeout=httpx.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            follow_redirects=False,
            trust_env=False,
            verify=_tls_context(),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def read(
        self,
        route: str,
        judge: Callable[[Reply], T],
        *,
        path: str | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Send a GET request, repeated up to twice if that may help.

        Args:
            route: The route's template, for logs; it contains no values.
            judge: Turns a reply into a result, or raises the matching `ProviderError`.
            path: What follows the base address; ``route`` by default.
            params: Query parameters.
            headers: Headers in addition to the client's own.

        Raises:
            ProviderError: There is no usable answer.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            request = self._http.build_request(
                "GET",
                self._base_url + (route if path is None else path),
                params=params,
                headers=headers,
            )
            try:
                return await self._send(request, route, judge)
            except ProviderError as error:
                pause_s = _pause_before_retry(error, attempt)
                if pause_s is None:
                    raise
                await self._sleep(pause_s)
        raise ProviderUnavailableError(self.name, "no attempt was made")

    async def send_once(self, route: str, judge: Callable[[Reply], T], request: httpx.Request) -> T:
        """Send a prepared request exactly once: for calls that are billed or change something.

        Raises:
            ProviderError: There is no usable answer.
        """
        return await self._send(request, route, judge)

    def build_post(
        self,
        path: str,
        *,
        data: Mapping[str, str] | None = None,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
        json_body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Request:
        """Return a POST for `send_once`; ``path`` is relative to the base address, or absolute."""
        url = path if "://" in path else self._base_url + path
        return self._http.build_request(
            "POST", url, data=data, files=files, json=json_body, headers=headers
        )

    async def _send(self, request: httpx.Request, route: str, judge: Callable[[Reply], T]) -> T:
        wait_s = self.breaker.try_pass()
        if wait_s > 0:
            PROVIDER_CALLS.record(1, provider=self.name, outcome="skipped")
            raise ProviderSkippedError(self.name, "left alone after failures", wait_s)
        started = time.monotonic()
        status, outcome = 0, "error"
        try:
            if not await self._limiter.acquire(self.name, self._limit, self._max_wait_s):
                raise ProviderSkippedError(
                    self.name, "its rate limit leaves no turn in time", self._limit.window_s
                )
            reply = await self._exchange(request)
            status = reply.status
            result = judge(reply)
            outcome = "ok"
        except ProviderSkippedError:
            self.breaker.abandon()
            outcome = "skipped"
            raise
        except ProviderError as error:
            wait_s = error.retry_after_s or 0.0
            if isinstance(error, ProviderRefusedError) or wait_s > LONGEST_RETRY_AFTER_S:
                self.breaker.trip(wait_s)
            else:
                self.breaker.fail()
            raise
        except BaseException:
            self.breaker.abandon()
            raise
        finally:
            taken_s = time.monotonic() - started
            PROVIDER_CALLS.record(1, provider=self.name, outcome=outcome)
            PROVIDER_SECONDS.record(taken_s, provider=self.name)
            logger.info(
                "provider call",
                extra={
                    "provider": self.name,
                    "route": route,
                    "status_class": f"{status // 100}xx" if status else "none",
                    "latency_ms": round(taken_s * 1000),
                },
            )
        self.breaker.succeed()
        return result

    async def _exchange(self, request: httpx.Request) -> Reply:
        """Send the request and read the whole body, within its size limit."""
        body = bytearray()
        try:
            response = await self._http.send(request, stream=True)
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        raise ProviderUnavailableError(self.name, "the answer is too large")
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise ProviderUnavailableError(self.name, "too slow") from error
        except httpx.HTTPError as error:
            # The error's text may contain the address with its parameters, and so a key.
            raise ProviderUnavailableError(self.name, type(error).__name__) from None
        return Reply(self.name, response.status_code, response.headers, bytes(body))


def _pause_before_retry(error: ProviderError, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt, or None for no further attempt.

    A refusal does not go away, a skipped call was skipped on purpose, and after a time-out the
    caller's own time is nearly over.
    """
    if attempt >= MAX_ATTEMPTS or isinstance(error, ProviderRefusedError | ProviderSkippedError):
        return None
    if isinstance(error.__cause__, httpx.TimeoutException):
        return None
    jitter = 0.5 + random.random()  # noqa: S311  # spreads retries, guards nothing
    if isinstance(error, ProviderBusyError):
        wait_s = error.retry_after_s or 1.0  # Spotify sometimes says 0
        return wait_s * jitter if wait_s <= LONGEST_RETRY_AFTER_S else None
    return float(FIRST_BACKOFF_S * 2 ** (attempt - 1) * jitter)
