"""`afa scan`: bring the music of folders, files and buckets into the library."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from afa.errors import MachineError
from configs.settings import Settings
from models.checkpoints.cards import CardError
from models.rhythm.tempo import TempoRange
from pipelines.audio.decode import DecoderUnavailableError
from serve_app.cli.analysis.by_service import service_engine
from serve_app.cli.analysis.loaded import LoadingError
from serve_app.cli.analysis.sources import SOURCES_HELP, expanded
from serve_app.cli.environment import (
    ConfigOption,
    HereOption,
    PartialOption,
    TempoRangeOption,
    console,
    fail,
    is_url,
    profile_of,
    tell_of,
    told,
    until_stopped,
)
from serve_app.cli.library.opened import ScanningError, maintained, only_scan, opened
from serve_app.cli.library.workers import WorkersEngine
from serve_app.cli.output.progress import shown
from serve_app.cli.service import running_session
from serve_app.composition.files import LocalFiles, NotRunningError, make_private
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.library import Library
from serve_app.library.rows import location_term
from serve_app.library.track import OPERATOR
from serve_app.providers.fingerprints.manifest import FingerprintIndexError
from serve_app.services.scan.entries import is_as_listed
from serve_app.services.scan.landmarks import LandmarkIndex
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import Bucket, Folder, Found, Place, SingleFile, Trouble
from serve_app.services.scan.report import Outcome, ScanReport
from serve_app.services.scan.scan import Engine, Scan, found_in, gone_from, without_audio

STOPPED = "stopped; what is done is kept, and the same command goes on from there"
KEPT = "missing files may have moved, so they are kept; run the command again to forget them"

LOOK_EVERY_S = 10.0

NO_NEWS = {Outcome.UNCHANGED, Outcome.FAILED}
"""Outcomes that --watch does not report again: they were shown before."""

Listed = list[tuple[Place, list[Found | Trouble]]]


def scan(
    sources: Annotated[
        list[str],
        typer.Argument(help=f"{SOURCES_HELP} Also s3://bucket/prefix.", metavar="SOURCE"),
    ],
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and follow changes.")
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds between two checks of --watch; 10 if not given."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    here: HereOption = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that analyse if no service is used.")
    ] = 2,
    partial: PartialOption = False,
    again: Annotated[
        bool, typer.Option("--again", help="Analyse known files again, as after a swap of models.")
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Forget files that are gone, and tracks with no other file, instead of only "
            "marking them.",
        ),
    ] = False,
    tempo_range: TempoRangeOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring music into the library: read tags, analyse new files, follow moved and removed ones.

    Unchanged files are skipped, so a second scan does only what is new. Ctrl-C, SIGTERM and even a
    crash keep what is done. A file that cannot be added, or a folder without audio, gets a line
    with its path, and the exit status is 1.
    """
    if every is not None and not watch:
        fail("--every is the time between two looks of --watch; add --watch")
    if watch and forget:
        fail("--forget is for one scan: with --watch, a disk may disappear and come back")
    every_s = LOOK_EVERY_S if every is None else every
    profile_of(config)  # a wrong one is reported once, not by each worker
    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    with told(ValueError):
        within = None if tempo_range is None else TempoRange.parse(tempo_range)
        places = [place_of(source) for source in expanded(sources)]
    with told(OSError):
        make_private(files.data_dir)
    os.umask(0o077)  # new files from here on are in the data folder
    library = opened(settings, files)
    if dry_run:
        foretell(library, listed(places), forget=forget)
        return
    is_own = here or partial or config is not None
    is_served = not is_own and running_session(files) is not None
    with told(FingerprintIndexError):
        naming = Naming.open(files.catalog_dir, files.fingerprint_dir)
        landmarks = LandmarkIndex(files.fingerprint_dir)
    session = Session(library, naming, landmarks, again=again, forget=forget)

    @asynccontextmanager
    async def engine() -> AsyncIterator[Engine]:
        if is_served:
            async with service_engine(settings, files, within) as served:
                yield served
            return
        with maintained(opened(settings, files)):
            workers = WorkersEngine(jobs, config, within, is_partial=partial)
            try:
                yield workers
            finally:
                workers.close()

    async def run() -> ScanReport:
        with ExitStack() as first:
            first.enter_context(only_scan(files))
            async with engine() as engine_of_run:
                found = listed(places)
                report = await session.look(engine_of_run, found)
                first.close()  # between two checks of --watch, others may scan
                while watch:
                    await asyncio.sleep(every_s)
                    with suppress(ScanningError), only_scan(files):
                        before, found = found, listed(places)
                        unfinished = being_written(found, before, every_s)
                        report = await session.look(engine_of_run, found, unfinished, is_quiet=True)
            return report

    with told(
        CardError,
        LoadingError,
        DecoderUnavailableError,
        MachineError,
        NotRunningError,
        ScanningError,
        ServiceUnavailableError,
        OSError,
        FingerprintIndexError,
    ):
        report = until_stopped(run(), STOPPED)
    if report.has_failed:
        raise typer.Exit(1)


