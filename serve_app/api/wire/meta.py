"""The ``_meta`` of an answer, also as headers for shapes that have no room for it."""

from typing import Literal

from fastapi import Request

from serve_app.api.door.request import latency_ms
from serve_app.api.wire.bodies import Meta
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.services.lookup.batch import Batch

CacheState = Literal["hit", "miss", "bypass"]

UNFINISHED_AFTER_S = 5
"""Retry-After of a batch with unfinished look-ups, as for a look-up that took too long."""


def meta_of(request: Request, cache: CacheState, credits_used: int, credits_remaining: int) -> Meta:
    """Describe how the request was served, in the body and in the headers."""
    request.state.headers.update(
        {
            "X-Cache": cache,
            "X-Credits-Used": str(credits_used),
            "X-Credits-Remaining": str(credits_remaining),
        }
    )
    return Meta(
        cache=cache,
        latency_ms=latency_ms(request),
        credits_used=credits_used,
        credits_remaining=credits_remaining,
        trace_id=request.state.trace_id,
        test=request.state.caller.is_test,
    )


def meta_of_batch(request: Request, batch: Batch) -> Meta:
    """As `meta_of`; if a slot is empty only for now, the headers say when to ask again."""
    if ServiceUnavailableError.code in batch.reasons.values():
        request.state.headers["Retry-After"] = str(UNFINISHED_AFTER_S)
    return meta_of(request, batch.cache, batch.credits_used, batch.balance.remaining)
