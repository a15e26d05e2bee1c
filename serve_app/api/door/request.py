"""What routes need from a request: the caller, the caller's rights, and the services."""

import time
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from models.rhythm.tempo import RANGE_FORM, TempoRange
from serve_app.api.door import headerless
from serve_app.api.door.headerless import is_from_here, key_without_header, local_user
from serve_app.api.door.unknown import tell_unknown
from serve_app.api.services import ApiServices, Operations
from serve_app.api.wire.bodies import Error
from serve_app.domain.errors import (
    BadRequestError,
    RateLimitError,
    TierRequiredError,
    UnauthorizedError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.telemetry.facts import note, pseudonym
from serve_app.domain.tiers import LOCAL, Tier, Tiers
from serve_app.domain.ulid import new_ulid
from serve_app.store.limits import Decision

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="ApiKey",
    description="An API key, `afa_live_…` or `afa_test_…`; issued with `afa keys create`.",
)

Format = Annotated[
    Literal["spotify"] | None,
    Query(
        description="`spotify`: answer in the shape of Spotify's audio features.",
        examples=["spotify"],
    ),
]


async def read_tempo_range(
    tempo_range: Annotated[
        str | None,
        Query(
            description="Look for the tempo between these BPM, so that half or double of it is not "
            "chosen: two whole numbers from 40 to 250, the lower first.",
            json_schema_extra={"pattern": f"^{RANGE_FORM}$"},
            examples=["80-160"],
        ),
    ] = None,
) -> TempoRange | None:
    """Read the range of tempi that a request asks for.

    Raises:
        BadRequestError: It has another form.
    """
    if tempo_range is None:
        return None
    try:
        return TempoRange.parse(tempo_range)
    except ValueError as error:
        raise BadRequestError(str(error)) from error


Within = Annotated[TempoRange | None, Depends(read_tempo_range)]

HOW_TO_AUTHENTICATE = "send your API key as `Authorization: Bearer afa_live_…`"

ERROR_TEXTS = {
    400: "Malformed request.",
    401: "Missing or invalid API key.",
    402: "Insufficient credits, or the tier does not include the operation.",
    403: "The API key lacks the scope.",
    404: "Not found, or not yours.",
    409: "Idempotency-Key reused with another request.",
    413: "The body exceeds the tier's upload size, or all assets together its storage.",
    415: "Unsupported media type, or a compressed body.",
    429: "Rate limit exceeded, or too many requests at once; see Retry-After.",
    500: "Internal error; nothing was charged.",
    502: "All identification services are unavailable; refunded.",
    503: "Overloaded or partly down; try again after the time in Retry-After.",
}
RETRYABLE_STATUSES = {429, 503}
RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe error answers of a route for the OpenAPI document.

    A route that needs a key also needs a scope: 403 goes with 401.
    """
    if 401 in statuses:
        statuses = tuple(sorted({*statuses, 403}))
    return {
        status: {"model": Error, "description": ERROR_TEXTS[status]}
        | ({"headers": RETRY_AFTER} if status in RETRYABLE_STATUSES else {})
        for status in statuses
    }


def services_of(request: Request) -> ApiServices:
    """Return the services that this process was built with."""
    services: ApiServices = request.app.state.services
    return services


async def get_services(request: Request) -> ApiServices:
    """As `services_of`; FastAPI would run a plain function in a thread, which costs more."""
    return services_of(request)


Services = Annotated[ApiServices, Depends(get_services)]


async def read_embedding_model(
    services: Services,
    embedding_model: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            description="Model to make the embedding, instead of the one in use; "
            "`GET /v1/models` lists them. Tags that its network recognises come with it.",
            examples=["efficientat-mn04"],
        ),
    ] = None,
) -> str | None:
    """Read the embedding model that a request names.

    Raises:
        BadRequestError: There is no model with that name, or it is not available here.
    """
    if embedding_model is not None:
        services.models.check(embedding_model)
    return embedding_model


EmbeddingModel = Annotated[str | None, Depends(read_embedding_model)]


def rate_headers(*decisions: Decision) -> dict[str, str]:
    """Write the draft's headers, with a list item for every policy."""
    return {
        "RateLimit-Policy": ", ".join(f'"{d.kind}";q={d.limit};w={d.window_s}' for d in decisions),
        "RateLimit": ", ".join(f'"{d.kind}";r={d.remaining};t={d.reset_s}' for d in decisions),
    }


