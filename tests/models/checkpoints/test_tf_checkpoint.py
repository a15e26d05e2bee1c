import struct

import numpy as np
import pytest

from models.checkpoints.tf_checkpoint import BundleError, read_bundle

MAGIC = bytes.fromhex("57fb808b247547db")


def varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(pairs: list[tuple[bytes, bytes]], kind: int = 0) -> bytes:
    """Write a LevelDB block whose keys share the longest prefix with the one before."""
    body, last = b"", b""
    for key, value in pairs:
        shared = next((i for i in range(len(key)) if i >= len(last) or key[i] != last[i]), len(key))
        body += varint(shared) + varint(len(key) - shared) + varint(len(value))
        body += key[shared:] + value
        last = key
    return body + struct.pack("<II", 0, 1) + bytes([kind]) + b"crc!"


def bundle(arrays: dict[str, np.ndarray], kind: int = 0) -> tuple[bytes, bytes]:
    data, entries = b"", [(b"", b"\x08\x01")]
    codes = {"f4": 1, "f8": 2, "i4": 3, "i8": 9}
    for name, array in sorted(arrays.items()):
        shape = b"".join(field(2, field(1, size)) for size in array.shape)
        entry = field(1, codes[array.dtype.str[1:]]) + field(2, shape)
        entry += field(4, len(data)) + field(5, array.nbytes) + b"\x35\x00\x00\x00\x00"
        entries.append((name.encode(), entry))
        data += array.tobytes()
    first = block(entries, kind)
    size = len(first) - 5
    table = first + block([(b"z", varint(0) + varint(size))])
    footer = varint(0) * 2 + varint(len(first)) + varint(len(table) - len(first) - 5)
    return table + footer.ljust(40, b"\0") + MAGIC, data


ARRAYS = {
    "conv/bias": np.array([1.5, -2.0], "<f4"),
    "conv/kernel": np.arange(24, dtype="<f4").reshape(2, 3, 4),
    "step": np.array(300, "<i8"),
}


def test_every_tensor_comes_back() -> None:
    got = read_bundle(*bundle(ARRAYS))
    assert got.keys() == ARRAYS.keys()
    for name, want in ARRAYS.items():
        assert got[name].dtype == want.dtype
        np.testing.assert_array_equal(got[name], want)


def test_a_truncated_data_file_raises() -> None:
    index, data = bundle(ARRAYS)
    with pytest.raises(BundleError, match="outside its file"):
        read_bundle(index, data[:-1])


def test_a_compressed_or_foreign_index_raises() -> None:
    index, data = bundle(ARRAYS, kind=1)
    with pytest.raises(BundleError, match="compressed"):
        read_bundle(index, data)
    with pytest.raises(BundleError, match="not a checkpoint index"):
        read_bundle(b"something else entirely", data)


def test_a_damaged_index_raises_and_never_misreads() -> None:
    index, data = bundle(ARRAYS)
    with pytest.raises(BundleError):
        read_bundle(index[len(index) // 2 :], data)
