"""`afa catalog`: import, export and search track identities."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.table import Table

from configs.settings import Settings
from serve_app.cli.environment import console, fail, replaceable, tell_to_publish, told
from serve_app.cli.output.progress import shown_steps
from serve_app.composition.files import LocalFiles, tracks_mirror
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import InvalidTrackIdError, readings
from serve_app.providers.catalog.build import (
    CatalogBusyError,
    CatalogFileError,
    build_catalog,
    export_catalog,
    locked,
)
from serve_app.providers.catalog.index import CURRENT
from serve_app.providers.catalog.rows import AudioPolicy
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.dumps import features, musicbrainz
from serve_app.providers.dumps.files import DumpFormatError, DumpReport
from serve_app.providers.dumps.pull import Dump, FetchError, Pulling
from serve_app.providers.web.url_guard import UrlGuard

EXAMPLES_SHOWN = 10

app = typer.Typer(help="The catalog of track identities.", no_args_is_help=True)


def folder() -> Path:
    """Return the folder of this installation's catalog."""
    return LocalFiles(Settings().data_dir.absolute()).catalog_dir


AudioAnywhere = Annotated[
    bool,
    typer.Option(help="Accept audio files outside the catalog file's folder, if you trust it."),
]


Written = Annotated[
    Path, typer.Argument(callback=replaceable, help="Catalog file (Parquet) to write.")
]


def audio_policy(anywhere: bool) -> AudioPolicy:
    """Return which audio a catalog file may name, by the settings."""
    settings = Settings()
    return AudioPolicy(UrlGuard(settings.url_ports, settings.url_networks), anywhere)


@contextmanager
def resumable() -> Iterator[None]:
    """If Ctrl-C or the disk ends long work, say that the same command continues it."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("stopped; what is done is kept, and the same command goes on from there")
        raise typer.Exit(130) from None
    except OSError as error:
        data_dir = Settings().data_dir.absolute()
        there = next(one for one in (data_dir, *data_dir.parents) if one.exists())
        free_gb = shutil.disk_usage(there).free / 1e9
        fail(
            f"{error}; {free_gb:.1f} GB are free at {there}. What is done is kept, and the same "
            "command goes on from there"
        )


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(help="Catalog files (Parquet).")],
    audio_anywhere: AudioAnywhere = False,
) -> None:
    """Replace the catalog with the rows of these files; running services follow by themselves.

    With AFA_SHARED they follow what you publish. If the command was stopped or killed, give it
    again: it continues from there. Without --audio-anywhere, audio must be below the folder of its
    catalog file, or at a public web address.
    """
    with (
        told(CatalogFileError, CatalogBusyError),
        resumable(),
        shown_steps() as progress,
    ):
        report = build_catalog(files, folder(), progress, audio_policy(audio_anywhere))
    before = f" ({report.n_before} of them before)" if report.n_before else ""
    console.print(
        f"{report.n_imported} of {report.n_rows} rows{before} in {report.duration_s:.1f} s"
    )
    for reason, count in report.reasons.most_common():
        console.print(f"  left out {count}: {reason}", style="yellow")
    for row in report.examples[:EXAMPLES_SHOWN]:
        console.print(f"  {row.path}, row {row.row}: {row.reason}", style="dim")
    tell_to_publish()


@app.command()
def pull(
    dump: Annotated[Dump, typer.Argument(help="Which dump.")],
    sources: Annotated[
        list[str],
        typer.Option(
            "--from",
            help="File or address: MusicBrainz's recording.tar.xz, or both AcousticBrainz's rhythm "
            "and tonal archives.",
        ),
    ],
) -> None:
    """Fetch a published dump and make it the catalog, with the other dump if you pulled that too.

    If a step was stopped or killed, give the same command again: it continues from there. What was
    pulled before stays in the catalog until the new dump is fully converted. Rows that were
    imported from other files are replaced.
    """
    room = LocalFiles(Settings().data_dir.absolute()).pulled_dir
    pulling = Pulling(room / dump)
    with told(CatalogBusyError), resumable(), locked(room, "pull"):
        with told(ValueError, FetchError, httpx.InvalidURL), shown_steps() as show:
            report = pulling.run(dump, sources, show)
        show_dump(report, room / dump)
        import_command([part for one in Dump for part in Pulling(room / one).parts()])
        pulling.tidy()


@app.command()
def publish() -> None:
    """Give this machine's catalog and fingerprints to every node of a cluster (AFA_SHARED).

    Running nodes get them within half a minute.
    """
    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    url = files.published_url(settings)
    if url is None:
        fail("set AFA_SHARED to the storage that every node sees: s3://bucket/prefix or file://…")
    with told(ServiceUnavailableError):
        generation = tracks_mirror(url, files.data_dir).publish()
    console.print(f"published: generation {generation}")


@app.command("export")
def export_command(file: Written) -> None:
    """Write the catalog to one Parquet file."""
    if not (folder() / CURRENT).exists():
        fail("there is no catalog; `afa catalog import` or `afa catalog pull` makes one")
    with told(OSError), shown_steps() as progress:
        n_rows = export_catalog(folder(), file, progress)
    console.print(f"{n_rows} rows: {file}")


@app.command()
def find(
    words: Annotated[list[str], typer.Argument(help="A track id in any form, or ARTIST TITLE.")],
) -> None:
    """Look up a track as the service does."""
    catalog = Catalog.open(folder())
    if len(words) == 1:
        try:
            track_ids = readings(words[0])
        except InvalidTrackIdError as error:
            fail(f"{error} Or name the track: `afa catalog find ARTIST TITLE`.")
        found = [identity for one in track_ids if (identity := catalog.by_id(one)) is not None]
    else:
        found = [match.identity for match in catalog.find(words[0], " ".join(words[1:]))]
    if not found:
        fail("nothing found")
    for identity in found:
        console.print(identity_table(identity), soft_wrap=False)


def identity_table(identity: TrackIdentity) -> Table:
    """Lay out what is known about a track."""
    table = Table(title=f"{identity.artist} - {identity.title}", show_header=False)
    for name, value in asdict(identity).items():
        if value not in (None, "", [], ()) and name not in ("artist", "title"):
            text = str(value)
            table.add_row(name, text if len(text) < 80 else f"{text[:77]}…")
    return table


@app.command("musicbrainz")
def musicbrainz_command(
    dump: Annotated[Path, typer.Argument(help="MusicBrainz JSON dump of recordings.")],
    file: Written,
) -> None:
    """Turn a MusicBrainz dump into a catalog file."""
    with told(DumpFormatError, OSError), console.status("reading"):
        show_dump(musicbrainz.import_recordings(dump, file), file)


@app.command("acousticbrainz")
def acousticbrainz_command(
    rhythm: Annotated[Path, typer.Argument(help="The dump's rhythm CSV.")],
    tonal: Annotated[Path, typer.Argument(help="The dump's tonal CSV.")],
    file: Written,
) -> None:
    """Turn AcousticBrainz's feature dumps into a catalog file of tempos and keys."""
    with told(DumpFormatError, OSError), shown_steps() as show:
        show_dump(features.import_features(rhythm, tonal, file, show), file)


def show_dump(report: DumpReport, file: Path) -> None:
    """Print what a dump contained."""
    console.print(f"{report.n_used} of {report.n_items} entries: {file}")
    for reason, count in report.reasons.most_common():
        console.print(f"  left out {count}: {reason}", style="yellow")
