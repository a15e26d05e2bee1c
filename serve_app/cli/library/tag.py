"""`afa tag`: write tempo, key, energy and ReplayGain into the tags of the library's files."""

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.table import Table

from configs.settings import Settings
from pipelines.audio.decode import DecoderUnavailableError
from pipelines.audio.waveform import AudioError
from serve_app.cli.analysis.sources import SOURCES_HELP, audio_files
from serve_app.cli.environment import console, fail, tell_of, told
from serve_app.cli.library.opened import existing
from serve_app.cli.library.rewrite import Changes, TaggingError, changes_of, write_tags
from serve_app.cli.library.tag_formats import UnwritableTagsError
from serve_app.cli.library.tag_values import DEFAULT_FIELDS, Field, Wish, values_of
from serve_app.cli.output.progress import shown_steps
from serve_app.composition.files import LocalFiles
from serve_app.library.library import Library
from serve_app.services.export.key_names import KeyFormat
from serve_app.services.export.tracks import ExportTrack, files_of, track_at, tracks_of
from serve_app.services.failure import reason_of
from serve_app.services.scan.places import Trouble, absolute

ToTag = tuple[Path, ExportTrack | None]
"""A file, and the library's track of it, if there is one."""

NEEDS_MUTAGEN = (
    "writing tags needs mutagen, which is GPL-2.0-or-later and so not part of afa: "
    f"{sys.executable} -m pip install 'afa[tag]'"
)

ROWS_TOGETHER = 10_000
"""Rows of one table, which is kept in memory and laid out as a whole."""


def tag(
    sources: Annotated[
        list[str] | None, typer.Argument(help=SOURCES_HELP, metavar="SOURCE")
    ] = None,
    whole_library: Annotated[
        bool, typer.Option("--library", help="All files of the library.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
    ] = False,
    only: Annotated[
        list[Field] | None, typer.Option(help="What to write; may be given several times.")
    ] = None,
    key_format: Annotated[KeyFormat, typer.Option(help="How keys are written.")] = (
        KeyFormat.CLASSIC
    ),
    keep_time: Annotated[
        bool, typer.Option("--keep-time", help="Keep the modification time of the files.")
    ] = False,
) -> None:
    """Write BPM, key, energy and ReplayGain into tags; the audio stays the same, bit for bit.

    Other tags stay. A file is replaced as a whole or not at all. One that cannot be written gets a
    line, and the exit status is 1. `--only comment` writes key and energy into the comment.
    """
    if find_spec("mutagen") is None:
        fail(NEEDS_MUTAGEN)
    if bool(sources) == whole_library:
        fail("name files, or give --library")
    settings = Settings()
    library = existing(settings, LocalFiles(settings.data_dir.absolute()))
    wish = Wish(tuple(only or DEFAULT_FIELDS), key_format)
    tagger = Tagger(wish, dry_run=dry_run, keep_time=keep_time)
    files = of_library(library) if whole_library else named(library, sources or ())
    with told(DecoderUnavailableError), shown_steps() as show:
        for n, file in enumerate(files, 1):
            if isinstance(file, Trouble):
                tagger.fail(file.location, file.message)
            else:
                tagger.tag(*file)
            show("tagging", n, None)
    tagger.tell()
    if tagger.n_failed:
        raise typer.Exit(1)


def named(library: Library, sources: Sequence[str]) -> Iterator[ToTag | Trouble]:
    """Yield the files that arguments name."""
    for file in audio_files(sources):
        if isinstance(file, Trouble):
            yield file
        else:
            yield Path(file), track_at(library, str(absolute(Path(file))))


def of_library(library: Library) -> Iterator[ToTag]:
    """Yield all files of the library."""
    for track in tracks_of(library):
        for of_file in files_of(track.track):
            yield of_file.path, of_file


class Tagger:
    """Tags one file after another and counts the outcomes."""

    def __init__(self, wish: Wish, *, dry_run: bool, keep_time: bool) -> None:
        self._wish, self._dry_run, self._keep_time = wish, dry_run, keep_time
        self._table = _new_table()
        self._n_changed = self._n_same = self.n_failed = 0

    def tag(self, path: Path, of_file: ExportTrack | None) -> None:
        """Tag a file, or note what would change."""
        try:
            if of_file is None:
                raise TaggingError(
                    f"it is not in the library; run `afa scan {quote(str(path))}` first"
                )
            values = values_of(of_file.features, self._wish)
            changes = changes_of(path, values)
            if changes and not self._dry_run:
                after = {name: text for name, (_, text) in changes.items()}
                write_tags(path, after, of_file.file.audio_sha256, keep_time=self._keep_time)
        except OSError as error:
            self.fail(path, reason_of(error))
        except (AudioError, TaggingError, UnwritableTagsError) as error:
            self.fail(path, str(error))
        else:
            self._note(path, changes)

    def tell(self) -> None:
        """Say what was done."""
        self._show()
        done = "would change" if self._dry_run else "changed"
        console.print(f"{self._n_changed} {done}, {self._n_same} were so already", highlight=False)

    def _note(self, path: Path, changes: Changes) -> None:
        self._n_changed += bool(changes)
        self._n_same += not changes
        for name, (before, after) in changes.items() if self._dry_run else ():
            self._table.add_row(path.name, name.value, before or "none", after)
        if len(self._table.rows) >= ROWS_TOGETHER:
            self._show()

    def _show(self) -> None:
        if self._table.rows:
            console.print(self._table, soft_wrap=False)
            self._table = _new_table()

    def fail(self, file: object, message: str) -> None:
        """Report a file that stays as it is."""
        self.n_failed += 1
        tell_of(file, message)


def _new_table() -> Table:
    return Table("file", "tag", "before", "after", title_justify="left")
