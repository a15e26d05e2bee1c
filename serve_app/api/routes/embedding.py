"""Embeddings of many files at once, and the models there are to make them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from serve_app.api.door.idempotency import IdempotentRoute, idempotent
from serve_app.api.door.limits import Computer, Reader
from serve_app.api.door.request import (
    EmbeddingModel,
    Offered,
    Services,
    error_responses,
    request_id,
    require_embedding,
    require_gpu,
)
from serve_app.api.door.sent_files import FILES_BODY, sent_files
from serve_app.api.wire.embedding import (
    ModelList,
    as_arrow,
    as_lines,
    embedded_file,
    model_body,
)
from serve_app.api.wire.meta import meta_of

router = APIRouter(tags=["Analysis"], route_class=IdempotentRoute)

NDJSON, ARROW_STREAM = "application/x-ndjson", "application/vnd.apache.arrow.stream"


VECTORS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One line, or one row, per file, in the order of the request.",
        "content": {
            NDJSON: {"schema": {"$ref": "#/components/schemas/EmbeddedFile"}},
            ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get(
    "/v1/models",
    response_model=ModelList,
    responses=error_responses(401, 429, 503),
    summary="List the models",
)
async def list_models(caller: Reader, services: Services) -> ModelList:
    """List the models that this service knows: licence, dimension, training data. Free.

    Those with `may_be_named` can be the `embedding_model` of a request.
    """
    del caller  # the same for all
    return ModelList(items=[model_body(known) for known in services.models.all()])


@router.post(
    "/v1/embed",
    response_class=Response,
    responses=VECTORS | error_responses(400, 401, 402, 409, 413, 415, 429, 503),
    openapi_extra=idempotent(FILES_BODY),
    summary="Embed many files",
)
async def embed(
    request: Request,
    caller: Computer,
    services: Services,
    offered: Offered,
    embedding_model: EmbeddingModel,
    format: Annotated[
        Literal["ndjson", "arrow"],
        Query(description="JSON lines, or an Arrow IPC stream with the same columns."),
    ] = "ndjson",
) -> Response:
    """Send up to 32 files and get only their embeddings, at once.

    In a form, each file is a part `file`. As JSON, name assets and addresses:
    `{"files": [{"asset_id": "afa_…"}, {"url": "https://…"}]}`. You can also send the bytes of a
    single file. Every file has a line in the answer; for one that failed, the line says why, and
    the file is not charged (`X-Credits-Used`). All must be done within two minutes: send fewer long
    files at once.
    """
    tier = services.tiers[caller.tier]
    require_embedding(services.tiers, tier)
    require_gpu(services.tiers, tier)
    async with sent_files(request, services, caller, tier) as files:
        answer = await offered.embedding.embed(
            caller, tier, files, embedding_model or "", request_id(request)
        )
    meta_of(request, "bypass", answer.credits_used, answer.balance.remaining)
    lines = [embedded_file(file) for file in answer.files]
    if format == "arrow":
        return Response(as_arrow(lines), media_type=ARROW_STREAM)
    return Response(as_lines(lines), media_type=NDJSON)
