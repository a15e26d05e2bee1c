import subprocess
from pathlib import Path

import pytest

from pipelines.training.assets import PackageError, fetch_packages, load_library

CONTROL = "Package: sounds\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: d\n"


def put_apt_get(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program ahead of the machine's `apt-get`, because tests have no package sources."""
    folder.mkdir()
    program = folder / "apt-get"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_packages_go_below_a_folder_that_is_named_relatively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    tree.chmod(0o755)
    (tree / "DEBIAN").chmod(0o755)
    (tree / "DEBIAN" / "control").write_text(CONTROL)
    (tree / "kick.wav").write_bytes(b"kick")
    archive = tmp_path / "sounds_1_all.deb"
    build = ("dpkg-deb", "--build", str(tree), str(archive))
    subprocess.run(build, check=True, capture_output=True)
    put_apt_get(tmp_path / "bin", f"cp {archive} .", monkeypatch)
    monkeypatch.chdir(tmp_path)
    root = fetch_packages(["sounds"], Path("work/packages"))
    assert root == tmp_path / "work" / "packages" / "root"
    assert (root / "kick.wav").read_bytes() == b"kick"


def test_a_package_that_cannot_be_had_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_apt_get(tmp_path / "bin", "echo E: Unable to locate package >&2; exit 100", monkeypatch)
    with pytest.raises(PackageError, match=r"no-such cannot be .*: E: Unable to"):
        fetch_packages(["no-such"], tmp_path / "work")


def test_a_machine_without_debians_programs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackageError, match="apt-get is missing: packages"):
        fetch_packages(["no-such"], tmp_path / "work")


def test_a_library_that_is_not_installed_is_told_with_its_package() -> None:
    told = "libnone.so.9 is missing: `apt-get install libnone9`"
    with pytest.raises(PackageError, match=told):
        load_library("libnone.so.9", "libnone9")
