"""Everything that can go wrong.

AfaError
├── NoAnswerError           the service could not be reached, or did not answer
├── StatusError             it answered with an error: ``status``, ``code``, ``message``;
│   │                       or something else answered in its place (``not_from_afa``)
│   ├── BadRequestError        400, 409, 413, 415: the request or the audio
│   ├── UnauthorizedError      401, 403: the key
│   ├── PaymentRequiredError   402: credits, or the tier
│   ├── NotFoundError          404
│   ├── RateLimitedError       429, after all retries
│   └── ServerError            5xx, after all retries; nothing was charged
├── JobFailedError          an analysis failed: ``code``, ``message``; it was refunded
├── JobUnfinishedError      an analysis did not end in the given time
└── SignatureError          a webhook message is not the service's
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx


class AfaError(Exception):
    """Root of all errors of this client."""


class NoAnswerError(AfaError):
    """The service could not be reached, or did not answer."""


class StatusError(AfaError):
    """The service answered with an error.

    Attributes:
        status: HTTP status code.
        code: Machine-readable, such as ``insufficient_credits``.
        message: What happened and what to do about it.
        trace_id: Quote it when you ask for help.
        retry_after_s: Seconds to wait before the next request, if the service said so.
    """

    def __init__(
        self, status: int, code: str, message: str, trace_id: str, retry_after_s: float | None
    ) -> None:
        super().__init__(status, code, message, trace_id, retry_after_s)
        self.status = status
        self.code = code
        self.message = message
        self.trace_id = trace_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


class BadRequestError(StatusError):
    """The service does not accept the request, or the audio in it."""


class UnauthorizedError(StatusError):
    """The key is missing, not valid, or lacks a scope."""


class PaymentRequiredError(StatusError):
    """You have too few credits, or your tier does not include the operation."""


class NotFoundError(StatusError):
    """No such track, asset, job or path."""


class RateLimitedError(StatusError):
    """Too many requests, even after all retries."""


class ServerError(StatusError):
    """The service failed, even after all retries; nothing was charged."""


class JobFailedError(AfaError):
    """An analysis failed and was refunded."""

    def __init__(self, job_id: str, code: str, message: str) -> None:
        super().__init__(job_id, code, message)
        self.job_id = job_id
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.job_id}: {self.code}: {self.message}"


class JobUnfinishedError(AfaError):
    """An analysis did not end in the given time; it goes on, and you can wait for it again."""


class SignatureError(AfaError):
    """A webhook message is too old, or was not signed with the secret."""


_CLASSES: dict[int, type[StatusError]] = {
    401: UnauthorizedError,
    402: PaymentRequiredError,
    403: UnauthorizedError,
    404: NotFoundError,
    429: RateLimitedError,
}
_RANGES = ((500, ServerError), (400, BadRequestError), (0, StatusError))


def _seconds_asked(after: str) -> float | None:
    """Read a ``Retry-After`` header, in seconds or as a date; None if it is neither."""
    if after.isdecimal():
        return float(after)
    try:
        until = parsedate_to_datetime(after)
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def error_of(response: httpx.Response) -> StatusError:
    """Return the error for an answer; one not from the service keeps its status and text."""
    try:
        body = response.json()
        code, message = str(body["error"]), str(body["message"])
        trace_id = str(body.get("trace_id") or "")
    except (ValueError, KeyError, TypeError):
        code, message, trace_id = "not_from_afa", response.text[:200] or response.reason_phrase, ""
    retry_after_s = _seconds_asked(response.headers.get("retry-after", ""))
    status = response.status_code
    if response.has_redirect_location:
        message = f"the address redirects to {response.headers['location']}; give that one"
    kind = _CLASSES.get(status) or next(one for least, one in _RANGES if status >= least)
    return kind(status, code, message, trace_id, retry_after_s)
