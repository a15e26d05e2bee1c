"""Finds the ID3 block of a DSD file, DSF or DFF, which holds its tags.

Invariant: whatever the file contains, at most `MAX_CHUNKS` chunks are read.

References:
    DSF File Format Specification 1.01 (Sony); DSDIFF 1.5 (Philips), 3.1.
"""

import struct
from os import SEEK_END
from typing import BinaryIO

DSF, DFF = b"DSD ", b"FRM8"
"""How files of these kinds begin."""
MAX_CHUNKS = 100

_DSF_HEAD = struct.Struct("<20xQ")
_DFF_HEAD_BYTES = 16
_DFF_CHUNK = struct.Struct(">4sQ")


def id3_begin(file: BinaryIO) -> int:
    """Return where the block begins, or the file's end if there is none.

    Raises:
        OSError: The file cannot be read.
    """
    end = file.seek(0, SEEK_END)
    file.seek(0)
    head = file.read(_DSF_HEAD.size)
    if head.startswith(DSF) and len(head) == _DSF_HEAD.size:
        (begin,) = _DSF_HEAD.unpack(head)
        return min(begin, end) or end
    at = _DFF_HEAD_BYTES
    for _ in range(MAX_CHUNKS):
        file.seek(at)
        chunk = file.read(_DFF_CHUNK.size)
        if len(chunk) < _DFF_CHUNK.size:
            break
        name, size = _DFF_CHUNK.unpack(chunk)
        at += _DFF_CHUNK.size
        if name == b"ID3 ":
            return at
        at = min(at + size + size % 2, end)
    return end
