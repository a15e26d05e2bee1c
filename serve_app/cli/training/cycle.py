"""What the commands of `afa train` share: options, rendering, and training in memory."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import yaml
from rich.progress import Progress

from configs.tables import load_table
from serve_app.cli.environment import console, fail, needing, replaceable, told
from serve_app.cli.training.music import with_audio

if TYPE_CHECKING:
    from pipelines.training.cycle import CyclePlan, CycleRun

Network = Literal["key", "chords"]
Fit = Callable[["CyclePlan", Sequence[Path], Sequence[Path]], None]
"""Trains on the first clips, and scores on the second."""


class Part(StrEnum):
    """A part of a run."""

    RENDER = "render"
    FIT = "fit"


Parts = Annotated[
    list[Part] | None, typer.Argument(help="Parts of the run, in this order; all if none is named.")
]
Config = Annotated[
    Path | None, typer.Option(help="Description of the run; configs/train_….yaml if not given.")
]
Work = Annotated[Path, typer.Option(help="Folder for packages and clips; kept between runs.")]
Jobs = Annotated[int, typer.Option(min=1, help="Rendering processes.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads for training.")]
Music = Annotated[
    list[str] | None,
    typer.Option(
        callback=with_audio, help="Folder of recordings to learn from as well; may be repeated."
    ),
]


def in_a_folder(target: Path | None) -> Path | None:
    """Refuse a file for weights that cannot be written, before any work; make its folder."""
    if target is not None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"cannot write {target}: {error.strerror}")
    return replaceable(target)


Target = Annotated[
    Path | None,
    typer.Option(
        callback=in_a_folder, help="File for the exported weights; in the work folder if not given."
    ),
]


def described(config: Path | None, table: str) -> Any:
    """Read the run's description, or afa's own if none is given."""
    if config is None:
        return load_table(table)
    with told(OSError, ValueError, yaml.YAMLError):
        return yaml.safe_load(config.read_text(encoding="utf-8"))


def work_folder(network: str) -> Path:
    """Return the default folder for a network's clips and weights."""
    return Path.home() / ".cache" / "afa" / "training" / network


def train(
    network: Network,
    parts: Sequence[Part] | None,
    config: Path | None,
    work: Path,
    jobs: int,
    threads: int,
    fit: Fit,
) -> None:
    """Run the requested parts; a rendering that was stopped continues where it was."""
    # Before numpy starts its own threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from pipelines.training.cycle import parse_run, split_clips
    from pipelines.training.plan import PlanError

    with told(PlanError, OSError):
        plan = parse_run(described(config, f"train_{network}"))
        work.mkdir(parents=True, exist_ok=True)
        if not parts or Part.RENDER in parts:
            _render(network, plan, work, jobs)
        if not parts or Part.FIT in parts:
            paths = sorted((work / "clips").glob("*.npz"))
            training, validation = split_clips(paths, plan.render.validation_every)
            if not training:
                fail(
                    f"there are no clips in {work / 'clips'}; "
                    f"run `afa train {network} render` first"
                )
            import torch

            torch.set_num_threads(threads)
            with needing("train"):
                fit(plan.fit, training, validation)


@contextmanager
def training_bar(steps: int) -> Iterator[Callable[[int, float], None]]:
    """Show a bar; the function that is yielded takes each step and its loss."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=steps)
        yield lambda step, loss: progress.update(
            task, completed=step, description=f"training, loss {loss:.3f}"
        )


def _render(network: Network, plan: "CycleRun", work: Path, jobs: int) -> None:
    with needing("train"):
        from pipelines.training.chords.clips import make_chord_clip
        from pipelines.training.key.clips import make_key_clip
        from pipelines.training.render import render
    with needing("train"), Progress(console=console, transient=True) as progress:
        task = progress.add_task("rendering", total=None)
        failed = render(
            make_key_clip if network == "key" else make_chord_clip,
            plan.render,
            work,
            jobs,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    console.print(f"{plan.render.hours:g} h rendered; {failed} clips could not be made")
