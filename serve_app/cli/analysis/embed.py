"""`afa embed`: mood and embedding of many files, one line of JSON each, no tempo or key."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from configs.settings import Settings
from models.checkpoints.cards import CardError
from pipelines.analysis.excerpt import Excerpt, decode_excerpt
from pipelines.analysis.records import EmbeddingResult, MoodResult
from pipelines.audio.decode import DecodeLimits, DecoderUnavailableError, decode
from pipelines.audio.waveform import Waveform
from serve_app.cli.analysis.sources import SOURCES_HELP, audio_files
from serve_app.cli.environment import ConfigOption, profile_of, told
from serve_app.cli.output.each_file import each_file
from serve_app.cli.output.records import json_lines

if TYPE_CHECKING:
    from pipelines.batching.runner import BatchedStep

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)

Described = tuple[MoodResult, EmbeddingResult]


def embed(
    sources: Annotated[list[str], typer.Argument(help=SOURCES_HELP, metavar="SOURCE")],
    whole: Annotated[
        bool, typer.Option("--whole", help="Analyse all of each track, not only 3 x 10 s.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Write attributes, tags and the 768-d embedding of every file to standard output, as JSON.

    Only 3 x 10 s of each track are decoded and analysed. That is several times as fast as the whole
    track, and the results are close to it (`afa bench partial`). Files are read ahead and share
    batches. Each line is written when its file is done, so the order may differ. A file that cannot
    be analysed gets a line with its error and a message, and the exit status is then 1. Ctrl-C
    leaves whole lines only.
    """
    from afa.errors import MachineError
    from models.checkpoints.cache import CheckpointError
    from pipelines.batching.batcher import DeviceFaultError

    files = audio_files(sources)
    paths = [Path(file) for file in files if isinstance(file, str)]
    excerpt = None if whole else Excerpt()
    read = partial(decode, limits=LIMITS)
    if excerpt is not None:
        read = partial(decode_excerpt, limits=LIMITS, excerpt=excerpt)

    def record(described: Described) -> dict[str, Any]:
        return record_of(described, excerpt)

    with (
        told(CardError, CheckpointError, DecoderUnavailableError, DeviceFaultError),
        told(MachineError, OSError),
        each_file(len(files), json_lines(record)) as told_of,
    ):
        for file in files:
            if not isinstance(file, str):
                told_of.absent(file)
        if paths:
            asyncio.run(describe(load(config), paths, read, told_of.done))


def load(config: Path | None) -> "BatchedStep[Described]":
    """Load checkpoints behind batchers, as the deployments do.

    Raises:
        CardError: The file names a checkpoint that is not known or not allowed.
        CheckpointError: A checkpoint is not on this machine, or not what its card says.
        MachineError: There is no such device, it broke, or it has too little memory.
    """
    from afa.device import device_here, loading
    from pipelines.analysis import mood_and_embedding
    from pipelines.batching.runner import BatchedStep
    from serve_app.composition.execution import execution_on

    profile = profile_of(config)
    options = profile.model_options(profile.embedding, Settings())
    device = device_here(options.device)
    execution = execution_on(device, options)
    with loading():
        step = mood_and_embedding.build(
            options.cards(), options.model_dir, device, options.max_windows, execution
        )
    return BatchedStep(step, device, options.batch_windows, max_batch_bytes=options.batch_mib << 20)


async def describe(
    step: "BatchedStep[Described]",
    paths: Sequence[Path],
    read: Callable[[Path], Waveform],
    write: Callable[[Path, Described | Exception], None],
) -> None:
    """Analyse all files in shared batches, and release the step."""
    from pipelines.batching.backfill import backfill

    try:
        await step.compile()
        await backfill(
            paths,
            lambda path: step.prepare(read(path)),
            step.complete,
            write,
            step.wants_more,
        )
    finally:
        step.close()


def record_of(described: Described, excerpt: Excerpt | None) -> dict[str, Any]:
    """Return the line of one file, without its name."""
    from pipelines.analysis.tags.presence import with_presence

    mood, vector = described
    mood = with_presence(mood, vector)
    if excerpt is not None:
        mood = excerpt.mark(mood)
    mood_values = asdict(mood)
    models = mood_values.pop("models") | vector.models
    return {**mood_values, "embedding": vector.vector, "models": models}
