"""Where the local service's Ray keeps its files."""

import os
import stat
from pathlib import Path

import pytest

from serve_app.local.own_ray import private_folder


def test_the_folder_is_the_users_own_whatever_lies_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "new"))
    assert private_folder().parent == tmp_path / "new"
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    folder = private_folder()
    assert folder == tmp_path / f"afa-{os.getuid()}"
    folder.chmod(0o777)
    assert private_folder() == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    other = private_folder()
    assert other.parent == tmp_path
    assert other != folder
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    theirs = tmp_path / f"afa-{os.getuid()}"
    theirs.mkdir()
    assert private_folder() != theirs
