"""Every error a customer can see.

AfaError
├── BadRequestError            400 bad_request
│   ├── UnprocessableAudioError 400 unprocessable_audio | audio_too_long | audio_too_short
│   └── UrlFetchError          400 url_fetch_failed (as the error of a job)
├── UnauthorizedError          401 unauthorized
├── ScopeRequiredError         403 scope_required
├── LibraryClosedError         403 library_closed
├── InsufficientCreditsError   402 insufficient_credits
├── TierRequiredError          402 tier_required
├── NotFoundError
│   ├── TrackNotFoundError     404 track_not_found
│   ├── AssetNotFoundError     404 asset_not_found
│   ├── JobNotFoundError       404 job_not_found
│   └── RouteNotFoundError     404 not_found
├── MethodNotAllowedError      405 method_not_allowed
├── IdempotencyMismatchError   409 idempotency_mismatch
├── JobRunningError            409 job_running
├── PayloadTooLargeError       413 payload_too_large
├── UnsupportedMediaTypeError  415 unsupported_media_type
├── RateLimitError             429 rate_limit_exceeded
├── ConcurrencyError           429 concurrency_exceeded
├── InternalError              500 internal_error
├── ProvidersUnavailableError  502 providers_unavailable
└── ServiceUnavailableError    503 service_unavailable
    └── UnansweredError        503 service_unavailable (it may still have been done)

``code`` is public and stable; the message is written for the customer and says what to do.
"""

import re
from typing import ClassVar

SOURCE_LINE = re.compile(r", \S+\.rs:\d+:\d+$")
"""The place in Lance's source where an error arose, at the end of its message."""


class AfaError(Exception):
    """Root of all errors that are returned to a customer."""

    code: str = "internal_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadRequestError(AfaError):
    """The request is malformed."""

    code = "bad_request"
    status = 400


class UnprocessableAudioError(BadRequestError):
    """The audio cannot be analysed; ``code`` says why."""

    def __init__(self, message: str, code: str = "unprocessable_audio") -> None:
        Exception.__init__(self, message, code)
        self.message = message
        self.code = code


class UrlFetchError(BadRequestError):
    """The audio at a URL could not be fetched."""

    code = "url_fetch_failed"


class UnauthorizedError(AfaError):
    """No valid API key."""

    code = "unauthorized"
    status = 401


class ScopeRequiredError(AfaError):
    """The API key is valid, but was issued without the scope."""

    code = "scope_required"
    status = 403


class LibraryClosedError(AfaError):
    """The track is the operator's, or the operator alone adds tracks."""

    code = "library_closed"
    status = 403


class InsufficientCreditsError(AfaError):
    """The balance does not cover the operation."""

    code = "insufficient_credits"
    status = 402


class TierRequiredError(AfaError):
    """The caller's tier does not include the operation; the message names the one that does."""

    code = "tier_required"
    status = 402


class NotFoundError(AfaError):
    """Something the path names does not exist, or is not the caller's."""

    code = "not_found"
    status = 404


class TrackNotFoundError(NotFoundError):
    """No such track, or no audio to compute its features from."""

    code = "track_not_found"


class AssetNotFoundError(NotFoundError):
    """No such asset: expired, never existed, or another owner's."""

    code = "asset_not_found"


class JobNotFoundError(NotFoundError):
    """No such job: expired, never existed, or another owner's."""

    code = "job_not_found"


class RouteNotFoundError(NotFoundError):
    """No such path."""


class MethodNotAllowedError(AfaError):
    """The path does not accept this method."""

    code = "method_not_allowed"
    status = 405


class IdempotencyMismatchError(AfaError):
    """An Idempotency-Key was reused with another request."""

    code = "idempotency_mismatch"
    status = 409


class JobRunningError(AfaError):
    """A job cannot be deleted while it is running."""

    code = "job_running"
    status = 409


class PayloadTooLargeError(AfaError):
    """The body exceeds the tier's upload size."""

    code = "payload_too_large"
    status = 413


class UnsupportedMediaTypeError(AfaError):
    """The Content-Type is not one that the route accepts."""

    code = "unsupported_media_type"
    status = 415


class RetryableError(AfaError):
    """An error that goes away if you wait; returned with ``Retry-After``."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        Exception.__init__(self, message, retry_after_s)
        self.message = message
        self.retry_after_s = retry_after_s


class RateLimitError(RetryableError):
    """Too many requests of one class."""

    code = "rate_limit_exceeded"
    status = 429


class ConcurrencyError(RetryableError):
    """Too many requests in flight at once."""

    code = "concurrency_exceeded"
    status = 429


class InternalError(AfaError):
    """A fault of ours; never echoes its cause."""


class ProvidersUnavailableError(AfaError):
    """Every identification service that was tried failed."""

    code = "providers_unavailable"
    status = 502


class ServiceUnavailableError(RetryableError):
    """The service, or a part the request needs, is down or full."""

    code = "service_unavailable"
    status = 503


class UnansweredError(ServiceUnavailableError):
    """The request was passed on but not answered; it may still have been done."""


def with_cause(error: Exception) -> str:
    """Say what went wrong, including why a part is unavailable, which customers do not see."""
    told = error.message if isinstance(error, AfaError) else str(error)
    cause = error.__cause__
    if cause is None or not isinstance(error, ServiceUnavailableError):
        return told
    why = SOURCE_LINE.sub("", str(cause).partition("\n")[0])
    return f"{told} ({why or type(cause).__name__})"
