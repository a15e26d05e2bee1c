"""The only place that makes error responses; the body is ``{error, message, trace_id}``."""

import errno
import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from serve_app.api.door.unknown import FIELDS as UNKNOWN_FIELDS
from serve_app.api.door.unknown import HEADER as UNKNOWN_PARAMETERS
from serve_app.api.manners import allowed_methods
from serve_app.api.wire.dialects.spotify import PREFIX as SPOTIFY_PREFIX
from serve_app.api.wire.dialects.spotify import spotify_error
from serve_app.domain.errors import (
    AfaError,
    BadRequestError,
    InternalError,
    MethodNotAllowedError,
    PayloadTooLargeError,
    RetryableError,
    RouteNotFoundError,
    ServiceUnavailableError,
    UnauthorizedError,
)

logger = logging.getLogger(__name__)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a full disk, to which bodies and fetched audio are written."""

PLACES = frozenset({"query", "path", "header", "body"})
"""Names by which validation says where a field is."""


def error_response(request: Request, error: AfaError) -> JSONResponse:
    """Make the response for a request's error."""
    return error_answer(request.url.path, error, request.state.trace_id)


def error_answer(path: str, error: AfaError, trace_id: str) -> JSONResponse:
    """Make the response for an error, in Spotify's shape below its mount."""
    headers: dict[str, str] = {}
    if isinstance(error, RetryableError):
        headers["Retry-After"] = str(max(1, error.retry_after_s))
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    if path.startswith(SPOTIFY_PREFIX):
        body = spotify_error(error, trace_id)
    else:
        body = {"error": error.code, "message": error.message, "trace_id": trace_id}
    return JSONResponse(body, status_code=error.status, headers=headers)


NO_JSON = "the body is no JSON; send a JSON object, as /docs shows it"
UNREADABLE = "There was an error parsing the body"
"""FastAPI's message for a body that is not even text."""

PYDANTICS_OWN = re.compile(
    r"^(Value error, |(Input|String|List|Dictionary) )|, unable to [\w ]+$| after validation"
)
"""Parts of Pydantic's messages that are about its own working, not about what was sent."""

LONGEST_SEEN = 60
"""So many characters of what was sent are repeated."""


def describe_validation(request: Request, error: RequestValidationError) -> str:
    """Say in one sentence per fault which field is wrong, how, and what was sent."""
    faults = [describe_fault(fault) for fault in error.errors()]
    unknown = map(request.state.headers.get, (UNKNOWN_PARAMETERS, UNKNOWN_FIELDS))
    faults += [f"not known here: {names}" for names in unknown if names]
    return "; ".join(faults)


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Say what is wrong with one field."""
    where = ".".join(str(part) for part in fault["loc"] if part not in PLACES) or "body"
    match fault["type"]:
        case "missing":
            return f"{where} is missing"
        case "json_invalid":
            return NO_JSON
        case "model_attributes_type" | "dict_type" | "model_type":
            return f"{where}: send a JSON object, as /docs shows it"
    message = PYDANTICS_OWN.sub("", fault["msg"])
    seen = fault.get("input")
    if isinstance(seen, str | int | float):
        return f"{where}: {message}, not {repr(seen)[:LONGEST_SEEN]}"
    return f"{where}: {message}"


def missing(request: Request, error: AfaError) -> JSONResponse:
    """Make the response for a 404, or a 405 if the id is a route's path: GET /v1/assets/upload."""
    allowed = allowed_methods(request.app.routes, request.scope)
    is_taken = request.method in allowed.split(", ")
    return error_response(request, error) if is_taken else not_allowed(request)


def not_allowed(request: Request) -> JSONResponse:
    """Make the response for a method that the path does not accept."""
    allowed = allowed_methods(request.app.routes, request.scope)
    message = f"{request.method} is not allowed here, but {allowed}; see /docs"
    response = error_response(request, MethodNotAllowedError(message))
    response.headers["Allow"] = allowed
    return response


def install(app: FastAPI) -> None:
    """Register the handlers of all errors on ``app``."""

    @app.exception_handler(AfaError)
    async def on_afa_error(request: Request, error: AfaError) -> JSONResponse:
        is_missing = error.status == HTTPStatus.NOT_FOUND
        return missing(request, error) if is_missing else error_response(request, error)

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(request, BadRequestError(describe_validation(request, error)))

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> JSONResponse:
        mapped: AfaError
        headers = dict(error.headers or {})
        match error.status_code:
            case HTTPStatus.NOT_FOUND:
                mapped = RouteNotFoundError(f"no such path: {request.url.path}; see /docs")
            case HTTPStatus.METHOD_NOT_ALLOWED:
                return not_allowed(request)
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                mapped = PayloadTooLargeError("the body is too large")
            case status if status < HTTPStatus.INTERNAL_SERVER_ERROR:
                mapped = BadRequestError(
                    NO_JSON if error.detail == UNREADABLE else str(error.detail)
                )
            case _:
                mapped = InternalError("something failed on our side; nothing was charged")
        response = error_response(request, mapped)
        response.headers.update(headers)
        return response

    @app.exception_handler(Exception)
    async def on_unknown_error(request: Request, error: Exception) -> JSONResponse:
        # Outside the middleware that otherwise adds which request it is.
        whose = {"trace_id": request.state.trace_id}
        logger.error("unhandled error", exc_info=error, extra=whose)
        mapped: AfaError = InternalError("something failed on our side; nothing was charged")
        if isinstance(error, OSError) and error.errno in FULL:
            mapped = ServiceUnavailableError("a disk of the service is full; try again later")
        response = error_response(request, mapped)
        # This handler answers outside the middleware that otherwise adds the headers.
        response.headers["X-Trace-Id"] = request.state.trace_id
        response.headers.update(request.state.headers)
        return response
