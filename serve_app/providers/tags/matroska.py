"""Reads the tags (album's and track's separately) and the picture of Matroska and WebM.

Invariant: whatever the file contains, reading takes at most twice `MAX_ELEMENTS` steps, `MAX_TAGS`
bytes and those of one picture.

References:
    RFC 9559; https://www.matroska.org/technical/tagging.html
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from io import BytesIO
from os import SEEK_END
from typing import BinaryIO

MAX_ELEMENTS = 20_000
"""An hour has about a thousand clusters."""
MAX_TAGS = 4 << 20
MAX_ITEMS = 100
MAX_ITEM_TEXT = 64 << 10
"""Bytes of a value that are read."""

_HEAD_BYTES = 12
_AUDIO = 2
_ALBUM_LEVEL, _TRACK_LEVEL = 50, 30
_LEVELS = {"album": _ALBUM_LEVEL, "track": _TRACK_LEVEL, "song": _TRACK_LEVEL}


class _Id(IntEnum):
    SEGMENT = 0x18538067
    INFO = 0x1549A966
    TITLE = 0x7BA9
    TRACKS = 0x1654AE6B
    TRACK_UID = 0x73C5
    TRACK_TYPE = 0x83
    TAGS = 0x1254C367
    TAG = 0x7373
    TARGETS = 0x63C0
    TARGET_TYPE_VALUE = 0x68CA
    TARGET_TYPE = 0x63CA
    TAG_TRACK_UID = 0x63C5
    TAG_CHAPTER_UID = 0x63C4
    TAG_ATTACHMENT_UID = 0x63C6
    SIMPLE_TAG = 0x67C8
    TAG_NAME = 0x45A3
    TAG_STRING = 0x4487
    ATTACHMENTS = 0x1941A469
    FILE_NAME = 0x466E
    FILE_MEDIA_TYPE = 0x4660
    FILE_DATA = 0x465C


@dataclass(slots=True)
class MatroskaTags:
    """What a file says about itself, unchanged.

    Attributes:
        texts: Lower-case name to values; an album's names begin with ``album/``.
        picture: The cover, else the first picture; empty if there is none.
    """

    texts: dict[str, list[str]] = field(default_factory=dict)
    picture: bytes = b""


@dataclass(frozen=True, slots=True)
class _Element:
    id: int
    begin: int
    size: int


@dataclass(slots=True)
class _Tag:
    """Some values, and what they belong to.

    Attributes:
        level: None if unnamed and the usual number, which many programs also write for a track.
        tracks: UIDs of the tracks, such as audio and picture; empty or 0 for all.
        is_of_part: Whether they belong to a chapter or an attachment.
    """

    level: int | None = None
    tracks: set[int] = field(default_factory=set)
    is_of_part: bool = False
    texts: list[tuple[str, str]] = field(default_factory=list)


class _Elements:
    """Elements of a file, of which at most `MAX_ELEMENTS` are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._n_left = MAX_ELEMENTS
        self._end = file.seek(0, SEEK_END)

    def all(self) -> Iterator[_Element]:
        """Yield the outermost elements."""
        return self._between(0, self._end)

    def inside(self, element: _Element) -> Iterator[_Element]:
        """Yield the elements inside an element."""
        return self._between(element.begin, element.begin + element.size)

    def parts(self, element: _Element, *ids: _Id) -> dict[int, _Element]:
        """Return an element's part of each of these kinds, if it has one."""
        return {part.id: part for part in self.inside(element) if part.id in ids}

    def content(self, element: _Element, most: int) -> bytes:
        """Read an element, or its beginning."""
        self._file.seek(element.begin)
        return self._file.read(min(element.size, most))

    def text(self, element: _Element | None) -> str:
        """Read an element that is text."""
        if element is None:
            return ""
        return self.content(element, MAX_ITEM_TEXT).decode("utf-8", "replace").rstrip("\0")

    def number(self, element: _Element | None) -> int:
        """Read an element that is a number."""
        return 0 if element is None else int.from_bytes(self.content(element, 8), "big")

    def _between(self, begin: int, end: int) -> Iterator[_Element]:
        while begin < end and self._n_left > 0:
            self._n_left -= 1
            self._file.seek(begin)
            head = self._file.read(_HEAD_BYTES)
            n_id = 9 - head[0].bit_length() if head else 9
            n_size = 9 - head[n_id].bit_length() if len(head) > n_id else 9
            begin += n_id + n_size
            if n_id > 4 or n_size > 8 or len(head) < n_id + n_size or begin > end:
                return
            size = int.from_bytes(head[n_id : n_id + n_size], "big") - (1 << 7 * n_size)
            # A size of all ones means unknown: the file was written as a stream.
            is_unknown = size == (1 << 7 * n_size) - 1
            size = end - begin if is_unknown else min(size, end - begin)
            yield _Element(int.from_bytes(head[:n_id], "big"), begin, size)
            begin += size


