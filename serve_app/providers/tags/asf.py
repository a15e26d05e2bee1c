"""Sorts the header of ASF (WMA) so that its fields are read in their intended order.

Invariant: whatever the file holds, at most `MAX_OBJECTS` objects are looked at.

References:
    Advanced Systems Format Specification 1.20.03, 3: each field once in the description objects,
    its further values in the header extension, wherever that lies.
"""

import struct
from typing import BinaryIO

ASF = b"\x30\x26\xb2\x75"
"""First bytes of a file."""
MAX_OBJECTS = 1000

_EXTENSION = bytes.fromhex("b503bf5f2ea9cf118ee300c00c205365")
_HEAD = struct.Struct("<16xQ6x")
_OBJECT = struct.Struct("<16sQ")


def ordered_header(file: BinaryIO, max_bytes: int) -> bytes:
    """Read a header, and move its extension after the other objects."""
    head = file.read(_HEAD.size)
    size = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
    rest = file.read(min(max(0, size - len(head)), max_bytes))
    objects: list[bytes] = []
    at = 0
    while len(rest) - at >= _OBJECT.size and len(objects) < MAX_OBJECTS:
        length = max(_OBJECT.size, _OBJECT.unpack_from(rest, at)[1])
        objects.append(rest[at : at + length])
        at += length
    objects.sort(key=lambda one: one.startswith(_EXTENSION))
    return head + b"".join(objects) + rest[at:]
