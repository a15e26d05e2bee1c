"""`afa backfill`: analyse very many files on a Ray cluster, for the library and as Parquet."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from configs.settings import Settings
from models.checkpoints.cards import CardError
from serve_app.cli.environment import ConfigOption, console, errors, fail, profile_of, told
from serve_app.cli.library.opened import maintained, opened
from serve_app.cli.library.scan import place_of
from serve_app.cli.output.progress import shown
from serve_app.composition.files import (
    LocalFiles,
    NotSharedError,
    make_private,
    require_shared_storage,
)
from serve_app.composition.options import UrlOptions
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.library import Library
from serve_app.local import own_ray
from serve_app.services.scan.places import Found, Place, Trouble
from serve_app.services.scan.scan import NO_AUDIO
from serve_app.store.mirror import DamagedPublicationError

if TYPE_CHECKING:
    from serve_app.backfill.destination import Destination
    from serve_app.backfill.run import Report

TABLE = ".parquet"


def backfill(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, s3://bucket/prefix, or a .parquet file whose column `path`, `url` or "
            "`location` has paths, s3:// and web addresses.",
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            help="Folder or s3://bucket/prefix for the tables `tracks` and `errors`.",
            metavar="DEST",
        ),
    ],
    address: Annotated[
        str,
        typer.Option(
            envvar="RAY_ADDRESS",
            help="The cluster: `auto` on one of its nodes, or HOST:6379. `local` starts Ray on "
            "this machine, for this run.",
        ),
    ] = "local",
    actors: Annotated[
        int,
        typer.Option(
            min=0, help="Processes that analyse; 0: one per GPU, or per CPU without GPUs."
        ),
    ] = 0,
    cpus: Annotated[
        int,
        typer.Option(min=0, help="CPUs of each process; 0: its GPU's share, or 1 without GPUs."),
    ] = 0,
    config: ConfigOption = None,
) -> None:
    """Analyse very many files on a Ray cluster, into the library and into Parquet.

    DEST/tracks has a row for each file: its location, its track in the library, tempo, key, beats,
    loudness, attributes, tags, and the embedding as a fixed-size list of 768 float32. DEST/errors
    has a row for each file that could not be analysed, with a code and a message. Read both as
    whole folders: `pyarrow.dataset.dataset("DEST/tracks")`, or `read_parquet('DEST/tracks/*')`.

    However a run ends, even by kill -9, the same command continues it: existing rows are skipped,
    and what the library knows is not analysed again. A file that changed gets another row. So does
    every file once --config or a new version of afa names other checkpoints; `made_by` names them.
    What `afa models swap` chose applies to the service only.

    Errors in the audio, or in what a web address returns, are remembered; remove DEST/errors to try
    those files again. After any other error, such as an unavailable store, the next run that lists
    the file tries it again, and removes the error from DEST/errors when it ends.

    Only one run at a time writes to a folder; another is refused. An S3 prefix is not protected:
    make sure that only one run writes there. Every node needs the files, afa with its extra
    `backfill` (Ray Data), and the checkpoints (`afa models publish`, or `afa models pull` on each).
    Nothing is charged.

    The exit status is 0 even if some audio had errors. It is 1 if the next run will try files
    again, if SOURCE cannot be listed or holds no audio, or if a full disk or the like ended the
    run.
    """
    if find_spec("pandas") is None:
        fail("the back-fill needs Ray Data; pip install 'afa[backfill]'")
    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    with told(ValueError, OSError, NotSharedError):
        require_shared_storage(settings)
        place = _place(source, settings)
        listed = list(place.find())
    _require_all(source, place, listed)
    from serve_app.backfill.destination import Destination, DestinationError

    with told(DestinationError):
        destination = Destination(out)
    make_private(files.data_dir)
    library = opened(settings, files)
    with _connected(address), told(CardError), maintained(opened(settings, files)):
        report = _run(settings, files, place, listed, library, destination, (actors, cpus), config)
    _tell(report, out)


def _place(source: str, settings: Settings) -> Place:
    """Return what the argument names.

    Raises:
        ValueError: The address is not that of a bucket, or the table names no audio.
        OSError: The table cannot be read.
    """
    scheme, is_address, rest = source.partition("://")
    if is_address:
        if scheme.lower() != "s3":
            raise ValueError(
                f"{scheme}:// is not read; name a folder, s3://bucket/prefix or a {TABLE} file"
            )
        if urlsplit(source).path.endswith(TABLE):
            raise ValueError(f"a table is read on this machine alone; fetch {source} and name it")
        return place_of(f"s3://{rest}")
    if not source.endswith(TABLE):
        return place_of(source)
    from serve_app.services.scan.table import Table

    return Table(Path(source), UrlOptions.of(settings).guard())


def _require_all(source: str, place: Place, listed: Sequence[Found | Trouble]) -> None:
    """End the command if the source could not be fully listed, or is empty."""
    for one in listed:
        if isinstance(one, Trouble) and one.location == place.root:
            fail(
                f"{one.location} cannot be listed ({one.message}); see that it is mounted, or that "
                "the store answers, and run the same command again"
            )
    if not listed:
        fail(f"{source} {NO_AUDIO}")


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster, or start a Ray that ends with the block."""
    if address == "local":
        own_ray.start(os.cpu_count() or 1)
    import ray

    if address != "local":
        with told(ConnectionError, RuntimeError, ValueError):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _run(
    settings: Settings,
    files: LocalFiles,
    place: Place,
    listed: Sequence[Found | Trouble],
    library: Library,
    destination: "Destination",
    wanted: tuple[int, int],
    config: Path | None,
) -> "Report":
    from ray.exceptions import RayError

    from serve_app.backfill.destination import DestinationError
    from serve_app.backfill.hearer import HearerOptions
    from serve_app.backfill.run import Backfill, NodeFullError, OtherCheckpointsError, actors_for

    profile = profile_of(config)
    served, published = files.served(settings), files.checkpoints_url(settings)
    options = HearerOptions(
        place=place,
        spectral=profile.model_options(profile.spectral, settings, published),
        embedding=profile.model_options(profile.embedding, settings, published),
        catalog_dir=served.catalog_dir,
        fingerprint_dir=served.fingerprint_dir,
    )
    with told(ServiceUnavailableError, DamagedPublicationError):
        options.embedding.follow()
    with (
        told(DestinationError, NodeFullError, OtherCheckpointsError),
        told(RayError, ServiceUnavailableError, OSError),
        shown("hearing", len(listed)) as show,
    ):
        actors = actors_for(*wanted)

        def tell(report: "Report") -> None:
            n_worked = report.n_done - report.before
            show(report.n_done, n_worked, report.heard, f", {report.errors} errors")

        def tell_waiting() -> None:
            errors.print(
                f"waiting: an actor takes {actors.n_cpus:g} CPU and {actors.n_gpus:g} GPU (--cpus),"
                " and no node has so much free; a service on the cluster holds what its Serve file"
                " says",
                highlight=False,
            )

        run = Backfill(library, destination, options, actors, tell, tell_waiting)
        try:
            run.run(listed)
        except KeyboardInterrupt:
            console.print("stopped; what is done is kept, and the same command goes on")
            raise typer.Exit(130) from None
    return run.report


def _tell(report: "Report", out: str) -> None:
    console.print(
        f"{report.heard} heard, {report.known} from the library, {report.before} there before, "
        f"{report.errors} with errors",
        highlight=False,
    )
    if report.passing:
        fail(
            f"{report.passing} of the errors may be temporary, and are not remembered; read "
            f"the table `errors` of {out}, and run the same command again"
        )
