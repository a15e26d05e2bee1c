"""`afa train embedding`: fetch and analyse music, and learn the projection of the embedding."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from afa.cards import usable_cards
from configs.settings import Settings
from models.checkpoints.cards import ModelCard
from serve_app.cli.environment import console, fail, told
from serve_app.cli.training.cycle import Target, described, work_folder

if TYPE_CHECKING:
    from pipelines.training.embedding.plan import EmbeddingPlan

MODEL = "afa-embed-1"
_WORK = work_folder("embedding")
_WINDOWS = 2  # per stretch and network


class Part(StrEnum):
    """A part of a run."""

    FETCH = "fetch"
    HEAR = "hear"
    FIT = "fit"


def embedding(
    parts: Annotated[
        list[Part] | None,
        typer.Argument(help="Parts of the run, in this order; all if none is named."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Description of the run; configs/train_embedding.yaml if not given."),
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder for packages and evidence; kept between runs.")
    ] = _WORK,
    threads: Annotated[int, typer.Option(min=1, help="Threads for the networks.")] = 2,
    target: Target = None,
) -> None:
    """Learn the embedding's projection from music without labels.

    A run that was stopped continues where it was; the same description gives the same draws.
    """
    # Before numpy starts its own threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from pipelines.training.embedding.plan import parse_embedding_plan
    from pipelines.training.plan import PlanError

    with told(PlanError, OSError):
        plan = parse_embedding_plan(described(config, "train_embedding"))
        card = usable_cards(Settings().resolved_model_dir())[MODEL]
        for part in parts or Part:
            if part is Part.FETCH:
                _fetch(plan, work)
            elif part is Part.HEAR:
                _hear(plan, card, work, threads)
            else:
                _fit(plan, card, work, target or work / "embedding.safetensors")


def _fetch(plan: "EmbeddingPlan", work: Path) -> None:
    from pipelines.training.assets import fetch_packages

    with Progress(console=console, transient=True) as progress:
        for package in progress.track(plan.packages, description="fetching"):
            fetch_packages([package], work / "packages" / package)


def _hear(plan: "EmbeddingPlan", card: ModelCard, work: Path, threads: int) -> None:
    import torch

    from models.checkpoints.cache import CheckpointError, pull
    from pipelines.analysis.embedding import EmbeddingStep, load_trunks
    from pipelines.training.assets import is_fetched
    from pipelines.training.embedding.hear import Track, hear_package, tracks_of

    for package in plan.packages:
        if not is_fetched(package, work / "packages" / package):
            fail(f"{package} is not in {work / 'packages'}; run `afa train embedding fetch` first")
    torch.set_num_threads(threads)
    model_dir = Settings().resolved_model_dir()
    with told(CheckpointError):
        for of_network in card.parts:
            pull(of_network, model_dir)
        trunks = load_trunks(card.parts, model_dir, torch.device("cpu"), max_windows=_WINDOWS)
    folder = work / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    with console.status("hearing") as status:

        def tell(track: Track) -> None:
            status.update(f"{track.package}: {track.path.name}")

        for package in plan.packages:
            tracks = tracks_of(package, work / "packages" / package, plan.seed)
            hear_package(tracks, EmbeddingStep(MODEL, trunks), plan, folder, tell)


def _fit(plan: "EmbeddingPlan", card: ModelCard, work: Path, target: Path) -> None:
    import numpy as np

    from pipelines.training.embedding.fit import export, fit
    from pipelines.training.embedding.hear import blocks_of, load_evidence

    heard = load_evidence(work / "evidence")
    if not heard:
        fail("nothing was heard; run `afa train embedding fetch hear` first")
    blocks = blocks_of(card.parts, Settings().resolved_model_dir())
    tensors = fit(np.stack(list(heard.values())), blocks, plan.ridge)
    export(tensors, target, {"training": "afa train embedding", "tracks": str(len(heard))})
    console.print(f"{target}: {len(heard)} tracks, {target.stat().st_size / 1e6:.1f} MB")
