"""`afa train beats`: make the data, train, evaluate and export the beat network."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from serve_app.cli.environment import console, fail, needing, told
from serve_app.cli.training.chords import chords
from serve_app.cli.training.cycle import Target, described, work_folder
from serve_app.cli.training.embedding import embedding
from serve_app.cli.training.key import key
from serve_app.cli.training.landmarks import landmarks

if TYPE_CHECKING:
    from models.rhythm.network import BeatNetwork
    from pipelines.training.plan import Plan

app = typer.Typer(help=r"Train afa's own networks (needs afa\[train]).", no_args_is_help=True)

_WORK = work_folder("beats")
_AUDIO = Path.home() / ".cache" / "afa-evalset"
_WITHOUT_GROOVES = "without MMA-made clips"


class Part(StrEnum):
    """A part of a run."""

    RENDER = "render"
    TRAIN = "train"
    EVALUATE = "evaluate"
    EXPORT = "export"


app.command()(embedding)
app.command()(key)
app.command()(chords)
app.command()(landmarks)


@app.command()
def beats(
    parts: Annotated[
        list[Part] | None,
        typer.Argument(help="Parts of the run, in this order; all if none is named."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Description of the run; configs/train_beats.yaml if not given."),
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder for packages, clips and checkpoints; kept between runs.")
    ] = _WORK,
    jobs: Annotated[int, typer.Option(min=1, help="Rendering processes.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads for training.")] = 2,
    device: Annotated[str, typer.Option(help="Where to train: cpu or cuda.")] = "cpu",
    audio: Annotated[Path, typer.Option(help="The development set's audio.")] = _AUDIO,
    target: Target = None,
) -> None:
    """Render music with exact ground truth, train the beat network on it, evaluate and export it.

    A run that was stopped continues where it was; the same description gives the same draws.
    """
    # Before numpy starts its own threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from afa.errors import MachineError
    from pipelines.training.plan import PlanError, parse_plan

    with told(MachineError, PlanError, OSError):
        plan = parse_plan(described(config, "train_beats"))
        initial = plan.fit.initial
        if initial and not Path(initial).is_file():
            fail(f"fit.initial: there is no file {initial}")
        work.mkdir(parents=True, exist_ok=True)
        for part in Part:
            if parts and part not in parts:
                continue
            if part is Part.RENDER:
                _render(plan, work, jobs)
            elif part is Part.TRAIN:
                _train(plan, work, threads, device)
            elif part is Part.EVALUATE:
                _evaluate(plan, work, audio)
            else:
                _export(plan, work, target or work / "beats.safetensors")


@contextmanager
def _bar(text: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar; the function that is yielded takes (done, total, remark)."""
    columns = (*Progress.get_default_columns()[:2], TaskProgressColumn(), TimeRemainingColumn())
    remarks = TextColumn("{task.fields[remark]}")
    with Progress(*columns, remarks, console=console, transient=True) as progress:
        task = progress.add_task(text, total=None, remark="")

        def tell(done: int, total: int, remark: str = "") -> None:
            progress.update(task, completed=done, total=total, remark=remark)

        yield tell


def _checkpoint(work: Path) -> Path:
    return work / "checkpoint.pt"


def _trained(plan: "Plan", work: Path) -> "BeatNetwork":
    from pipelines.training.export import read_checkpoint

    if not _checkpoint(work).is_file():
        fail(f"there is no {_checkpoint(work)}; run `afa train beats train` first")
    return read_checkpoint(_checkpoint(work), plan.fit)


def _render(plan: "Plan", work: Path, jobs: int) -> None:
    with needing("train"):
        from pipelines.training.clips import make_clip
        from pipelines.training.render import add_modules, render
    with needing("train"), _bar("rendering") as tell:
        failed = render(
            make_clip, plan.render, work, jobs, lambda done, total: tell(done, total, "")
        )
    console.print(f"{plan.render.hours:g} h rendered; {failed} clips could not be made")
    if plan.modules:
        n_clips = add_modules(plan.modules, plan.render.clip_s, work)
        console.print(f"{n_clips} clips of tracker modules")


