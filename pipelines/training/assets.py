"""Public packages that the renderer plays with: fetched and unpacked, never installed."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

_READY = ".unpacked"


def fetch_packages(packages: Sequence[str], folder: Path) -> Path:
    """Unpack Debian packages into one folder; those that are there are kept.

    Args:
        packages: Names known to this machine's package sources.
        folder: Where the archives and the unpacked tree go.

    Returns:
        The root of the unpacked tree.

    Raises:
        FileNotFoundError: `apt-get` or `dpkg-deb` is not there.
        subprocess.CalledProcessError: A package cannot be had.
    """
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    for package in packages:
        mark = folder / f"{package}{_READY}"
        if mark.exists():
            continue
        _run(["apt-get", "download", package], folder)
        archives = sorted(folder.glob(f"{package}_*.deb"))
        _run(["dpkg-deb", "-x", str(archives[-1]), str(root)], folder)
        for archive in archives:
            archive.unlink()
        mark.touch()
    return root


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603
