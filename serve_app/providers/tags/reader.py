"""Reads the tags of an audio file: ID3, Vorbis comments, MP4, RIFF and ASF.

Invariant: whatever a file holds, reading costs a bounded number of bytes, steps and comparisons,
and ends in tags that are clean text of bounded length; odd tags are left out, never an error.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar, cast

from tinytag import Image, TinyTag, TinyTagException, tinytag

MAX_READ = 64 << 20
"""Bytes: tags with a large cover are a tenth of it."""
MAX_STEPS = 200_000
"""Reads, and values that are decoded or kept."""
MAX_TEXT = 500
"""Characters of a value; longer ones are cut."""
MAX_VALUES = 20
MAX_COVER = 8 << 20


_SEPARATORS = re.compile(r"[\s_\-]+")
_GAIN = re.compile(r"\s*([+-]?\d{1,3}(?:\.\d{1,6})?)\s*(?:dB)?\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cover:
    """A picture as it lies in the file."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Tags:
    """What a file says of itself.

    Attributes:
        fields: Lower-case name without spaces, hyphens or underscores (``musicbrainztrackid``) to
            its values, in the order of the file. Values are never empty.
        cover: The front cover, else any picture; None where there is none of a bearable size.
    """

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cover: Cover | None = None

    def first(self, *names: str) -> str | None:
        """Give the first value of the first of these fields that is there."""
        return next((self.fields[name][0] for name in names if name in self.fields), None)

    @property
    def artist(self) -> str:
        """Who made it; empty where no tag tells."""
        return self.first("artist", "albumartist") or ""

    @property
    def title(self) -> str:
        """What it is called; empty where no tag tells."""
        return self.first("title") or ""

    @property
    def track_gain_db(self) -> float | None:
        """ReplayGain of the track."""
        match = _GAIN.fullmatch(self.first("replaygaintrackgain") or "")
        return None if match is None else float(match[1])


class _Left(threading.local):
    """What is left of `MAX_STEPS` to who reads tags in a thread."""

    steps = MAX_STEPS


_left = _Left()

P = ParamSpec("P")
T = TypeVar("T")


class _SpentError(OSError):
    """There is more than is read; what was read before it is kept."""


def _counted(step: Callable[P, T]) -> Callable[P, T]:
    @wraps(step)
    def counted(*said: P.args, **named: P.kwargs) -> T:
        _left.steps -= 1
        if _left.steps < 0:
            raise _SpentError
        return step(*said, **named)

    return counted


def _until_spent(load: Callable[P, None]) -> Callable[P, None]:
    @wraps(load)
    def loaded(*said: P.args, **named: P.kwargs) -> None:
        with suppress(_SpentError):
            load(*said, **named)

    return loaded


def _add_value(self: TinyTag, fieldname: str, value: str) -> None:
    """Keep a further value of a field, if it is new and of the first that we look at.

    tinytag keeps all, and compares each with all before it: one frame of 500 kB took minutes.
    """
    values = self.other.setdefault(fieldname, [])
    if value and len(values) < MAX_VALUES and value not in values:
        values.append(value)


def _end_of_text(content: bytes, encoding: int = 0, start_pos: int = 0) -> int:
    """Find where the text ends that begins somewhere; there, if nothing ends it.

    tinytag looks at each pair of zero bytes in UTF-16 by itself.
    """
    end = (_END if encoding in _BYTEWISE else _WIDE_END).match(content, start_pos)
    return start_pos if end is None else end.end()


_BYTEWISE = (0, 3)
"""Latin-1 and UTF-8, as ID3 numbers them."""
_END = re.compile(rb"[^\0]*+\0")
_WIDE_END = re.compile(rb"(?:[^\0].|\0[^\0])*+\0\0", re.DOTALL)


class _CountedBytes(BytesIO):
    read = _counted(BytesIO.read)


# A frame or packet of some MB may hold millions of values, each of which tinytag looks at.
tinytag.BytesIO = _CountedBytes  # type: ignore[attr-defined]
TinyTag._load = _until_spent(TinyTag._load)  # type: ignore[method-assign]
TinyTag._set_field = _counted(TinyTag._set_field)  # type: ignore[method-assign]
TinyTag._set_other_field = _add_value  # type: ignore[method-assign]
tinytag._ID3._decode_string = _counted(tinytag._ID3._decode_string)  # type: ignore[method-assign]
tinytag._ID3._find_string_end_pos = staticmethod(_end_of_text)  # type: ignore[method-assign]
# Timed lyrics, which nobody here wants, take it half a minute where a frame has 2 MB of them.
tinytag._ID3._SYNCED_LYRICS_FRAME_IDS = set()


def read_tags(path: Path) -> Tags:
    """Read the tags of a file.

    Raises:
        OSError: The file cannot be read.
    """
    _left.steps = MAX_STEPS
    with path.open("rb") as file:
        bounded = cast("BinaryIO", _Bounded(file))
        try:
            found = TinyTag.get(file_obj=bounded, duration=False, image=True)
        except TinyTagException:
            return Tags()
    fields: dict[str, tuple[str, ...]] = {}
    for name, values in found.as_dict().items():
        texts = tuple(filter(None, map(_clean, values if isinstance(values, list) else ())))
        if texts:
            key = _SEPARATORS.sub("", name.casefold())[:MAX_TEXT]
            fields[key] = (*fields.get(key, ()), *texts)[:MAX_VALUES]
    return Tags(fields, _cover(found.images.front_cover or found.images.any))


def _cover(image: Image | None) -> Cover | None:
    if image is None or not 0 < len(image.data) <= MAX_COVER:
        return None
    starts = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}
    media_type = next((kind for start, kind in starts.items() if image.data.startswith(start)), "")
    return Cover(media_type, image.data) if media_type else None


def _clean(text: str) -> str:
    """Undo the commonest wrong encoding, and leave out what is no text."""
    if not text.isascii():
        # UTF-8 that was read as Latin-1; Latin-1 text is next to never UTF-8 by chance.
        with suppress(UnicodeError):
            text = text.encode("latin-1").decode("utf-8")
    shown = (" " if char.isspace() else char for char in text[: 4 * MAX_TEXT])
    kept = "".join(char for char in shown if unicodedata.category(char)[0] != "C")
    return " ".join(kept.replace("\ufffd", "").split())[:MAX_TEXT]


class _Bounded(RawIOBase):
    """A file of which only so much is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes_left = MAX_READ

    @_counted
    def read(self, size: int = -1, /) -> bytes:
        """Read as the file does.

        Raises:
            _SpentError: It was too much.
        """
        data = self._file.read(self._bytes_left + 1 if size < 0 else min(size, MAX_READ))
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise _SpentError
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move as the file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Tell the position."""
        return self._file.tell()
