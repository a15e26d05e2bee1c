"""Read TensorFlow checkpoint-V2 bundles without TensorFlow.

A bundle is a LevelDB table (``….index``: tensor name → BundleEntryProto) and a file of raw
little-endian tensors. Everything is bounds-checked: a damaged bundle raises, and is never misread.

References:
    LevelDB ``doc/table_format.md``; TensorFlow ``core/protobuf/tensor_bundle.proto``.
"""

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_TABLE_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES = 48
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}  # tensorflow/core/framework/types.proto


class BundleError(ValueError):
    """The files are not a readable checkpoint bundle."""


def read_bundle(index: bytes, data: bytes) -> dict[str, NDArray[np.generic]]:
    """Read every tensor of a single-shard bundle.

    Args:
        index: Content of the ``.index`` file.
        data: Content of the ``.data-00000-of-00001`` file.

    Raises:
        BundleError: It is damaged, compressed, or of a dtype that no supported checkpoint uses.
    """
    try:
        return {
            name.decode(): _tensor(_fields(entry), data)
            for name, entry in _table(index)
            if name  # the empty name holds the bundle's header
        }
    except (IndexError, struct.error, KeyError, UnicodeDecodeError) as error:
        raise BundleError(f"damaged checkpoint bundle: {error!r}") from error


def _tensor(entry: dict[int, list[bytes | int]], data: bytes) -> NDArray[np.generic]:
    dtype = np.dtype(_DTYPES[_number(entry, 1)])
    shape = [_number(_fields(size), 1) for size in _messages(entry, 2, 2)]
    offset, size = _number(entry, 4), _number(entry, 5)
    count = int(np.prod(shape, dtype=np.int64))
    if size != count * dtype.itemsize or offset + size > len(data):
        raise BundleError("damaged checkpoint bundle: a tensor is outside its file")
    return np.frombuffer(data, dtype, count, offset).reshape(shape)


def _messages(entry: dict[int, list[bytes | int]], field: int, inner: int) -> list[bytes]:
    """Return the sub-messages ``inner`` of the message in ``field`` (TensorShapeProto.dim)."""
    outer = [value for value in entry.get(field, []) if isinstance(value, bytes)]
    return [
        value
        for message in outer
        for value in _fields(message).get(inner, [])
        if isinstance(value, bytes)
    ]


def _number(fields: dict[int, list[bytes | int]], field: int) -> int:
    value = fields.get(field, [0])[-1]
    return value if isinstance(value, int) else 0


def _table(index: bytes) -> Iterator[tuple[bytes, bytes]]:
    footer = index[-_FOOTER_BYTES:]
    if footer[-8:] != _TABLE_MAGIC:
        raise BundleError("not a checkpoint index")
    _, place = _varint(footer, 0)
    _, place = _varint(footer, place)
    offset, place = _varint(footer, place)
    size, _ = _varint(footer, place)
    for _, handle in _block(index, offset, size):
        offset, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        yield from _block(index, offset, size)


def _block(index: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) pairs of a block; keys share prefixes with their predecessor."""
    if index[offset + size] != 0:
        raise BundleError("a compressed checkpoint index cannot be read")
    block = index[offset : offset + size]
    (n_restarts,) = struct.unpack("<I", block[-4:])
    end, place, key = len(block) - 4 - 4 * n_restarts, 0, b""
    while place < end:
        shared, place = _varint(block, place)
        unshared, place = _varint(block, place)
        length, place = _varint(block, place)
        key = key[:shared] + block[place : place + unshared]
        place += unshared
        yield key, block[place : place + length]
        place += length


def _fields(message: bytes) -> dict[int, list[bytes | int]]:
    """Parse a protobuf message into field number → values."""
    fields: dict[int, list[bytes | int]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire = tag & 7
        value: bytes | int
        if wire == 0:
            value, place = _varint(message, place)
        else:
            if wire == 2:
                length, place = _varint(message, place)
            else:
                length = {1: 8, 5: 4}[wire]
            value, place = message[place : place + length], place + length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
        shift += 7
