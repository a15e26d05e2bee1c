"""`afa export`: the library for DJ programs, players and tables."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import Annotated

import typer

from configs.settings import Settings
from serve_app.cli.environment import console, errors, fail, is_device, told, written
from serve_app.cli.library.opened import existing
from serve_app.cli.output.progress import shown_steps
from serve_app.composition.files import LocalFiles
from serve_app.providers.catalog.build import Progress
from serve_app.services.export import rekordbox, tables, traktor
from serve_app.services.export.key_names import KeyFormat
from serve_app.services.export.tracks import ExportTrack, looked_for

NOTHING = "the library has no analysed tracks with files; run `afa scan FOLDER` first"


class ExportFormat(StrEnum):
    """Formats that can be written."""

    CSV = "csv"
    PARQUET = "parquet"
    M3U = "m3u"
    REKORDBOX = "rekordbox"
    TRAKTOR = "traktor"


def export(
    kind: Annotated[ExportFormat, typer.Argument(help="Format to write.", metavar="FORMAT")],
    file: Annotated[
        Path, typer.Argument(callback=written, help="File to write; `-` is standard output.")
    ],
    key_format: Annotated[
        KeyFormat, typer.Option(help="How rekordbox and Traktor show keys.")
    ] = KeyFormat.CLASSIC,
) -> None:
    """Export the library's tracks whose files exist: csv, parquet, m3u, rekordbox or traktor."""
    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    library = existing(settings, files)
    tally = Tally()
    is_quiet = is_device(file)
    with told(OSError), shown_steps(is_quiet=is_quiet) as show, replaced(file) as staged:
        found = tally.found(looked_for(library), show)
        first = next(found, None)
        if first is None:
            fail(tally.left_out if tally.n_away else NOTHING)
        write(kind, chain([first], found), staged, key_format)
    # A file that is written in place may be the output where this message would go.
    where = errors if is_quiet else console
    where.print(f"{tally.n_found} tracks: {file}", highlight=False)
    if tally.n_away:
        errors.print(tally.left_out, style="yellow", highlight=False)


@dataclass(slots=True)
class Tally:
    """Counts a library's tracks as they are exported: a large one would fill the memory.

    Attributes:
        n_away: Tracks whose files are not there.
    """

    n_found: int = 0
    n_away: int = 0

    def found(self, tracks: Iterable[ExportTrack | None], show: Progress) -> Iterator[ExportTrack]:
        """Yield the tracks that can be exported."""
        for track in tracks:
            if track is None:
                self.n_away += 1
                continue
            self.n_found += 1
            show("exporting", self.n_found, None)
            yield track

    @property
    def left_out(self) -> str:
        """What to tell of the tracks whose files are not there."""
        return f"{self.n_away} tracks are left out: their files are not there; is the disk mounted?"


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """Yield a path next to a file; what is written there replaces the file as a whole.

    The path is unique and short: another export may write the same file, and a file's name may be
    as long as names can be. A pipe or a device is written directly, and for a link the file that
    it leads to is replaced.
    """
    if is_device(file):
        yield file
        return
    file = file.resolve()
    staged = file.with_name(f".afa-{token_hex(8)}.new")
    try:
        yield staged
        staged.replace(file)
    finally:
        staged.unlink(missing_ok=True)


def write(
    kind: ExportFormat, found: Iterable[ExportTrack], path: Path, key_format: KeyFormat
) -> None:
    """Write tracks in the given format."""
    match kind:
        case ExportFormat.CSV:
            with path.open("w", encoding="utf-8", newline="") as table:
                tables.write_csv(found, table)
        case ExportFormat.M3U:
            with path.open("w", encoding="utf-8") as playlist:
                tables.write_m3u(found, playlist)
        case ExportFormat.PARQUET:
            with path.open("wb") as table:
                tables.write_parquet(found, table)
        case ExportFormat.REKORDBOX:
            tree = rekordbox.collection(found, version("afa"), key_format)
            tree.write(path, encoding="UTF-8", xml_declaration=True)
        case ExportFormat.TRAKTOR:
            tree = traktor.collection(found, key_format)
            tree.write(path, encoding="UTF-8", xml_declaration=True)