class Session:
    """Repeated scans of the same places."""

    def __init__(
        self,
        library: Library,
        naming: Naming,
        landmarks: LandmarkIndex,
        *,
        again: bool,
        forget: bool,
    ) -> None:
        self._library, self._naming, self._landmarks = library, naming, landmarks
        self._again, self._forget = again, forget
        self._reported = set[Trouble]()
        self._settled: tuple[int, set[Found | Trouble]] = (-1, set())

    async def look(
        self,
        engine: Engine,
        found: Listed,
        unfinished: Collection[str] = (),
        *,
        is_quiet: bool = False,
    ) -> ScanReport:
        """Add the listed files that are complete, with a progress bar; return the outcome.

        While nothing changes in the library, files that are as at the last look are passed over.
        """
        await asyncio.to_thread(self._library.follow)
        version = self._library.version
        settled = self._settled[1] if self._settled[0] == version else set()
        everything = {one for _, of_place in found for one in of_place}
        locations = {one.location for one in everything}
        skipped = locations - {one.location for one in everything - settled}
        begun_s = time.monotonic()
        n_of: Counter[Outcome] = Counter()
        with shown("scanning", len(locations), is_quiet=is_quiet) as show:

            def tell(location: str, outcome: Outcome) -> None:
                del location  # problems are reported at the end, the rest is only counted
                n_of[outcome] += 1
                n_done = n_of.total()
                n_analysed = n_of[Outcome.ADDED] + n_of[Outcome.ANALYSED]
                show(n_done, n_done - n_of[Outcome.UNCHANGED], n_analysed, "")

            scan = Scan(
                *(self._library, engine, self._naming, self._landmarks, tell),
                again=self._again,
                forget=self._forget,
            )
            scan.report.counts[Outcome.UNCHANGED] += len(skipped)
            is_whole = False
            try:
                await scan.run(found, {*unfinished, *skipped})
                is_whole = True
            finally:
                took_s = time.monotonic() - begun_s
                self._tell(scan.report, took_s, is_quiet=is_quiet or not is_whole)
        self._again = False
        away = {*unfinished, *(trouble.location for trouble in scan.report.troubles)}
        if self._library.version == version:
            self._settled = version, {one for one in everything if one.location not in away}
        return scan.report

    def _tell(self, report: ScanReport, took_s: float, *, is_quiet: bool) -> None:
        troubles = [one for one in report.troubles if one not in self._reported]
        self._reported = set(report.troubles)
        for trouble in troubles:
            tell_of(trouble.location, trouble.message)
        has_news = bool(troubles) or not report.counts.keys() <= NO_NEWS
        if has_news or not is_quiet:
            n_tracks = self._library.count([OPERATOR])
            console.print(
                f"{report.summary()}; {n_tracks} tracks in the library ({took_s:.1f} s)",
                highlight=False,
            )
            if self._forget and report.counts[Outcome.MISSING]:
                console.print(KEPT, highlight=False)


def place_of(source: str) -> Place:
    """Return the kind of place that an argument names.

    Raises:
        ValueError: It is an invalid bucket address, or another kind of address.
    """
    if source.startswith("s3://"):
        return Bucket(source)
    path = Path(source)
    if is_url(source) and not path.exists():
        raise ValueError(f"{source} is not scanned; name files, folders or s3://bucket/prefix")
    if path.is_dir():
        return Folder(path)
    return SingleFile(path)


def listed(places: Sequence[Place]) -> Listed:
    """List all files first, so that the amount of work is known."""
    return [(place, list(place.find())) for place in places]


def being_written(found: Listed, before: Listed, every_s: float) -> set[str]:
    """Return locations of files that may be incomplete: changed recently, and since last time."""
    seen = {one for _, of_place in before for one in of_place}
    of_late_ns = time.time_ns() - int(every_s * 1e9)
    return {
        one.location
        for _, of_place in found
        for one in of_place
        if isinstance(one, Found) and one not in seen and (one.mtime_ns or 0) > of_late_ns
    }


def foretell(library: Library, found: Listed, *, forget: bool) -> None:
    """Print what a scan would analyse, by size and modification time, and what is gone."""
    troubles = [one for _, of_place in found for one in of_place if isinstance(one, Trouble)]
    news = 0
    for one in (one for _, of_place in found for one in of_place):
        if isinstance(one, Found) and not is_known(library, one):
            news += 1
            console.print(one.location, highlight=False)
    n_known = sum(len(of_place) for _, of_place in found) - news - len(troubles)
    seen = found_in(found)
    gone = set[str]()
    for place, of_place in found:
        lost = [
            one
            for one in gone_from(library, place, of_place, seen)
            if not one.has_another_path and (forget or one.file.missing_since is None)
        ]
        if trouble := without_audio(place, of_place, lost, forget=forget):
            troubles.append(trouble)
        else:
            gone |= {one.file.location for one in lost}
    for trouble in troubles:
        tell_of(trouble.location, trouble.message)
    for location in sorted(gone):
        console.print(f"gone: {location}", highlight=False)
    summary = f"{news} new or changed, {n_known} unchanged"
    if gone:
        summary += f", {len(gone)} gone from where they were; what was moved is followed"
    console.print(summary, highlight=False)
    if troubles:
        fail(f"{len(troubles)} cannot be read")


def is_known(library: Library, found: Found) -> bool:
    """Return whether the library has the file as it was listed."""
    files = [
        file
        for track in library.of_term(location_term(found.location), OPERATOR)
        for file in track.files
        if file.location == found.location
    ]
    # A file that another recording replaced is kept as missing, next to the new one.
    there = [file for file in files if file.missing_since is None] or files
    return any(is_as_listed(file, found) for file in there)
