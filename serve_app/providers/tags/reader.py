"""Reads an audio file's tags: ID3, Vorbis comments, MP4, RIFF, ASF, APEv2, Matroska's and others.

Invariant: whatever a file contains, reading takes a bounded number of bytes, steps and comparisons,
and returns tags that are clean text of bounded length; odd tags are left out and never an error.
"""

import re
import struct
import threading
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar, cast

from tinytag import TinyTag, TinyTagException, tinytag

from pipelines.audio.decode import DecodeLimits, DecoderUnavailableError, read_labels
from pipelines.audio.waveform import AudioError
from serve_app.providers.tags.ape import read_ape
from serve_app.providers.tags.asf import ASF, ordered_header
from serve_app.providers.tags.dsd import DFF, DSF, id3_begin
from serve_app.providers.tags.matroska import read_matroska

MAX_READ = 64 << 20
"""Bytes; tags with a large cover have a tenth of this."""
MAX_STEPS = 200_000
"""Reads, and values that are decoded or kept."""
MAX_TEXT = 500
"""Characters of a value; longer values are cut."""
MAX_VALUES = 20
MAX_COVER = 8 << 20


_MATROSKA = b"\x1a\x45\xdf\xa3"
"""How Matroska and WebM begin."""
_CONTAINERS = (b"caff", b".snd", b"RF64", b"BW64")
"""How CAF, AU and WAV of more than 4 GB begin, whose tags the decoder reads."""
_HEAD_BYTES = 4
_LIMITS = DecodeLimits(cpu_s=2, wall_s=20.0)
"""FFmpeg compares each tag with all before it: 100,000 take a minute, an ordinary file 20 ms."""
_OTHER_NAMES = {
    "album/title": "album",
    "album/artist": "albumartist",
    "album/genre": "genre",
    "album/publisher": "publisher",
    "album/date_released": "date",
    "date_released": "date",
    "replaygain_gain": "replaygain_track_gain",
    "comments": "comment",
}
"""Matroska's album names, and CAF's names for what others call something else."""
_FAULTS = (TinyTagException, struct.error, OSError, ValueError, LookupError, ArithmeticError)
"""What parsers raise when they meet unexpected data."""
_SEPARATORS = re.compile(r"[\s_\-/]+")
_JOINERS = "\u200c\u200d" + "".join(map(chr, range(0xE0020, 0xE0080)))
"""Invisible, but needed in emoji, flags, and the scripts of Persian and of India's languages."""


@dataclass(frozen=True, slots=True)
class Cover:
    """A picture as stored in the file."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Tags:
    """What a file says about itself.

    Attributes:
        fields: Lower-case name without spaces, hyphens, slashes or underscores, such as
            ``musicbrainztrackid``, to its values in the order of the file. Values are never empty.
        cover: The front cover, else any picture; None if there is none of acceptable size.
    """

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cover: Cover | None = None

    def first(self, *names: str) -> str | None:
        """Return the first value of the first of these fields that exists."""
        return next((self.fields[name][0] for name in names if name in self.fields), None)

    @property
    def artist(self) -> str:
        """The artist; empty if no tag has it."""
        return self.first("artist", "albumartist") or ""

    @property
    def title(self) -> str:
        """The title; empty if no tag has it."""
        return self.first("title") or ""


class _Left(threading.local):
    """How many of `MAX_STEPS` a thread has left."""

    steps = MAX_STEPS


_left = _Left()

P = ParamSpec("P")
T = TypeVar("T")


class _SpentError(OSError):
    """A limit was reached; what was read before is kept."""


def _counted(step: Callable[P, T]) -> Callable[P, T]:
    @wraps(step)
    def counted(*said: P.args, **named: P.kwargs) -> T:
        _left.steps -= 1
        if _left.steps < 0:
            raise _SpentError
        return step(*said, **named)

    return counted


def _until_fault(load: Callable[P, None]) -> Callable[P, None]:
    @wraps(load)
    def loaded(*said: P.args, **named: P.kwargs) -> None:
        with suppress(*_FAULTS):
            load(*said, **named)

    return loaded


def _uncounted(step: Callable[P, T]) -> Callable[P, T]:
    @wraps(step)
    def uncounted(*said: P.args, **named: P.kwargs) -> T:
        left, _left.steps = _left.steps, MAX_STEPS
        try:
            return step(*said, **named)
        finally:
            _left.steps = left

    return uncounted


def _add_value(self: TinyTag, fieldname: str, value: str) -> None:
    """Keep another value of a field, if it is new and within the first `MAX_VALUES`.

    tinytag keeps all, and compares each with all earlier ones: one frame of 500 kB took minutes.
    """
    values = self.other.setdefault(fieldname, [])
    if value and len(values) < MAX_VALUES and value not in values:
        values.append(value)


def _take_first(self: TinyTag, id3: TinyTag) -> None:
    """Let the ID3 of a WAV or AIFF override its other chunks, which few programs update."""
    TinyTag._update(id3, self)
    vars(self).update({name: said for name, said in vars(id3).items() if name[0] != "_"})


def _end_of_text(content: bytes, encoding: int = 0, start_pos: int = 0) -> int:
    """Return the end of the text that begins at a position; the position itself if nothing ends it.

    tinytag searches UTF-16 one pair of zero bytes at a time.
    """
    end = (_END if encoding in _BYTEWISE else _WIDE_END).match(content, start_pos)
    return start_pos if end is None else end.end()


_BYTEWISE = (0, 3)
"""Latin-1 and UTF-8, by their numbers in ID3."""
_END = re.compile(rb"[^\0]*+\0")
_WIDE_END = re.compile(rb"(?:[^\0].|\0[^\0])*+\0\0", re.DOTALL)


class _CountedBytes(BytesIO):
    read = _counted(BytesIO.read)


# A frame or packet of some MB may contain millions of values, each of which tinytag examines.
tinytag.BytesIO = _CountedBytes  # type: ignore[attr-defined]
TinyTag._load = _until_fault(TinyTag._load)  # type: ignore[method-assign]
# What was read for a block inside a file is accepted, even if no steps are left.
TinyTag._update = _uncounted(TinyTag._update)  # type: ignore[method-assign]
tinytag._Wave._update = _take_first  # type: ignore[assignment, method-assign]
tinytag._Aiff._update = _take_first  # type: ignore[assignment, method-assign]
TinyTag._set_field = _counted(TinyTag._set_field)  # type: ignore[method-assign]
TinyTag._set_other_field = _add_value  # type: ignore[method-assign]
tinytag._ID3._decode_string = _counted(tinytag._ID3._decode_string)  # type: ignore[method-assign]
tinytag._ID3._find_string_end_pos = staticmethod(_end_of_text)  # type: ignore[method-assign]
# Timed lyrics, which are not used here, take half a minute if a frame has 2 MB of them.
tinytag._ID3._SYNCED_LYRICS_FRAME_IDS = set()


def read_tags(path: Path) -> Tags:
    """Read the tags of a file.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        of_format, picture = _read_format(file)
        ape = read_ape(file)
        file.seek(0)
        head = file.read(_HEAD_BYTES)
    of_ape = _fields(ape.texts)
    # Without ID3v2 there may be ID3v1 next to APEv2, which cuts a title after 30 characters.
    fields = of_ape | of_format if head.startswith(b"ID3") else of_format | of_ape
    if head.startswith(_CONTAINERS):
        fields = _fields(_labels(path)) | fields
    return Tags(fields, _cover(picture or ape.picture))


