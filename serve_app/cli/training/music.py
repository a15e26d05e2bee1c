"""Folders of music that a network learns from without labels."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress

from serve_app.cli.analysis.sources import STANDARD_INPUT, audio_files, files_below
from serve_app.cli.environment import console, fail
from serve_app.services.scan.places import Trouble

if TYPE_CHECKING:
    from pipelines.training.recordings import Reader


def existing(sources: list[str] | None) -> list[str] | None:
    """Refuse a folder that does not exist, before any work is done."""
    for source in sources or []:
        if source != STANDARD_INPUT and not glob.has_magic(source) and not Path(source).exists():
            fail(f"there is no folder {source}")
    return sources


def with_audio(sources: list[str] | None) -> list[str] | None:
    """Likewise refuse a folder without audio."""
    for source in existing(sources) or []:
        if Path(source).is_dir() and all(isinstance(one, Trouble) for one in files_below(source)):
            fail(f"there is no audio in {source}")
    return sources


def read_music(sources: Sequence[str], folder: Path, read: "Reader") -> list[Path]:
    """Read all files that are music, once per content; return the paths of the stored results."""
    from pipelines.training.recordings import keep_recording

    files = [file for file in audio_files(sources) if not isinstance(file, Trouble)]
    folder.mkdir(parents=True, exist_ok=True)
    with Progress(console=console, transient=True) as progress:
        found = [
            keep_recording(Path(file), folder, read)
            for file in progress.track(files, description="reading")
        ]
    kept = [path for path in found if path is not None]
    tracks = sorted(set(kept))
    console.print(f"{len(tracks)} tracks read; {len(files) - len(kept)} files are not music")
    return tracks


def read_recordings(music: Sequence[str], folder: Path, read: "Reader") -> list[Path]:
    """Do as `read_music` for --music, and end the command if there is no music."""
    kept = read_music(music, folder, read)
    if not kept:
        fail("there is nothing to learn from in --music: recordings must last 31 s or more")
    return kept
