"""Reads the `file` parts of a multipart form, with limits on size and number of parts."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from serve_app.api.door.audio_body import body_chunks
from serve_app.api.door.unknown import tell_unread
from serve_app.domain.errors import BadRequestError, PayloadTooLargeError

FORM_ROOM = 64 * 1024
"""How much headers and boundaries may add to the file itself."""
MAX_FIELDS = 8
READ_BYTES = 256 * 1024

BOUNDARY = re.compile(rb'[^"\\]+')
"""Characters that need no escape between quotes; RFC 2046 permits fewer."""

CUT_SHORT = "the multipart form cannot be read to its end; send it again, see RFC 7578"


class FormParser(MultiPartParser):
    """Reads names and texts as UTF-8, and refuses a form without an end.

    A charset next to the boundary, which RFC 7578 does not have, is ignored: one of Python's takes
    time that grows with the square of the text.
    """

    def __init__(self, request: Request, chunks: AsyncGenerator[bytes, None], most: int) -> None:
        kind = b"multipart/form-data"
        _, options = parse_options_header(request.headers["content-type"])
        if BOUNDARY.fullmatch(options.get(b"boundary", b"")):
            kind += b'; boundary="%b"' % options[b"boundary"]
        headers = Headers(raw=[(b"content-type", kind)])
        super().__init__(headers, self._to_its_end(chunks), max_files=most, max_fields=MAX_FIELDS)
        self._is_whole = False

    def on_end(self) -> None:
        """Note that the last boundary has arrived."""
        self._is_whole = True

    async def _to_its_end(self, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in chunks:
            yield chunk
        if not self._is_whole:
            raise MultiPartException(CUT_SHORT)


def is_form(request: Request) -> bool:
    """Return whether a request declares its body as a multipart form."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "multipart/form-data"


@asynccontextmanager
async def file_part(request: Request, limit_bytes: int) -> AsyncIterator[AsyncIterator[bytes]]:
    """Spool the form and yield the bytes of its `file` part.

    Raises:
        BadRequestError: It is malformed, or does not have exactly one `file` part.
        PayloadTooLargeError: It is larger than ``limit_bytes``.
    """
    async with file_parts(request, limit_bytes, 1) as files:
        ((_, chunks),) = files
        yield chunks


@asynccontextmanager
async def file_parts(
    request: Request, limit_bytes: int, most: int
) -> AsyncIterator[list[tuple[str, AsyncIterator[bytes]]]]:
    """Spool the form and yield the names and bytes of its `file` parts, from one to ``most``.

    Raises:
        BadRequestError: It is malformed, or has no `file` part or too many.
        PayloadTooLargeError: It is larger than ``limit_bytes``.
    """
    try:
        async with aclosing(body_chunks(request)) as chunks:
            parser = FormParser(request, _bounded(chunks, limit_bytes), most)
            form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeDecodeError) as error:
        raise BadRequestError(_fault(request, error, most)) from error
    tell_unread(request, (name for name in form if name != "file"))
    try:
        yield [(file.filename or "", _read(file)) for file in _files_of(form)]
    finally:
        await form.close()


def _fault(request: Request, error: Exception, most: int) -> str:
    """Say what is wrong with a form that could not be parsed."""
    if "boundary" not in request.headers["content-type"]:
        return (
            "the Content-Type multipart/form-data lacks its boundary; let your client write the "
            "header by itself"
        )
    if isinstance(error, MultiPartException) and "Too many files" in error.message:
        if most > 1:
            return f"the form has more than {most} files; send the others apart"
        return "the form has several files; send one, as the part `file`"
    if isinstance(error, MultiPartException) and "Too many fields" in error.message:
        return "the form has too many text fields; send the audio alone, as the part `file`"
    return CUT_SHORT


def _files_of(form: FormData) -> list[UploadFile]:
    parts = form.getlist("file")
    files = [part for part in parts if isinstance(part, UploadFile)]
    if files:
        return files
    if parts:
        raise BadRequestError("the part `file` is text; with curl, write `-F file=@NAME`")
    others = ", ".join(f"`{name}`" for name in form)
    seen = f"has no part `file`, but {others}" if others else "is empty"
    raise BadRequestError(f"the form {seen}; put the audio into `file`")


async def _bounded(chunks: AsyncIterator[bytes], limit_bytes: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit_bytes + FORM_ROOM:
            raise PayloadTooLargeError(
                f"the upload is larger than the {limit_bytes} bytes your tier allows"
            )
        yield chunk


async def _read(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(READ_BYTES):
        yield chunk
