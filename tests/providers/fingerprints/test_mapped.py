import errno
import resource
from pathlib import Path

import numpy as np
import pytest

from serve_app.providers.fingerprints.mapped import map_array, new_array, save_array


def test_what_is_written_or_filled_is_read(tmp_path: Path) -> None:
    save_array(tmp_path / "saved.npy", np.arange(5))
    new_array(tmp_path / "new.npy", np.uint16, 5)[:] = np.arange(5)
    for name in ("saved", "new"):
        assert map_array(tmp_path, name)[0].tolist() == [0, 1, 2, 3, 4]


def test_an_array_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as raised:
            save_array(tmp_path / "array.npy", np.zeros(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.errno == errno.EFBIG


def test_a_new_array_has_its_room_at_once(tmp_path: Path) -> None:
    new_array(tmp_path / "array.npy", np.uint64, 100_000)
    status = (tmp_path / "array.npy").stat()
    assert status.st_blocks * 512 >= status.st_size
