"""`afa train landmarks`: train the evidence network on folders of music."""

import os
from pathlib import Path
from typing import Annotated

import typer

from models.fingerprint.landmarks import MODEL_ID
from serve_app.cli.analysis.sources import SOURCES_HELP
from serve_app.cli.environment import console, fail, told
from serve_app.cli.training.cycle import (
    Config,
    Target,
    Threads,
    described,
    training_bar,
    work_folder,
)
from serve_app.cli.training.music import existing, read_music

_WORK = work_folder("landmarks")


def landmarks(
    sources: Annotated[
        list[str], typer.Argument(callback=existing, help=SOURCES_HELP, metavar="FOLDER")
    ],
    config: Config = None,
    work: Annotated[
        Path, typer.Option(help="Folder for tracks and their landmarks; kept between runs.")
    ] = _WORK,
    threads: Threads = 2,
    target: Target = None,
) -> None:
    """Learn, from music without labels, where a damaged clip hides its track's landmarks.

    Reading that was stopped continues where it was; the same description gives the same draws.
    """
    # Before numpy starts its own threads.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import torch

    from models.checkpoints.stored import SHIPPED_FOLDER
    from models.fingerprint.evidence import WEIGHTS
    from pipelines.fingerprint.make import Fingerprinter
    from pipelines.training.cycle import write
    from pipelines.training.landmarks.draw import Passages
    from pipelines.training.landmarks.fit import KNOWN, LandmarkTrainer, score_tracks
    from pipelines.training.landmarks.plan import parse_landmarks_run
    from pipelines.training.landmarks.tracks import LandmarkTrack, read_track, split_tracks
    from pipelines.training.plan import PlanError

    torch.set_num_threads(threads)
    with told(PlanError, OSError):
        plan = parse_landmarks_run(described(config, "train_landmarks"))
        fingerprinter = Fingerprinter()
        kept = read_music(sources, work / MODEL_ID, lambda file: read_track(file, fingerprinter))
        training, validation = split_tracks(kept, plan.validation_every)
        if not training:
            fail("at least two tracks of music are needed: one to learn from, one to score on")
        learnt, others = (
            Passages([LandmarkTrack.load(path) for path in paths], plan.fit.segment_frames)
            for paths in (training, validation)
        )
        with training_bar(plan.fit.steps) as tell:
            network = LandmarkTrainer(plan.fit, learnt).run(tell)
        weights = target or work / "landmarks.safetensors"
        write(network, weights)
        score = score_tracks(network, others, plan.fit.seed)
        console.print(
            f"{weights}: {plan.fit.steps} steps on {len(learnt)} tracks; of {score.n_passages} "
            f"damaged passages of {len(others)} others, {score.known:.0%} have a support over "
            f"{KNOWN:g}, the median {score.median:.1f}"
        )
        console.print(
            f"They have no card: afa reads {SHIPPED_FOLDER / WEIGHTS} alone. Keep that file, put "
            "these weights in its place and restart afa; no index has to be made again."
        )
