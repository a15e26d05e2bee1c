"""The pages for browsers: the playground at `/`, the reference at `/docs`; static files, our own.

Invariant: a page loads nothing of another host and runs only its own files; no key is in it.
"""

import hashlib
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request, Response

from serve_app.domain.errors import RouteNotFoundError

STATIC = Path(__file__).parents[1] / "static"
DEMO = Path(__file__).parents[2] / "data" / "demo.mp3"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
mimetypes.add_type("text/javascript", ".js")


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it is answered."""

    content: bytes
    media_type: str
    tag: str


def read_page(path: Path) -> Page:
    """Read a file once; it does not change while the process lives."""
    content = path.read_bytes()
    media_type, _ = mimetypes.guess_type(path.name)
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Page(content, media_type or "application/octet-stream", tag)


def read_pages(folder: str) -> dict[str, Page]:
    """Read a folder's files, by name."""
    return {
        path.name: read_page(path) for path in (STATIC / folder).iterdir() if path.suffix != ".md"
    }


def answer(request: Request, page: Page | None) -> Response:
    """Answer with a file, or say that the browser has it already.

    Raises:
        RouteNotFoundError: There is none.
    """
    if page is None:
        raise RouteNotFoundError(f"no such page: {request.url.path}")
    headers = HEADERS | {"ETag": page.tag}
    # One of several, or weak behind a proxy that compresses; a hash stands in no other tag.
    if page.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(page.content, headers=headers, media_type=page.media_type)


reference = APIRouter(include_in_schema=False)
playground = APIRouter(include_in_schema=False)

REFERENCE = read_pages("docs")
PLAYGROUND = read_pages("playground") | {DEMO.name: read_page(DEMO)}


@reference.get("/docs")
async def docs(request: Request) -> Response:
    """Show the reference, made in the browser from `/openapi.json`."""
    return answer(request, REFERENCE["index.html"])


@reference.get("/docs/{name}")
async def docs_file(request: Request, name: str) -> Response:
    """Return a file of the reference."""
    return answer(request, REFERENCE.get(name))


@playground.get("/")
async def index(request: Request) -> Response:
    """Show the playground."""
    return answer(request, PLAYGROUND["index.html"])


@playground.get("/playground/{name}")
async def playground_file(request: Request, name: str) -> Response:
    """Return a file of the playground."""
    return answer(request, PLAYGROUND.get(name))