def what_was_seen(request: Request) -> str:
    """Say why no key was found, by where and how one was sent; keys themselves are not repeated."""
    sent = request.headers.get("authorization", "")
    scheme, _, rest = sent.partition(" ")
    if sent.startswith("afa_"):
        return "the Authorization header has a key, but lacks `Bearer ` before it"
    if scheme.lower() == "bearer" and not rest.strip():
        return "the Authorization header has no key behind `Bearer`"
    if sent:
        return "the Authorization header is of another scheme than Bearer"
    if "x-api-key" in request.headers:
        return "there is no Authorization header, and X-API-Key is not read"
    if {"api_key", "apikey", "key", "access_token"} & request.query_params.keys():
        return "there is no Authorization header, and keys in the address are not read"
    return "there is no Authorization header"


def how_to_authenticate(request: Request) -> str:
    """Say how to send a key; below the mount of programs without headers, how they send it."""
    is_mounted = request.scope["path"].startswith(headerless.MOUNT)
    more = f", {headerless.HOW_TO_AUTHENTICATE}" if is_mounted else ""
    return HOW_TO_AUTHENTICATE + more


async def authenticate(
    request: Request,
    services: Services,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Caller:
    """Find out who is calling.

    Raises:
        UnauthorizedError: There is no key, or it is not valid.
        RateLimitError: Too many failed attempts from this address.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    key = key_without_header(request) if credentials is None else credentials.credentials
    if caller is None:
        if key is None:
            caller = await local_user(request, services)
        else:
            caller = await services.accounts.authenticate(key)
    if caller is not None:
        if caller.tier == LOCAL and not is_from_here(request):
            raise UnauthorizedError(
                "this key of the tier local works on the machine of the service alone; make "
                "another with `afa keys create`"
            )
        request.state.caller = caller
        if caller.is_test:
            request.state.headers["X-Test"] = "true"
        note(
            account=pseudonym(caller.account),
            key="test" if caller.is_test else "live",
            route=request.scope["route"].path,
        )
        tell_unknown(request)
        return caller
    address = request.client.host if request.client else "unknown"
    decision = await services.limits.check_failed_auth(address)
    if not decision.allowed:
        request.state.headers.update(rate_headers(decision))
        raise RateLimitError(
            "too many requests without a valid API key from this address", decision.retry_after_s
        )
    if key is None:
        raise UnauthorizedError(f"{what_was_seen(request)}; {how_to_authenticate(request)}")
    raise UnauthorizedError("this API key is not valid; it may be expired, revoked or mistyped")


async def authenticate_header(request: Request, services: ApiServices) -> Caller:
    """Find out who is calling, before FastAPI looks at the request; raises as `authenticate`."""
    return await authenticate(request, services, await bearer(request))


Authenticated = Annotated[Caller, Depends(authenticate)]


async def operations_for(caller: Authenticated, services: Services) -> Operations:
    """Choose the operations for this caller: the live ones, or those for test keys."""
    return services.of(caller)


Offered = Annotated[Operations, Depends(operations_for)]


def request_id(request: Request) -> str:
    """Return the id that this request's charges derive from: random, or by Idempotency-Key."""
    if not hasattr(request.state, "request_id"):
        request.state.request_id = new_ulid()
    return str(request.state.request_id)


def latency_ms(request: Request) -> int:
    """Return the milliseconds since the request arrived."""
    started_at: float = request.state.started_at
    return round(1000 * (time.monotonic() - started_at))


def require_gpu(tiers: Tiers, tier: Tier) -> None:
    """Refuse GPU work to a tier without it.

    Raises:
        TierRequiredError: The tier has no access to a GPU.
    """
    if not tier.gpu:
        raise TierRequiredError(
            f"full analysis needs a paid tier ({tiers.first_with('gpu').name} or higher); "
            f"your tier is {tier.name}"
        )


def require_embedding(tiers: Tiers, tier: Tier) -> None:
    """Refuse embeddings to a tier without them.

    Raises:
        TierRequiredError: The tier includes no embeddings.
    """
    if not tier.embedding:
        raise TierRequiredError(
            f"embeddings need the {tiers.first_with('embedding').name} tier or higher; "
            f"your tier is {tier.name}"
        )
