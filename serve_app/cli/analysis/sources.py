"""Finds the files that a command's arguments name: files, folders, patterns, standard input.

Invariant: what cannot be found or listed is one `Trouble` with its name, and the rest goes on.
"""

import glob
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from serve_app.cli.environment import fail, is_url
from serve_app.services.scan.places import Folder, Found, Trouble, absolute, listed

STANDARD_INPUT = "-"
SOURCES_HELP = "Files, folders or patterns such as '*.flac'; - reads names from standard input."


def expanded(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the names that arguments stand for, from standard input or by matching."""
    for argument in arguments:
        if not argument:
            fail("one of the names is empty; is a variable unset?")
        elif argument == STANDARD_INPUT:
            yield from filter(None, (line.rstrip("\r\n") for line in sys.stdin))
        elif glob.has_magic(argument) and not is_url(argument) and not Path(argument).exists():
            yield from sorted(glob.glob(argument, recursive=True)) or [argument]
        else:
            yield argument


def audio_files(arguments: Sequence[str]) -> list[str | Trouble]:
    """Return the audio files that arguments name."""
    return [file for name in expanded(arguments) for file in files_below(name)]


def files_below(name: str) -> Iterator[str | Trouble]:
    """Yield the audio files below a folder, by extension, or the named file itself."""
    path = Path(name)
    if path.is_dir():
        root = absolute(path)
        found = list(Folder(path).find())
        for one in found:
            if isinstance(one, Found):
                yield str(path / Path(one.location).relative_to(root))
            else:
                yield one
        if not found:
            yield Trouble(name, "no audio files in this folder")
    elif path.is_file():
        one = listed(path)
        yield one if isinstance(one, Trouble) else name
    elif path.exists():
        yield name
    else:
        yield Trouble(name, "no such file")
