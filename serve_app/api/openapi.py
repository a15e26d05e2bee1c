"""Completes the OpenAPI document: headers of every answer, and examples of all of them.

Invariant: openapi-generator, the most used tool of its kind, accepts the document and makes clients
that compile: links have text bodies, operations short names, and integers 64 bits.
"""

import math
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route

from serve_app.api.door.headerless import MOUNT
from serve_app.api.examples import EXAMPLES, error_example
from serve_app.api.wire.assets import AssetInput, UrlInput
from serve_app.api.wire.embedding import EmbeddedFile, FilesInput, NamedFile
from serve_app.api.wire.library import LibraryAddRequest

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
TEXT = {"schema": {"type": "string"}}
TRACE_HEADER = {"X-Trace-Id": {"description": "W3C trace id of the request."} | TEXT}
RATE_HEADERS = {
    "RateLimit-Policy": {
        "description": "Requests allowed (q) in a window of seconds (w), by class.",
        "example": '"read";q=300;w=60',
    }
    | TEXT,
    "RateLimit": {
        "description": "Requests remaining (r), and seconds until all are back (t), by class.",
        "example": '"read";r=299;t=1',
    }
    | TEXT,
}
CREDIT_HEADERS = {
    "X-Cache": {"description": "Same as `_meta.cache`."} | TEXT,
    "X-Credits-Used": {"description": "Same as `_meta.credits_used`."} | TEXT,
    "X-Credits-Remaining": {"description": "Same as `_meta.credits_remaining`."} | TEXT,
    "X-Test": {"description": "Same as `_meta.test`; only with test keys."} | TEXT,
}

COST_IN_HEADERS = frozenset(
    {
        *("/v1/embed", "/spotify/v1/audio-features"),
        *("/spotify/v1/audio-features/{id}", "/spotify/v1/audio-analysis/{id}"),
        *("/acousticbrainz/low-level", "/acousticbrainz/high-level"),
        *("/acousticbrainz/{mbid}/low-level", "/acousticbrainz/{mbid}/high-level"),
        *("/api/similar_tracks", "/api/alchemy", "/api/find_path"),
    }
)
"""Paths that cost something and whose answers have no `_meta` or no example."""

KEY_IN_ADDRESS = {
    "type": "http",
    "scheme": "basic",
    "description": f"Only below `{MOUNT}`, where programs on the service's own machine need no "
    f"key: the API key as the password in the address, `http://x:afa_live_…@HOST{MOUNT}`.",
}
LETS_IN_MOUNTED: list[dict[str, list[str]]] = [{"ApiKey": []}, {"KeyInAddress": []}, {}]
"""Any of these; the last means no key at all."""

LARGEST_INT32 = 2**31 - 1

Link = tuple[str, str, dict[str, str], str | None]
LINKS: dict[tuple[str, str, str], dict[str, Link]] = {
    ("/v1/assets/upload", "post", "201"): {
        "ReadAsset": ("/v1/assets/{id}", "get", {"id": "$response.body#/asset_id"}, None),
        "DetectTempo": ("/v1/bpm", "post", {}, "$response.body"),
        "Analyse": ("/v1/audio-features/upload", "post", {}, "$response.body"),
    },
    ("/v1/library", "post", "202"): {
        "Poll": ("/v1/jobs/{job_id}", "get", {"job_id": "$response.body#/job_id"}, None),
        "ReadTrack": ("/v1/library/{id}", "get", {"id": "$response.body#/track/id"}, None),
    },
    ("/v1/library", "get", "200"): {
        "NextPage": ("/v1/library", "get", {"cursor": "$response.body#/next_cursor"}, None)
    },
    ("/v1/audio-features/upload", "post", "202"): {
        "Poll": ("/v1/jobs/{job_id}", "get", {"job_id": "$response.body#/job_id"}, None)
    },
    ("/v1/audio-features/url", "post", "202"): {
        "Poll": ("/v1/jobs/{job_id}", "get", {"job_id": "$response.body#/job_id"}, None)
    },
    ("/v1/jobs", "get", "200"): {
        "NextPage": ("/v1/jobs", "get", {"cursor": "$response.body#/next_cursor"}, None)
    },
    ("/v1/assets", "get", "200"): {
        "NextPage": ("/v1/assets", "get", {"cursor": "$response.body#/next_cursor"}, None)
    },
}


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Add headers and examples, and drop the 422 that never happens.

    ``RateLimit`` is on every answer to a caller who was let in, and on the refusal.
    """
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            if path.startswith(MOUNT):
                operation["security"] = LETS_IN_MOUNTED
            for status, response in operation["responses"].items():
                _complete_response(path, method, int(status), response)
    for (path, method, status), links in LINKS.items():
        document["paths"][path][method]["responses"][status]["links"] = {
            name: {
                "operationId": document["paths"][to][verb]["operationId"],
                "parameters": parameters,
            }
            | ({} if body is None else {"requestBody": body})
            for name, (to, verb, parameters, body) in links.items()
        }
    document["components"]["securitySchemes"]["KeyInAddress"] = KEY_IN_ADDRESS
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for named in (AssetInput, UrlInput, NamedFile, FilesInput, EmbeddedFile, LibraryAddRequest):
        schema = named.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.pop("$defs", None)  # they are next to it
        schemas.setdefault(named.__name__, schema)
    widen(document)
    return document


def widen(node: Any) -> None:
    """Mark integers that may exceed 32 bits as 64-bit; generators assume 32 otherwise."""
    if isinstance(node, list):
        for item in node:
            widen(item)
    elif isinstance(node, dict):
        is_bounded = node.get("maximum", math.inf) <= LARGEST_INT32 or "enum" in node
        if node.get("type") == "integer" and not is_bounded:
            node["format"] = "int64"
        for item in node.values():
            widen(item)


def _complete_response(path: str, method: str, status: int, response: dict[str, Any]) -> None:
    headers = response.setdefault("headers", {})
    headers |= TRACE_HEADER
    if path not in OPEN_PATHS and status != 401:
        headers |= RATE_HEADERS
    example = EXAMPLES.get((path, method), {})
    if status < 400 and (path in COST_IN_HEADERS or "_meta" in example):
        headers |= CREDIT_HEADERS
    content = response.get("content", {}).get("application/json")
    if content is None:
        return
    if status >= 400 and path not in OPEN_PATHS:
        content["example"] = error_example(path, status)
        return
    if example:
        content["example"] = example


def install(app: FastAPI) -> None:
    """Serve the completed document, compressed, as it is large for a phone."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(
                get_openapi(
                    title=app.title,
                    version=app.version,
                    summary=app.summary,
                    description=app.description,
                    routes=app.routes,
                    license_info=app.license_info,
                    servers=app.servers,
                )
            )
        return app.openapi_schema

    serve: Callable[[], dict[str, Any]] = openapi
    app.openapi = serve  # type: ignore[method-assign]
    for route in app.routes:
        if isinstance(route, Route) and route.path == app.openapi_url:
            route.app = GZipMiddleware(route.app, compresslevel=6)