def _train(plan: "Plan", work: Path, threads: int, device: str) -> None:
    import torch

    from afa.device import device_here
    from pipelines.training.dataset import Sampler, load_clips, split
    from pipelines.training.fit import Trainer, TrainingProgress

    torch.set_num_threads(threads)
    clips = load_clips(work / "clips")
    training, _ = split(clips, plan.render.validation_every, plan.fit.data_fraction)
    if not training.clips:
        fail(f"there are no clips in {work / 'clips'}; run `afa train beats render` first")
    sampler = Sampler(training, plan.fit, plan.fit.shares or plan.render.shares)
    trainer = Trainer(plan.fit, sampler, device_here(device))
    if _checkpoint(work).exists():
        trainer.load(_checkpoint(work))
    with _bar(f"training on {training.hours:.1f} h") as tell:

        def show(reached: TrainingProgress) -> None:
            remark = f"loss: beats {reached.beat_loss:.4f}, downbeats {reached.downbeat_loss:.4f}"
            tell(reached.step, reached.steps, remark)

        trainer.run(_checkpoint(work), show)
    console.print(f"trained {trainer.step} steps on {training.hours:.1f} h")


def _evaluate(plan: "Plan", work: Path, audio: Path) -> None:
    """Score the development set, the validation clips and the held-out sounds."""
    import torch

    from pipelines.training.dataset import load_clips, split
    from pipelines.training.evaluate import as_prediction, clip_truth, hear, predict
    from pipelines.training.render import HELD_OUT

    torch.set_num_threads(1)
    networks = [_trained(plan, work)]
    sets: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    annotations = Path(plan.render.development_set)
    if annotations.is_file():
        truth = json.loads(annotations.read_text())
        files = {name: audio / f"{name}.wav" for name in truth}
        truth = {name: track for name, track in truth.items() if files[name].is_file()}
        found = {}
        with _bar("development set") as tell:
            for i, name in enumerate(truth):
                heard = hear(files[name], work / "development")
                found[name] = as_prediction(predict(networks, heard.bands, heard.chroma))
                tell(i + 1, len(truth), name)
        sets["development set"] = (truth, found)
        rest = {name: track for name, track in truth.items() if not name.startswith("dband_")}
        sets[_WITHOUT_GROOVES] = (rest, found)
    _, validation = split(load_clips(work / "clips"), plan.render.validation_every)
    held_out = [clip for _, clip in load_clips(work / "clips", f"{HELD_OUT}-").values()]
    for title, clips in (("validation", validation.clips), ("held-out sounds", held_out)):
        usable = {str(i): clip for i, clip in enumerate(clips) if len(clip.beats) > 1}
        sets[title] = (
            {name: clip_truth(clip) for name, clip in usable.items()},
            {n: as_prediction(predict(networks, clip.bands)) for n, clip in usable.items()},
        )
    _show_scores(sets, work / "scores.json")


def _show_scores(sets: dict[str, tuple[dict[str, Any], dict[str, Any]]], target: Path) -> None:
    from pipelines.training.metrics import METRICS, score_all, summarise

    metrics = [metric for metric in METRICS if not metric.startswith("key")]
    table = Table("", *metrics, title="mean [95 % interval] (tracks)")
    content = {}
    for title, (truth, found) in sets.items():
        if not truth:
            continue
        summary = summarise(score_all(truth, found))
        content[title] = {metric: asdict(score) for metric, score in summary.items()}
        cells = [
            f"{s.mean:.3f} [{s.low:.2f}, {s.high:.2f}] ({s.n})"
            for s in (summary[metric] for metric in metrics if metric in summary)
        ]
        table.add_row(title, *cells)
    target.write_text(json.dumps(content, indent=1))
    console.print(table, soft_wrap=False)


def _export(plan: "Plan", work: Path, target: Path) -> None:
    from pipelines.training.export import export

    export([_trained(plan, work)], target, {"training": "afa train beats"})
    console.print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")
