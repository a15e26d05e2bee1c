"""File locks: one holder, which may be a child that inherited it; some file systems have none."""

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.local.locks import take_lock


def test_a_lock_is_kept_by_who_inherits_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first, path.open("w") as second:
        assert take_lock(first)
        assert not take_lock(second)
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            pass_fds=[first.fileno()],
        )
        first.close()
        assert not take_lock(second)
        child.communicate()
        assert take_lock(second)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_where_there_are_no_locks_nobody_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "lock").open("w") as file:
        if number == errno.EIO:
            with pytest.raises(OSError, match="no"):
                take_lock(file)
        else:
            assert take_lock(file)
