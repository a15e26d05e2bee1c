"""`afa train chords`: render music with exact chords and train the chord network on it."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.progress import Progress

from configs.tables import load_table
from serve_app.cli.environment import console, fail, told
from serve_app.cli.training.rendering import render_clips

if TYPE_CHECKING:
    from pipelines.training.cycle import CycleRun

WEIGHTS = Path("models/weights/afa-chords-1.safetensors")
_WORK = Path.home() / ".cache" / "afa" / "training" / "chords"


class Part(StrEnum):
    """A part of a run."""

    RENDER = "render"
    FIT = "fit"


def chords(
    parts: Annotated[
        list[Part] | None, typer.Argument(help="Parts of the run, in this order; all when none.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The run's description; configs/train_chords.yaml if none.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder for packages and clips; kept between runs.")
    ] = _WORK,
    jobs: Annotated[int, typer.Option(min=1, help="Rendering processes.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads of training.")] = 2,
    target: Annotated[Path, typer.Option(help="The exported weights.")] = WEIGHTS,
) -> None:
    """Render music with exact chords, train the chord network on it and write its weights.

    Rendering that was stopped goes on where it was; the same description gives the same draws.
    """
    # Before numpy starts its own threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from pipelines.training.cycle import parse_run
    from pipelines.training.plan import PlanError

    with told(PlanError, OSError, yaml.YAMLError):
        content = yaml.safe_load(config.read_text()) if config else load_table("train_chords")
        plan = parse_run(content)
        work.mkdir(parents=True, exist_ok=True)
        if not parts or Part.RENDER in parts:
            render_clips("chords", plan, work, jobs)
        if not parts or Part.FIT in parts:
            _fit(plan, work, threads, target)


def _fit(plan: "CycleRun", work: Path, threads: int, target: Path) -> None:
    import torch
    from safetensors.torch import load_file

    from pipelines.training.chords.clips import ChordClip
    from pipelines.training.chords.fit import ChordTrainer, score_clips
    from pipelines.training.cycle import split_clips, write
    from serve_app.cli.training import key

    torch.set_num_threads(threads)
    paths = sorted((work / "clips").glob("*.npz"))
    training, validation = split_clips(paths, plan.render.validation_every)
    if not training:
        fail(f"there are no clips in {work / 'clips'}; run `afa train chords render` first")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=plan.fit.steps)
        network = ChordTrainer(
            plan.fit, [ChordClip.load(path) for path in training], load_file(key.WEIGHTS)
        ).run(
            lambda step, loss: progress.update(
                task, completed=step, description=f"training, loss {loss:.3f}"
            )
        )
    score = score_clips(network, [ChordClip.load(path) for path in validation])
    write(network, target)
    console.print(
        f"{target}: {plan.fit.steps} steps on {len(training)} clips; "
        f"of {len(validation)} others {score:.3f} of the frames are right"
    )
