"""`afa embed`: mood and embedding of many files, a line of JSON each, without tempo and key."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from configs.settings import Settings
from pipelines.audio import AudioError
from pipelines.decode import DecodeLimits
from pipelines.excerpt import Excerpt
from serve_app.cli.environment import chosen_cards, console, existing, told, torch_device

if TYPE_CHECKING:
    from pipelines.local import MoodAnalyzer

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)


def load_analyzer(*, is_whole: bool) -> "MoodAnalyzer":
    """Load the default checkpoints."""
    from models.checkpoints import CheckpointError
    from pipelines.local import MoodAnalyzer

    settings = Settings()
    with told(CheckpointError):
        return MoodAnalyzer(
            chosen_cards(settings),
            settings.resolved_model_dir(),
            torch_device(settings),
            None if is_whole else Excerpt(),
        )


def embed(
    files: Annotated[list[str], typer.Argument(help="Audio files.", metavar="FILE…")],
    whole: Annotated[
        bool, typer.Option("--whole", help="Hear all of each track, not 3 x 10 s.")
    ] = False,
) -> None:
    """Write attributes, tags and the 768-d embedding of every file to standard output, as JSON.

    Only 3 x 10 s of each track are decoded and heard: several times as fast as the whole, and close
    to it (`afa bench partial`). A file that cannot be analysed gives a line with its error.
    """
    paths = [existing(file) for file in files]
    analyzer = load_analyzer(is_whole=whole)
    n_failed = 0
    for path in paths:
        record = record_of(analyzer, path)
        n_failed += "error" in record
        typer.echo(json.dumps(record))
    if n_failed:
        console.print(f"{n_failed} of {len(paths)} files failed")


def record_of(analyzer: "MoodAnalyzer", path: Path) -> dict[str, Any]:
    """Give the line of one file."""
    try:
        mood, vector = analyzer.describe(path, LIMITS)
    except AudioError as error:
        return {"file": str(path), "error": error.code, "message": str(error)}
    mood_values = asdict(mood)
    models = mood_values.pop("models") | vector.models
    return {"file": str(path), **mood_values, "embedding": vector.vector, "models": models}
