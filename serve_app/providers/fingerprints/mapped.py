"""Arrays in files: written whole, filled part by part, and memory-mapped for reading."""

import mmap
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

_PREAMBLE = struct.Struct("<8sH")
"""Magic, version, and the length of the header that follows."""
_DESCR = re.compile(rb"'descr': '([^']+)'")


def map_array(folder: Path, name: str) -> tuple[NDArray[Any], mmap.mmap]:
    """Map one array: a plain view, since np.memmap's bookkeeping costs more than an access.

    The header is read without numpy, which has Python parse it: in CPython 3.11 that
    may fail with SystemError when two threads do (https://github.com/python/cpython/issues/106905).

    Raises:
        ValueError: The file holds no array, or not all of it.

    References:
        Format 1.0 of https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    """
    with (folder / f"{name}.npy").open("rb") as file:
        preamble = file.read(_PREAMBLE.size).ljust(_PREAMBLE.size, b"\0")
        *_, length = _PREAMBLE.unpack(preamble)
        described = _DESCR.search(file.read(length))
        if described is None:
            raise ValueError(f"{file.name}: the header of an array is expected")
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(pages, described[1].decode(), offset=file.tell()), pages


def save_array(path: Path, array: ArrayLike) -> None:
    """Write an array; if that fails, raise the system's own message, which NumPy withholds.

    Raises:
        OSError: It cannot be written.
    """
    rows = np.asarray(array, order="C")
    with path.open("wb") as file:
        described = np.lib.format.header_data_from_array_1_0(rows)
        np.lib.format.write_array_header_1_0(file, described)
        file.write(rows.data)


def new_array(path: Path, kind: DTypeLike, length: int) -> NDArray[Any]:
    """Make an array to be filled; space is allocated now, else a full disk would kill the writer.

    Raises:
        OSError: The disk is full.
    """
    array = np.lib.format.open_memmap(path, "w+", np.dtype(kind), (length,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
