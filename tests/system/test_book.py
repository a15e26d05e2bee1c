"""The book is right: every command in it is run, and must print the output that it shows.

In a ```console block, ``$`` precedes each command and its output follows. A ```python block is run,
and the ```text block after it is its output. ``pytest tests/system/test_book.py --write-book``
pastes the real output. A ```sh block is not run: installations, other machines.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli.environment import console, errors
from serve_app.cli.main import app
from tests.conftest import DEMO_TRACK, REPOSITORY
from tests.data.audio_files import click_track, encode
from tests.system.conftest import AFA, Service

pytestmark = [pytest.mark.ray, pytest.mark.redis]

BLOCK = re.compile(
    r"^```console\n(?P<session>.*?)^```$|^```python\n(?P<code>.*?)^```\n\n```text\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PAGES = [
    page
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
    if BLOCK.search(page.read_text())
]
NOMINAL_URL = "http://127.0.0.1:8000"
SHELL = re.compile(r"[|<>;&*$`]")
ASSIGNMENT = re.compile(r"export (\w+)=\$\((.*)\)")
VOLATILE = (
    (re.compile(r"afa_live_\w+"), "afa_live_…"),
    (re.compile(r"\b(job|key|trk|afa)_[0-9a-z]{26}\b"), r"\1_01…"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "…"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z?)?"), "2026-01-01 12:00"),
    (re.compile(r"(?<= in )\d+\.\d s$|(?<=\()\d+\.\d s(?=\))", re.MULTILINE), "… s"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
WIDTH = "96"


class Reader:
    """A reader who types what a page says, in a folder with some music."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._url, self._folder = service.url, folder
        shutil.copy(DEMO_TRACK, folder / "song.mp3")
        for name, bpm in (("Music", 132), ("Music", 96), ("Downloads", 150)):
            (folder / name).mkdir(exist_ok=True)
            path = folder / name / f"The Clicks - At {bpm}.ogg"
            encode(path, click_track(bpm, 8), "ogg", "vorbis")
        (folder / "Downloads" / "broken.mp3").write_bytes(b"nothing to hear")
        self._enter_installation(service.data_dir, folder / ".afa")
        bin_folder = folder / ".bin"
        bin_folder.mkdir()
        shim = bin_folder / "afa"
        shim.write_text(f'#!/bin/sh\nexec {shlex.join(AFA)} "$@"\n')
        shim.chmod(0o755)
        self._environment = service.environment | {
            "AFA_DATA_DIR": ".afa",
            "COLUMNS": WIDTH,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }

    @staticmethod
    def _enter_installation(service: Path, own: Path) -> None:
        """Make a data folder that uses the running service but has an empty library."""
        own.mkdir(mode=0o700)
        for name in ("session.json", "redis.url", "pepper", "catalog", "fingerprints"):
            (own / name).symlink_to(service / name)

    def type(self, command: str) -> str:
        """Return what a command prints."""
        command = command.replace(NOMINAL_URL, self._url)
        if assigned := ASSIGNMENT.fullmatch(command):
            self._environment[assigned[1]] = self._print(assigned[2]).strip()
            return ""
        return self._tidy(self._print(command))

    def run(self, code: str) -> str:
        """Return what a piece of Python prints."""
        printed = io.StringIO()
        with (
            redirect_stdout(printed),
            pytest.MonkeyPatch.context() as patch,
            warnings.catch_warnings(action="ignore"),  # spotipy warns of removed routes
        ):
            self._enter(patch)
            exec(compile(code.replace(NOMINAL_URL, self._url), "book", "exec"), {})  # noqa: S102
        return self._tidy(printed.getvalue())

    def _print(self, command: str) -> str:
        if command.startswith("afa ") and not SHELL.search(command):
            with pytest.MonkeyPatch.context() as patch:
                self._enter(patch)
                patch.setattr(console, "_width", int(WIDTH))
                patch.setattr(errors, "_width", int(WIDTH))
                return CliRunner().invoke(app, shlex.split(command)[1:], env={}).output
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        return done.stdout

    def _enter(self, patch: pytest.MonkeyPatch) -> None:
        patch.chdir(self._folder)
        for name, value in self._environment.items():
            patch.setenv(name, value)

    def _tidy(self, text: str) -> str:
        text = text.replace(self._url, NOMINAL_URL).replace(f"{self._folder}/", "")
        for pattern, replacement in VOLATILE:
            text = pattern.sub(replacement, text)
        return text.rstrip("\n") + "\n" if text.strip() else ""


def commands(session: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block and the output after each."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def played(reader: Reader, block: re.Match[str]) -> str:
    """Return a block with the output that it really has."""
    if block["session"] is not None:
        lines = "".join(f"$ {line}\n{reader.type(line)}" for line, _ in commands(block["session"]))
        return f"```console\n{lines}```"
    return f"```python\n{block['code']}```\n\n```text\n{reader.run(block['code'])}```"


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def check_alike(written: str, printed: str) -> None:
    """Check that the texts are equal and the numbers close: networks differ between machines."""
    assert NUMBER.sub("#", written) == NUMBER.sub("#", printed)
    assert numbers(written) == pytest.approx(numbers(printed), rel=0.05, abs=0.06)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_a_page_shows_what_its_commands_print(
    page: Path, service: Service, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reader = Reader(service, tmp_path)
    text = page.read_text()
    new = BLOCK.sub(lambda block: played(reader, block), text)
    if request.config.getoption("--write-book"):
        page.write_text(new)
    else:
        for written, printed in zip(BLOCK.finditer(text), BLOCK.finditer(new), strict=True):
            check_alike(written[0], printed[0])


def test_a_wrong_page_is_noticed() -> None:
    check_alike("tempo 124.0", "tempo 124.1")
    for wrong in ("tempo 62.0", "key 124.0"):
        with pytest.raises(AssertionError):
            check_alike("tempo 124.0", wrong)
