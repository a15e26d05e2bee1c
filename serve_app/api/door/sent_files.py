"""Many audio files in one request: parts of a form, or JSON that names assets and addresses."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from serve_app.api.door.audio_body import check_length
from serve_app.api.door.multipart import FORM_ROOM, file_parts, is_form
from serve_app.api.door.sent_audio import SentAudio, address_of, audio_body
from serve_app.api.door.unknown import tell_unknown_fields
from serve_app.api.services import ApiServices
from serve_app.api.wire.embedding import MAX_FILES, FilesInput, NamedFile
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.services.audio.audio import AudioAsset, AudioBody
from serve_app.services.embedding import SentFile

FILES_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The files of a form, all together within the tier's upload size; the "
        "names of assets and addresses; or the bytes of one file.",
        "content": {
            **audio_body("FilesInput", "AssetInput", "UrlInput")["requestBody"]["content"],
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MAX_FILES,
                            "items": {"type": "string", "format": "binary"},
                            "description": "The audio files, one part each.",
                        }
                    },
                }
            },
        },
    }
}


@asynccontextmanager
async def sent_files(
    request: Request, services: ApiServices, caller: Caller, tier: Tier
) -> AsyncIterator[list[SentFile]]:
    """Yield the files of a request while the block runs.

    Raises:
        PayloadTooLargeError: Together they are over the tier's upload size.
        UnsupportedMediaTypeError: The body is not audio.
        BadRequestError: There are none, or too many.
    """
    if is_form(request):
        check_length(request.headers.get("content-length"), tier.upload_bytes, FORM_ROOM)
        async with file_parts(request, tier.upload_bytes, MAX_FILES) as files:
            yield [
                SentFile(name, AudioBody(services.objects, chunks, tier)) for name, chunks in files
            ]
        return
    async with SentAudio(request, services, caller, tier).body() as body:
        if body.json is None:
            yield [SentFile("", AudioBody(services.objects, body.chunks, tier))]
        else:
            named = read_names(request, body.json)
            yield [sent_file(one, services, caller, tier) for one in named.files]


def read_names(request: Request, body: bytes) -> FilesInput:
    """Read the assets and addresses that a JSON body names; a single one needs no list.

    Raises:
        RequestValidationError: It names none, or too many.
    """
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    is_one = isinstance(sent, dict) and sent.get("files") is None
    if is_one and sent.keys() & NamedFile.model_fields:
        sent = {"files": [sent]}
    tell_unknown_fields(request, FilesInput, sent)
    try:
        return FilesInput.model_validate(sent)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def sent_file(named: NamedFile, services: ApiServices, caller: Caller, tier: Tier) -> SentFile:
    """Return the file that an item of a JSON body names."""
    if named.asset_id is not None:
        asset = AudioAsset(services.objects, services.assets, named.asset_id, caller, tier)
        return SentFile(named.asset_id, asset)
    url = named.url or ""
    return SentFile(url, address_of(services, caller, tier, url))