def read_matroska(file: BinaryIO, max_picture: int) -> MatroskaTags:
    """Read the tags of a file; there are none if it is not such a file.

    Args:
        file: The file, read from the beginning whatever its position.
        max_picture: Bytes beyond which a picture is ignored.

    Raises:
        OSError: The file cannot be read.
    """
    elements = _Elements(file)
    segments = (one for one in elements.all() if one.id == _Id.SEGMENT)
    found, said, audio, title = MatroskaTags(), bytearray(), 0, ""
    for part in (part for segment in segments for part in elements.inside(segment)):
        match part.id:
            case _Id.INFO:
                title = elements.text(elements.parts(part, _Id.TITLE).get(_Id.TITLE))
            case _Id.TRACKS:
                audio = _first_audio(elements, part)
            case _Id.TAGS:
                said += elements.content(part, MAX_TAGS - len(said))
            case _Id.ATTACHMENTS if not found.picture:
                found.picture = _picture(elements, part, max_picture)
    tags = _tags(_Elements(BytesIO(said)))
    found.texts = _texts([one for one in tags if not one.is_of_part and one.tracks <= {0, audio}])
    if title:
        found.texts.setdefault("title", [title])
    return found


def _first_audio(elements: _Elements, tracks: _Element) -> int:
    for entry in elements.inside(tracks):
        parts = elements.parts(entry, _Id.TRACK_TYPE, _Id.TRACK_UID)
        if elements.number(parts.get(_Id.TRACK_TYPE)) == _AUDIO:
            return elements.number(parts.get(_Id.TRACK_UID))
    return 0


def _tags(elements: _Elements) -> Iterator[_Tag]:
    n_left = MAX_ITEMS
    for element in (one for one in elements.all() if one.id == _Id.TAG):
        tag = _Tag()
        for part in elements.inside(element):
            if part.id == _Id.TARGETS:
                _aim(tag, elements, part)
            elif part.id == _Id.SIMPLE_TAG and n_left:
                n_left -= 1
                said = elements.parts(part, _Id.TAG_NAME, _Id.TAG_STRING)
                name = elements.text(said.get(_Id.TAG_NAME)).casefold()
                tag.texts.append((name, elements.text(said.get(_Id.TAG_STRING))))
        yield tag


def _aim(tag: _Tag, elements: _Elements, targets: _Element) -> None:
    level = _ALBUM_LEVEL
    for one in elements.inside(targets):
        match one.id:
            case _Id.TARGET_TYPE_VALUE:
                level = elements.number(one)
            case _Id.TARGET_TYPE:
                tag.level = _LEVELS.get(elements.text(one).casefold())
            case _Id.TAG_TRACK_UID:
                tag.tracks.add(elements.number(one))
            case _Id.TAG_CHAPTER_UID | _Id.TAG_ATTACHMENT_UID:
                tag.is_of_part |= elements.number(one) != 0
    if tag.level is None and level != _ALBUM_LEVEL:
        tag.level = level


def _texts(tags: Collection[_Tag]) -> dict[str, list[str]]:
    """Name the tags' values; those without a level are the album's if a track has its own title."""
    titled = {tag.level for tag in tags for name, _ in tag.texts if name == "title"}
    usual = _ALBUM_LEVEL if _TRACK_LEVEL in titled else _TRACK_LEVEL
    before = {_ALBUM_LEVEL: "album/", _TRACK_LEVEL: ""}
    texts: dict[str, list[str]] = {}
    for tag in tags:
        level = usual if tag.level is None else tag.level
        for name, text in tag.texts if level in before else ():
            texts.setdefault(before[level] + name, []).append(text)
    return texts


def _picture(elements: _Elements, attachments: _Element, max_size: int) -> bytes:
    best: _Element | None = None
    for file in elements.inside(attachments):
        parts = elements.parts(file, _Id.FILE_NAME, _Id.FILE_MEDIA_TYPE, _Id.FILE_DATA)
        data = parts.get(_Id.FILE_DATA)
        is_picture = elements.text(parts.get(_Id.FILE_MEDIA_TYPE)).startswith("image/")
        if data is None or not is_picture or data.size > max_size:
            continue
        if elements.text(parts.get(_Id.FILE_NAME)).casefold().startswith("cover."):
            return elements.content(data, max_size)
        best = best or data
    return b"" if best is None else elements.content(best, max_size)
