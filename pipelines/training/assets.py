"""Public packages with the renderer's sounds: fetched and unpacked, never installed."""

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

_READY = ".unpacked"


class PackageError(OSError):
    """A package, or a program to fetch it with, is unavailable."""


def fetch_packages(packages: Sequence[str], folder: Path) -> Path:
    """Unpack Debian packages into one folder, unless they are already there.

    Args:
        packages: Names known to this machine's package sources.
        folder: Where the archives and the unpacked tree go; it may be relative.

    Returns:
        The root of the unpacked tree.

    Raises:
        PackageError: A package, or a program to fetch it with, is unavailable.
    """
    folder = folder.resolve()  # the programs run in it
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    for package in packages:
        if is_fetched(package, folder):
            continue
        try:
            _run(["apt-get", "download", package], folder)
            archives = sorted(folder.glob(f"{package}_*.deb"))
            _run(["dpkg-deb", "-x", str(archives[-1]), str(root)], folder)
        except FileNotFoundError as error:
            raise PackageError(
                f"{error.filename} is missing: packages are fetched where there is Debian or Ubuntu"
            ) from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip()
            raise PackageError(f"the package {package} cannot be fetched: {said}") from error
        for archive in archives:
            archive.unlink()
        (folder / f"{package}{_READY}").touch()
    return root


def is_fetched(package: str, folder: Path) -> bool:
    """Return whether `fetch_packages` has unpacked all of a package into this folder."""
    return (folder / f"{package}{_READY}").exists()


def load_library(name: str, package: str) -> ctypes.CDLL:
    """Load a shared library installed on this machine.

    Raises:
        PackageError: It is not installed.
    """
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise PackageError(f"{name} is missing: `apt-get install {package}`") from error


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603