def read_cover(path: Path) -> Cover | None:
    """Read the picture in a file.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return _cover(_read_format(file)[1] or read_ape(file).picture)


def _read_format(file: BinaryIO) -> tuple[dict[str, tuple[str, ...]], bytes]:
    """Return the fields of a file's own format, up to a fault, and the best picture."""
    head = file.read(_HEAD_BYTES)
    if head == _MATROSKA:
        found = read_matroska(file, MAX_COVER)
        return _fields(_named(found.texts)), found.picture
    if head in {DSF, DFF}:
        file.seek(id3_begin(file))
        file = BytesIO(file.read(MAX_READ))
    file.seek(0)
    if head == ASF:
        file = BytesIO(ordered_header(file, MAX_READ))
    _left.steps = MAX_STEPS
    bounded = cast("BinaryIO", _Bounded(file))
    try:
        tag = TinyTag.get(file_obj=bounded, duration=False, image=True)
    except TinyTagException:
        return {}, b""
    image = tag.images.front_cover or tag.images.any
    return _fields(tag.as_dict()), b"" if image is None else image.data


def _labels(path: Path) -> dict[str, list[str]]:
    """Read a container's own tags, under the usual names; none if it is not audio."""
    try:
        labels = read_labels(path, _LIMITS)
    except (AudioError, DecoderUnavailableError):
        return {}
    return _named({label.casefold(): [text] for label, text in labels.items()})


def _named(said: Mapping[str, list[str]]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for name, texts in said.items():
        named.setdefault(_OTHER_NAMES.get(name, name), []).extend(texts)
    return named


def _fields(said: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    fields: dict[str, tuple[str, ...]] = {}
    for name, values in said.items():
        texts = tuple(filter(None, map(_clean, values if isinstance(values, list) else ())))
        if texts:
            key = _SEPARATORS.sub("", name.casefold())[:MAX_TEXT]
            fields[key] = (*fields.get(key, ()), *texts)[:MAX_VALUES]
    return fields


def _cover(data: bytes) -> Cover | None:
    if len(data) > MAX_COVER:
        return None
    starts = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}
    media_type = next((kind for start, kind in starts.items() if data.startswith(start)), "")
    return Cover(media_type, data) if media_type else None


def _clean(text: str) -> str:
    """Undo the commonest wrong encoding, and remove what is not text."""
    if not text.isascii():
        # UTF-8 that was read as Latin-1; Latin-1 text is hardly ever valid UTF-8 by chance.
        with suppress(UnicodeError):
            text = text.encode("latin-1").decode("utf-8")
    shown = (" " if char.isspace() else char for char in text[: 4 * MAX_TEXT])
    kept = "".join(char for char in shown if _is_text(char))
    return " ".join(kept.replace("\ufffd", "").split())[:MAX_TEXT] if kept.strip(_JOINERS) else ""


def _is_text(char: str) -> bool:
    # A character that Unicode has not assigned may be an emoji newer than this Python.
    return char in _JOINERS or unicodedata.category(char) not in {"Cc", "Cf", "Co", "Cs"}


class _Bounded(RawIOBase):
    """A file of which only a limited amount is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes_left = MAX_READ

    @_counted
    def read(self, size: int = -1, /) -> bytes:
        """Read as the file does.

        Raises:
            _SpentError: The limit was reached.
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
        """Return the position."""
        return self._file.tell()
