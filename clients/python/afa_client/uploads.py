"""Audio to send to the service: files, bytes, and assets that were uploaded before."""

from __future__ import annotations

import io
import mimetypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from afa_client.models import AssetMetadata, AssetUpload

Asset = AssetUpload | AssetMetadata
Audio = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Asset
"""A path, the bytes, an open and seekable file, or an uploaded asset."""

Progress = Callable[[int, int], None]
"""Called with the bytes sent so far, and their total."""

CHUNK_BYTES = 64 * 1024


class Upload:
    """The body of a request; it can be sent again, and reports its progress."""

    def __init__(self, file: BinaryIO, name: str, progress: Progress | None) -> None:
        self.file = file
        self.name = name
        self.start = file.tell()
        self.size = file.seek(0, io.SEEK_END) - self.start
        self.media_type = media_type_of(name)
        self._progress = progress

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request of which this is the whole body."""
        return {"Content-Type": self.media_type, "Content-Length": str(self.size)}

    def rewind(self) -> None:
        """Go back to the beginning, for another attempt."""
        self.file.seek(self.start)

    def read(self, n_bytes: int = CHUNK_BYTES) -> bytes:
        """Return the next bytes; none at the end."""
        chunk = self.file.read(n_bytes)
        if self._progress is not None and chunk:
            self._progress(self.file.tell() - self.start, self.size)
        return chunk


def media_type_of(name: str) -> str:
    """Return the media type that a file's name suggests, if it is one of audio."""
    guessed = mimetypes.guess_type(name)[0] or ""
    return guessed if guessed.startswith("audio/") else "application/octet-stream"


@contextmanager
def open_upload(
    audio: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
    progress: Progress | None,
) -> Iterator[Upload]:
    """Yield the body to send, and close the file if it was opened here."""
    if isinstance(audio, bytes | bytearray | memoryview):
        yield Upload(io.BytesIO(audio), "audio", progress)
    elif isinstance(audio, str | os.PathLike):
        with Path(audio).open("rb") as file:
            yield Upload(file, Path(audio).name, progress)
    else:
        yield Upload(audio, Path(str(getattr(audio, "name", "audio"))).name, progress)
