"""The only place that makes error responses: body is always ``{error, message, trace_id}``."""

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from serve_app.api.wire.spotify import PREFIX as SPOTIFY_PREFIX
from serve_app.api.wire.spotify import spotify_error
from serve_app.domain.errors import (
    AfaError,
    BadRequestError,
    InternalError,
    MethodNotAllowedError,
    PayloadTooLargeError,
    RetryableError,
    RouteNotFoundError,
    UnauthorizedError,
)

logger = logging.getLogger(__name__)


def error_response(request: Request, error: AfaError) -> JSONResponse:
    """Make the response of a request's error."""
    return error_answer(request.url.path, error, request.state.trace_id)


def error_answer(path: str, error: AfaError, trace_id: str) -> JSONResponse:
    """Make the response of an error, in Spotify's shape below its mount."""
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


def describe_validation(error: RequestValidationError) -> str:
    """Say in one sentence per fault which field is wrong and how."""
    faults = []
    for fault in error.errors():
        where = ".".join(str(part) for part in fault["loc"] if part != "body") or "body"
        faults.append(f"{where}: {fault['msg']}")
    return "; ".join(faults)


def install(app: FastAPI) -> None:
    """Register the handlers of all errors on ``app``."""

    @app.exception_handler(AfaError)
    async def on_afa_error(request: Request, error: AfaError) -> JSONResponse:
        return error_response(request, error)

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(request, BadRequestError(describe_validation(error)))

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> JSONResponse:
        mapped: AfaError
        match error.status_code:
            case HTTPStatus.NOT_FOUND:
                mapped = RouteNotFoundError(f"no such path: {request.url.path}; see /docs")
            case HTTPStatus.METHOD_NOT_ALLOWED:
                mapped = MethodNotAllowedError(f"{request.method} is not allowed here; see /docs")
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                mapped = PayloadTooLargeError("the body is too large")
            case status if status < HTTPStatus.INTERNAL_SERVER_ERROR:
                mapped = BadRequestError(str(error.detail))
            case _:
                mapped = InternalError("something failed on our side; nothing was charged")
        response = error_response(request, mapped)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def on_unknown_error(request: Request, error: Exception) -> JSONResponse:
        logger.error("unhandled error, trace %s", request.state.trace_id, exc_info=error)
        response = error_response(
            request, InternalError("something failed on our side; nothing was charged")
        )
        # This handler answers outside the middleware that otherwise adds the headers.
        response.headers["X-Trace-Id"] = request.state.trace_id
        response.headers.update(request.state.headers)
        return response
