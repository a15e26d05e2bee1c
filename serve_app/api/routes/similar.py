"""Similar tracks of the library, and ways from one track to another."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Reader
from serve_app.api.door.request import Offered, error_responses, request_id
from serve_app.api.routes.features import TrackIdPath
from serve_app.api.wire.forms import PLAIN
from serve_app.api.wire.library import SAYS_SOMETHING
from serve_app.api.wire.meta import meta_of
from serve_app.api.wire.similar import (
    MAX_PATH,
    Filters,
    ModelId,
    SimilarList,
    SimilarRequest,
    similar_body,
)
from serve_app.services.similar.similar import Found
from serve_app.services.similar.wanted import Seed

router = APIRouter(tags=["Similarity"], route_class=IdempotentRoute)


def end_of(alias: str) -> Any:
    """Describe one end of a way."""
    return Query(
        alias=alias,
        min_length=1,
        max_length=2048,
        description="Identifier in any form that look-ups accept.",
        examples=["isrc:QZAFA2600001"],
    )


def answer_of(request: Request, found: Found) -> SimilarList:
    """Write an answer, with its cost in the headers too."""
    meta = meta_of(request, "bypass", found.credits_used, found.balance.remaining)
    return similar_body(found, meta)


@router.get(
    "/v1/similar",
    response_model=SimilarList,
    responses=error_responses(400, 401, 402, 429, 500, 503),
    summary="Tracks that sound like a description",
)
async def similar_to_text(
    request: Request,
    caller: Reader,
    offered: Offered,
    text: Annotated[
        str,
        Query(
            min_length=1,
            max_length=500,
            description="What the tracks should sound like, in English words.",
            examples=["slow piano with rain"],
        ),
        SAYS_SOMETHING,
    ],
    filters: Annotated[Filters, Query()],
) -> SimilarList:
    """Search the library by words, with a model that has text and audio in one vector space.

    This needs a CLAP checkpoint with its tokenizer, which the operator chooses and analyses the
    library with; without one the answer is 400. `GET /v1/models` shows which models read text.
    """
    wanted = filters.wanted([])
    found = await offered.similar.described(caller, text, wanted, request_id(request))
    return answer_of(request, found)


@router.get(
    "/v1/similar/{id:path}",
    response_model=SimilarList,
    responses=error_responses(400, 401, 402, 404, 429, 500, 503),
    summary="Tracks that sound like a track",
)
async def similar_to_track(
    request: Request,
    caller: Reader,
    offered: Offered,
    id: TrackIdPath,
    filters: Annotated[Filters, Query()],
) -> SimilarList:
    """Get the tracks of your library and the operator's that sound most like one of them.

    Each recording appears once, and never the one you asked for. Filters are exact: if few tracks
    meet them, you get those, however far away they are. A track without an analysis is 404; add it
    with `POST /v1/library` first.
    """
    wanted = filters.wanted([Seed(track=id)])
    return answer_of(request, await offered.similar.similar(caller, wanted, request_id(request)))


@router.post(
    "/v1/similar",
    response_model=SimilarList,
    responses=error_responses(400, 401, 402, 404, 409, 413, 415, 429, 500, 503),
    openapi_extra=idempotent(),
    summary="Tracks that sound like several, or like an embedding",
)
async def similar_to_many(
    request: Request, caller: Reader, offered: Offered, body: SimilarRequest
) -> SimilarList:
    """Search around the weighted mean of up to 20 seeds, and away from `unlike`.

    A seed is a track by any identifier, an asset whose audio is in the library, or one of your
    analyses with its embedding. An embedding is compared only with those of its own model. Vectors
    of two models are never mixed: a model that is unknown, or made no vector of a seed, is 400.
    """
    found = await offered.similar.similar(caller, body.search(), request_id(request))
    return answer_of(request, found)


@router.get(
    "/v1/path",
    response_model=SimilarList,
    responses=error_responses(400, 401, 402, 404, 429, 500, 503),
    summary="A path from one track to another",
)
async def path(
    request: Request,
    caller: Reader,
    offered: Offered,
    start: Annotated[str, end_of("from")],
    end: Annotated[str, end_of("to")],
    n: Annotated[
        int, Query(ge=2, le=MAX_PATH, description="How many tracks, including both ends."), PLAIN
    ] = 10,
    model: Annotated[ModelId | None, Query(description="Model whose vectors are compared.")] = None,
) -> SimilarList:
    """Get a path through the library on which sound, tempo and key change little at each step.

    Each track is compared with the one before it. No recording appears twice; if the library has
    too few, the path is shorter.
    """
    ends = (start, end)
    found = await offered.similar.path(caller, ends, n, model, request_id(request))
    return answer_of(request, found)
