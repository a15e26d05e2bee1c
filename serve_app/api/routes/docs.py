"""The API reference at `/docs`: one page of our own, without third-party hosts."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

PAGE = Path(__file__).parents[1] / "static" / "docs.html"
CONTENT = PAGE.read_text(encoding="utf-8")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'"
)


@router.get("/docs")
async def docs() -> HTMLResponse:
    """Show the reference, made in the browser from `/openapi.json`."""
    return HTMLResponse(CONTENT, headers={"Content-Security-Policy": POLICY})
