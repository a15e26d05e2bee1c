"""`afa analyze`: features of files and addresses, by the running service or in this process."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated, Any
from warnings import catch_warnings

import typer

from afa.errors import MachineError
from configs.settings import Settings
from models.rhythm.tempo import TempoRange
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import DecoderUnavailableError, decode
from pipelines.audio.worker_pool import ended_by_errors, new_pool, without_ctrl_c
from serve_app.api.wire.features import AnalysisFeatures, to_analysis
from serve_app.cli.analysis.by_service import service_engine
from serve_app.cli.analysis.loaded import (
    LIMITS,
    LoadingError,
    load_analyzer,
    loaded,
    start_worker,
)
from serve_app.cli.analysis.sources import SOURCES_HELP, expanded, files_below
from serve_app.cli.environment import (
    ConfigOption,
    HereOption,
    PartialOption,
    TempoRangeOption,
    console,
    errors,
    fail,
    is_url,
    profile_of,
    told,
    writable,
    written,
)
from serve_app.cli.output.each_file import Show, each_file
from serve_app.cli.output.records import csv_rows, json_lines
from serve_app.cli.output.table import features_table
from serve_app.cli.service import running_session
from serve_app.composition.files import LocalFiles, NotRunningError
from serve_app.composition.options import UrlOptions
from serve_app.providers.tags.identity import identity_of
from serve_app.providers.tags.reader import read_tags
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.services.failure import Failure

MAX_URL_BYTES = 500_000_000

PICTURES = (".png", ".svg", ".pdf")
NO_FONT = "some letters of the name are boxes in the picture: no installed font has them"

Done = Callable[[str, TrackFeatures | Exception], None]
Analyse = Callable[[Sequence[str], TempoRange | None, Done], None]
"""Analyses files and reports each one, in their order."""


OF_ALL = (DecoderUnavailableError, MachineError)
"""Errors that would fail every file."""


def drawable(path: Path | None) -> Path | None:
    """Refuse a picture that could not be drawn, before any work is done."""
    if path is not None and path.suffix.lower() not in PICTURES:
        fail(f"cannot draw {path}: its name must end in {', '.join(PICTURES)}")
    return writable(path)


def analyze(
    sources: Annotated[
        list[str], typer.Argument(help=f"{SOURCES_HELP} Also http(s) URLs.", metavar="SOURCE")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each file instead of a table.")
    ] = False,
    jsonl: Annotated[
        Path | None, typer.Option(callback=written, help="Write these lines of JSON to this file.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(callback=written, help="Write a CSV row for each file to this file."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(callback=drawable, help="Draw one track to this file: .png, .svg or .pdf."),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Draw on a dark background.")] = False,
    with_embedding: Annotated[
        bool, typer.Option("--embedding", help="Include the 768-d embedding.")
    ] = False,
    tempo_range: TempoRangeOption = None,
    here: HereOption = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes to share the files among if no service is used.")
    ] = 2,
    partial: PartialOption = False,
    max_windows: Annotated[
        int,
        typer.Option(
            min=0,
            help="Most windows for mood and embedding, 0: all; if set, the service is not used.",
        ),
    ] = 0,
    config: ConfigOption = None,
) -> None:
    """Show tempo, key, beats, loudness, attributes and mood of audio.

    If the service that `afa up` starts is running, it does the work, in a second. Otherwise this
    command loads the networks itself. A file that cannot be analysed gets a line with its name; the
    others go on, and the exit status is 1.
    """
    with told(ValueError):
        within = None if tempo_range is None else TempoRange.parse(tempo_range)
    files = [
        file
        for name in expanded(sources)
        for file in ([name] if is_url(name) else files_below(name))
    ]
    if plot is not None and len(files) != 1:
        fail("--plot draws one track; name one file")
    names = [file for file in files if isinstance(file, str)]
    is_own = here or partial or max_windows > 0 or config is not None
    local = LocalFiles(Settings().data_dir.absolute())
    session = None if is_own else running_session(local)
    if session is not None:
        analyse, by = by_service(local), f"by the service at {session['url']}"
    else:
        n_workers = min(jobs, len(names))
        analyse = in_processes(n_workers, (max_windows, config, partial))
        by = "in this process" if n_workers < 2 else f"in {n_workers} processes"
    begun_s = time.monotonic()
    # A table that cannot be written is reported on closing it, which fails again.
    with told(OSError), ExitStack() as stack:
        shows = list(shown(stack, as_json, jsonl, csv, with_embedding))
        if plot is not None:
            shows.append(drawing(plot, is_dark=dark))
        is_shown_here = as_json or (jsonl is None and csv is None)
        told_of = stack.enter_context(
            each_file(len(files), together(shows), is_shown_here=is_shown_here)
        )
        for file in files:
            if not isinstance(file, str):
                told_of.absent(file)
        if names:
            with told(*OF_ALL, NotRunningError, LoadingError, BrokenProcessPool):
                analyse(names, within, told_of.done)
        if names and not as_json:
            n_done, took_s = len(files) - told_of.n_failed, time.monotonic() - begun_s
            errors.print(f"{n_done} analysed {by} in {took_s:.1f} s", style="dim", highlight=False)


def shown(
    stack: ExitStack, as_json: bool, jsonl: Path | None, csv: Path | None, with_embedding: bool
) -> Iterator[Show[TrackFeatures]]:
    """Yield what is done with each result; a table is printed if nothing else was requested."""

    def record_of(features: AnalysisFeatures) -> dict[str, Any]:
        left_out = set() if with_embedding else {"embedding", "embedding_model"}
        return features.model_dump(mode="json", exclude=left_out)

    def opened(path: Path) -> IO[str]:
        return stack.enter_context(path.open("w", encoding="utf-8", newline=""))

    if as_json:
        yield named(json_lines(record_of))
    if jsonl is not None:
        yield named(json_lines(record_of, opened(jsonl)))
    if csv is not None:
        yield named(csv_rows(record_of, opened(csv)))
    if not as_json and jsonl is None and csv is None:
        yield named(tables(with_embedding))


def named(show: Show[AnalysisFeatures]) -> Show[TrackFeatures]:
    """Show results in the API's shape, with artist and title from the file's tags."""

    def show_named(file: str, result: TrackFeatures | Failure) -> None:
        if isinstance(result, Failure):
            show(file, result)
            return
        artist = title = ""
        if not is_url(file):
            who = identity_of(read_tags(Path(file)), Path(file)).identity
            artist, title = who.artist, who.title
        show(file, to_analysis(result, artist, title))

    return show_named


def tables(with_embedding: bool) -> Show[AnalysisFeatures]:
    """Print a table for each file."""

    def show(file: str, result: AnalysisFeatures | Failure) -> None:
        if isinstance(result, AnalysisFeatures):
            if not with_embedding:
                result = result.model_copy(update={"embedding": None})
            console.print(features_table(result, Path(file).name), soft_wrap=False)

    return show


def drawing(path: Path, *, is_dark: bool) -> Show[TrackFeatures]:
    """Draw an analysed track."""

    def show(file: str, result: TrackFeatures | Failure) -> None:
        if isinstance(result, TrackFeatures):
            from afa.plot import draw

            with local_file(file) as audio, catch_warnings(record=True, action="always") as warned:
                picture = draw(decode(audio, LIMITS), result, Path(file).name, is_dark=is_dark)
                picture.savefig(path)
            errors.print(f"plot: {path}", highlight=False)
            if any("missing from font" in str(one.message) for one in warned):
                errors.print(NO_FONT, highlight=False)

    return show


def together(shows: Iterable[Show[TrackFeatures]]) -> Show[TrackFeatures]:
    """Do several things with each result."""

    def show(file: str, result: TrackFeatures | Failure) -> None:
        for one in shows:
            one(file, result)

    return show


@contextmanager
def local_file(source: str) -> Iterator[Path]:
    """Yield a path to the audio, fetched first if it is a URL.

    Raises:
        UrlError: It cannot be fetched.
    """
    if not is_url(source):
        yield Path(source).absolute()
        return
    guard = UrlOptions.of(Settings()).guard()
    with TemporaryDirectory(prefix="afa-") as folder:
        path = Path(folder) / "audio"
        asyncio.run(AudioUrlFetcher(guard).fetch(source, path, MAX_URL_BYTES))
        yield path


def by_service(files: LocalFiles) -> Analyse:
    """Analyse with the running service, several files at a time."""

    def analyse(names: Sequence[str], within: TempoRange | None, done: Done) -> None:
        try:
            asyncio.run(analyse_all(names, within, done))
        except ExceptionGroup as failed:  # of `done` alone: what is shown cannot be written
            raise failed.exceptions[0] from None

    async def analyse_all(names: Sequence[str], within: TempoRange | None, done: Done) -> None:
        async with service_engine(Settings(), files, within) as engine:
            slots = asyncio.Semaphore(engine.n_at_once)

            async def of(name: str) -> TrackFeatures | Exception:
                async with slots:
                    try:
                        with ExitStack() as stack:
                            opened = local_file(name)
                            path = await asyncio.to_thread(stack.enter_context, opened)
                            return await engine.analyze(path)
                    except Exception as error:  # noqa: BLE001  one file must not end the run
                        return error

            async with asyncio.TaskGroup() as tasks:
                for name, task in [(name, tasks.create_task(of(name))) for name in names]:
                    # In a thread: showing a result may fetch the file again, in its own loop.
                    await asyncio.to_thread(done, name, await task)

    return analyse


def in_processes(n_workers: int, loading: tuple[int, Path | None, bool]) -> Analyse:
    """Load the networks and analyse in this process, or in parallel in several.

    Args:
        n_workers: Number of processes.
        loading: Arguments of `start_worker`.
    """

    def analyse_here(names: Sequence[str], within: TempoRange | None, done: Done) -> None:
        from afa.device import on_device

        max_windows, config, is_partial = loading
        analyzer = load_analyzer(max_windows, config, is_partial=is_partial)
        for name in names:
            try:
                with local_file(name) as path, on_device():
                    outcome: TrackFeatures | Exception = analyzer.analyze(path, LIMITS, within)
            except OF_ALL:
                raise
            except Exception as error:  # noqa: BLE001  one file must not end the run
                outcome = error
            done(name, outcome)

    def analyse_beside(names: Sequence[str], within: TempoRange | None, done: Done) -> None:
        profile_of(loading[1])  # a wrong one is reported once, not by each worker
        with ended_by_errors(new_pool(n_workers, start_worker, *loading)) as pool:
            with without_ctrl_c():
                futures = [pool.submit(analyse_one, name, within) for name in names]
            for name, future in zip(names, futures, strict=True):
                try:
                    outcome: TrackFeatures | Exception = future.result()
                except (*OF_ALL, LoadingError, BrokenProcessPool):
                    raise
                except Exception as error:  # noqa: BLE001  one file must not end the run
                    outcome = error
                done(name, outcome)

    return analyse_here if n_workers < 2 else analyse_beside


def analyse_one(name: str, within: TempoRange | None) -> TrackFeatures:
    """Analyse a file in a process of the pool."""
    from afa.device import on_device

    with local_file(name) as path, on_device():
        return loaded().analyze(path, LIMITS, within)
