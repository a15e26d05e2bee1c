"""`afa train key`: render music with exact keys and train the key network on it."""

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

WEIGHTS = Path("models/weights/afa-key-1.safetensors")
_WORK = Path.home() / ".cache" / "afa" / "training" / "key"


class Part(StrEnum):
    """A part of a run."""

    RENDER = "render"
    FIT = "fit"


def key(
    parts: Annotated[
        list[Part] | None, typer.Argument(help="Parts of the run, in this order; all when none.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The run's description; configs/train_key.yaml if none.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder for packages and clips; kept between runs.")
    ] = _WORK,
    jobs: Annotated[int, typer.Option(min=1, help="Rendering processes.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads of training.")] = 2,
    target: Annotated[Path, typer.Option(help="The exported weights.")] = WEIGHTS,
) -> None:
    """Render music with exact keys, train the key network on it and write its weights.

    Rendering that was stopped goes on where it was; the same description gives the same draws.
    """
    # Before numpy starts its own threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from pipelines.training.cycle import parse_run
    from pipelines.training.plan import PlanError

    with told(PlanError, OSError, yaml.YAMLError):
        content = yaml.safe_load(config.read_text()) if config else load_table("train_key")
        plan = parse_run(content)
        work.mkdir(parents=True, exist_ok=True)
        if not parts or Part.RENDER in parts:
            render_clips("key", plan, work, jobs)
        if not parts or Part.FIT in parts:
            _fit(plan, work, threads, target)


def _fit(plan: "CycleRun", work: Path, threads: int, target: Path) -> None:
    import torch

    from pipelines.training.cycle import split_clips, write
    from pipelines.training.key.clips import KeyClip
    from pipelines.training.key.fit import KeyTrainer, score_clips

    torch.set_num_threads(threads)
    paths = sorted((work / "clips").glob("*.npz"))
    training, validation = split_clips(paths, plan.render.validation_every)
    if not training:
        fail(f"there are no clips in {work / 'clips'}; run `afa train key render` first")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=plan.fit.steps)
        network = KeyTrainer(plan.fit, [KeyClip.load(path) for path in training]).run(
            lambda step, loss: progress.update(
                task, completed=step, description=f"training, loss {loss:.3f}"
            )
        )
    score = score_clips(network, [KeyClip.load(path) for path in validation])
    write(network, target)
    console.print(
        f"{target}: {plan.fit.steps} steps on {len(training)} clips; "
        f"weighted score of {len(validation)} others {score:.3f}"
    )
