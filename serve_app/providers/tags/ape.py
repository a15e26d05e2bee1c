"""Reads an APEv2 tag: at the end of MP3, WavPack, Monkey's Audio, TTA and AAC files.

Invariant: whatever the file contains, at most `MAX_TAG` bytes and `MAX_ITEMS` items are read.
"""

import struct
from dataclasses import dataclass, field
from os import SEEK_END
from typing import BinaryIO

MAX_TAG = 16 << 20
"""Bytes: twice the size of the largest cover that is kept."""
MAX_ITEMS = 500
MAX_ITEM_TEXT = 64 << 10
"""Bytes of an item that are read as text."""
MAX_ITEM_VALUES = 20

_FOOTER = struct.Struct("<8sIIII8x")
_ITEM = struct.Struct("<II")
_ID3V1_BYTES = 128
_UTF8_VERSION = 2000
_KIND = 6
"""Bits of an item's flags that give its kind."""
_TEXT, _BINARY = 0, 2
_PICTURE = "cover art"


@dataclass(frozen=True, slots=True)
class ApeTag:
    """The content of an APEv2 tag, unchanged.

    Attributes:
        picture: Its first picture; empty if there is none.
    """

    texts: dict[str, list[str]] = field(default_factory=dict)
    picture: bytes = b""


def read_ape(file: BinaryIO) -> ApeTag:
    """Read the tag at the end of a file, or before an ID3v1 tag there; empty if there is none.

    Raises:
        OSError: The file cannot be read.
    """
    size = file.seek(0, SEEK_END)
    for end in (size, size - _ID3V1_BYTES):
        begin = end - _FOOTER.size
        if begin < 0:
            break
        file.seek(begin)
        name, version, n_bytes, n_items, _ = _FOOTER.unpack(file.read(_FOOTER.size))
        if name == b"APETAGEX" and _FOOTER.size <= n_bytes <= min(end, MAX_TAG):
            file.seek(end - n_bytes)
            encoding = "utf-8" if version >= _UTF8_VERSION else "latin-1"
            return _tag_of(file.read(n_bytes - _FOOTER.size), min(n_items, MAX_ITEMS), encoding)
    return ApeTag()


def _tag_of(items: bytes, n: int, encoding: str) -> ApeTag:
    texts: dict[str, list[str]] = {}
    picture, at = b"", 0
    for _ in range(n):
        head = items[at : at + _ITEM.size]
        end_of_key = items.find(b"\0", at + _ITEM.size)
        if len(head) < _ITEM.size or end_of_key < 0:
            break
        size, flags = _ITEM.unpack(head)
        key = items[at + _ITEM.size : end_of_key].decode("latin-1")
        begin, at = end_of_key + 1, end_of_key + 1 + size
        if flags & _KIND == _BINARY and key.casefold().startswith(_PICTURE):
            picture = picture or items[begin:at].partition(b"\0")[2]  # after the name of its file
        elif flags & _KIND == _TEXT:
            text = items[begin : min(at, begin + MAX_ITEM_TEXT)].decode(encoding, "replace")
            texts.setdefault(key, []).extend(text.split("\0", MAX_ITEM_VALUES)[:MAX_ITEM_VALUES])
    return ApeTag(texts, picture)
