"""Tracks as a file for DJ programs and spreadsheets."""

from typing import Any

from fastapi import APIRouter, Response

from serve_app.api.door.idempotency import IdempotentRoute
from serve_app.api.door.limits import Reader
from serve_app.api.door.request import Offered, Services, error_responses
from serve_app.api.wire.export import ExportRequest

router = APIRouter(tags=["Library"], route_class=IdempotentRoute)

MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "rekordbox": "application/xml"}
NAMES = {"csv": "afa.csv", "rekordbox": "afa-rekordbox.xml"}
FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/xml": {"schema": {"type": "string"}},
        },
    }
}


@router.post(
    "/v1/export",
    response_class=Response,
    responses=FILE | error_responses(400, 401, 404, 413, 415, 429, 503),
    summary="Tracks as CSV or for rekordbox",
)
async def export(
    caller: Reader, services: Services, offered: Offered, body: ExportRequest
) -> Response:
    """Write tracks of the library and your own analyses to a file. Free.

    DJ programs find a track by the path of its file: give it in `location`. The audio itself is
    neither sent nor changed.
    """
    wanted = [one.wanted() for one in body.tracks]
    content = await services.export.export(
        caller, offered.analysis, wanted, body.format, body.key_format
    )
    attached = {"Content-Disposition": f'attachment; filename="{NAMES[body.format]}"'}
    return Response(content, headers=attached, media_type=MEDIA_TYPES[body.format])
