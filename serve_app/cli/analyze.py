"""`afa analyze`: the features of files or a URL, without any server."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track

from configs.settings import Settings
from models.checkpoints.cards import CardError
from models.rhythm.tempo import TempoRange
from pipelines.analysis.excerpt import Excerpt
from pipelines.analysis.notes import PITCH_CLASSES
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import DecodeLimits, DecoderUnavailableError, decode
from pipelines.audio.waveform import AudioError
from serve_app.api.wire.features import to_analysis
from serve_app.cli.environment import (
    ConfigOption,
    console,
    existing,
    fail,
    is_url,
    profile_of,
    told,
)
from serve_app.cli.output.table import features_table
from serve_app.composition.options import UrlOptions
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.url_guard import UrlError

if TYPE_CHECKING:
    from pipelines.local import LocalAnalyzer

MAX_SECONDS = 4 * 3600.0
MAX_URL_BYTES = 500_000_000
LIMITS = DecodeLimits(max_seconds=MAX_SECONDS)

_analyzer: "LocalAnalyzer | None" = None


def load_analyzer(
    max_windows: int, config: Path | None, *, is_partial: bool = False
) -> "LocalAnalyzer":
    """Load the checkpoints; the imports take a second, so other commands do without."""
    from afa.device import resolve_device
    from models.checkpoints.cache import CheckpointError
    from pipelines.local import LocalAnalyzer

    profile = profile_of(config)
    options = profile.model_options(profile.embedding, Settings())
    device = resolve_device(options.device)
    excerpt = Excerpt() if is_partial else None
    with told(CardError, CheckpointError):
        return LocalAnalyzer(options.cards(), options.model_dir, device, max_windows, excerpt)


def analyze(
    sources: Annotated[
        list[str], typer.Argument(help="Audio files, or one http(s) URL.", metavar="FILE|URL…")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    with_embedding: Annotated[
        bool, typer.Option("--embedding", help="Include the 768-d embedding.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw waveform, beats, key and attributes to this file.")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Write one JSON record per file to this file.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that analyse files side by side, with --jsonl.")
    ] = 2,
    max_windows: Annotated[
        int, typer.Option(min=0, help="Windows per track for mood and embedding; 0: all.")
    ] = 0,
    tempo_range: Annotated[
        str | None,
        typer.Option(help="BPM between which the tempo is looked for.", metavar="80-160"),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Mood and embedding from 3 x 10 s of each track.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Tell tempo, key, beats, loudness, attributes and mood of audio, on this machine."""
    with told(ValueError):
        within = None if tempo_range is None else TempoRange.parse(tempo_range)
    if jsonl is not None:
        paths = [existing(source) for source in sources]
        write_jsonl(paths, jsonl, jobs, within, (max_windows, config, partial))
        return
    if plot is not None and len(sources) > 1:
        fail("--plot draws one file; give one, or use --jsonl for many")
    analyzer = load_analyzer(max_windows, config, is_partial=partial)
    for source in sources:
        with told(AudioError, UrlError, DecoderUnavailableError), local_file(source) as path:
            features, timings = analyzer.analyze(path, LIMITS, within)
            if plot is not None:
                from afa.plot import draw

                draw(decode(path, LIMITS), features, Path(source).name).savefig(plot)
        shown = to_analysis(features)
        if not with_embedding:
            shown = shown.model_copy(update={"embedding": None, "embedding_model": None})
        if as_json:
            typer.echo(shown.model_dump_json(exclude_none=not with_embedding))
        else:
            console.print(features_table(shown, Path(source).name), soft_wrap=False)
            console.print(
                f"decode {timings.decode_s:.2f} s, spectral {timings.spectral_s:.2f} s, "
                f"mood {timings.mood_s:.2f} s, embedding {timings.embedding_s:.2f} s",
                style="dim",
            )
            if plot is not None:
                console.print(f"plot: {plot}")


@contextmanager
def local_file(source: str) -> Iterator[Path]:
    """Give a path to the audio, fetched first if it is a URL."""
    if not is_url(source):
        yield existing(source)
        return
    settings = Settings()
    guard = UrlOptions(ports=settings.url_ports, networks=settings.url_networks).guard()
    with TemporaryDirectory(prefix="afa-") as folder:
        path = Path(folder) / "audio"
        asyncio.run(AudioUrlFetcher(guard).fetch(source, path, MAX_URL_BYTES))
        yield path


def record_of(path: Path, features: TrackFeatures) -> dict[str, Any]:
    """Give the line of one file: what batch users sort and filter by."""
    wire = to_analysis(features).model_dump(
        exclude={"artist", "title", "embedding", "embedding_model"}
    )
    return (
        {"file": str(path)}
        | wire
        | {
            "duration_s": round(features.duration_s, 3),
            "time_signature_confidence": round(features.time_signature_confidence, 6),
            "true_peak_dbtp": round(features.true_peak_dbtp, 2),
            "loudness_range_lu": round(features.loudness_range_lu, 2),
            "pitch_class": PITCH_CLASSES.index(wire["key"]) if wire["key"] else -1,
        }
    )


def start_worker(max_windows: int, config: Path | None, is_partial: bool) -> None:
    """Load the models once in each process of the pool."""
    import torch

    global _analyzer
    torch.set_num_threads(1)
    _analyzer = load_analyzer(max_windows, config, is_partial=is_partial)


def loaded() -> "LocalAnalyzer":
    """Give what `start_worker` has loaded in this process."""
    if _analyzer is None:
        raise RuntimeError("start_worker has not run")
    return _analyzer


def analyze_one(path: Path, within: TempoRange | None) -> dict[str, Any]:
    """Analyse one file in a pool process; a bad file gives an error record."""
    analyzer = loaded()
    try:
        features, _ = analyzer.analyze(path, LIMITS, within)
    except AudioError as error:
        return {"file": str(path), "error": error.code, "message": str(error)}
    except Exception as error:  # noqa: BLE001  one file must not end the run
        return {"file": str(path), "error": "internal_error", "message": repr(error)}
    return record_of(path, features)


def write_jsonl(
    paths: list[Path],
    output: Path,
    jobs: int,
    within: TempoRange | None,
    loading: tuple[int, Path | None, bool],
) -> None:
    """Analyse files side by side and write a line for each as it is done.

    Args:
        paths: The files.
        output: Where the lines go.
        jobs: Processes.
        within: Where tempi are to lie.
        loading: What `start_worker` takes.
    """
    n_failed = 0
    with (
        ProcessPoolExecutor(
            min(jobs, len(paths)),
            mp_context=get_context("spawn"),
            initializer=start_worker,
            initargs=loading,
        ) as pool,
        output.open("w", encoding="utf-8") as lines,
    ):
        pending = [pool.submit(analyze_one, path, within) for path in paths]
        done = as_completed(pending)
        for future in track(done, description="analysing", total=len(paths), console=console):
            record = future.result()
            n_failed += "error" in record
            lines.write(json.dumps(record) + "\n")
            lines.flush()
    console.print(f"{len(paths) - n_failed} analysed, {n_failed} failed: {output}")
