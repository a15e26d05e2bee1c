"""`afa train chords`: render music with exact chords and train the chord network on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serve_app.cli.environment import console
from serve_app.cli.training import key
from serve_app.cli.training.cycle import (
    Config,
    Jobs,
    Parts,
    Target,
    Threads,
    Work,
    train,
    training_bar,
    work_folder,
)

if TYPE_CHECKING:
    from pipelines.training.cycle import CyclePlan

WEIGHTS = Path("models/weights/afa-chords-1.safetensors")
_WORK = work_folder("chords")


def chords(
    parts: Parts = None,
    config: Config = None,
    work: Work = _WORK,
    jobs: Jobs = 2,
    threads: Threads = 2,
    target: Target = WEIGHTS,
) -> None:
    """Render music with exact chords, train the chord network on it and write its weights.

    Rendering that was stopped goes on where it was; the same description gives the same draws.
    """

    def fit(plan: "CyclePlan", training: Sequence[Path], validation: Sequence[Path]) -> None:
        from safetensors.torch import load_file

        from pipelines.training.chords.clips import ChordClip
        from pipelines.training.chords.fit import ChordTrainer, score_clips
        from pipelines.training.cycle import write

        clips, trunk = [ChordClip.load(path) for path in training], load_file(key.WEIGHTS)
        with training_bar(plan.steps) as tell:
            network = ChordTrainer(plan, clips, trunk).run(tell)
        score = score_clips(network, [ChordClip.load(path) for path in validation])
        write(network, target)
        console.print(
            f"{target}: {plan.steps} steps on {len(training)} clips; "
            f"of {len(validation)} others {score:.3f} of the frames are right"
        )

    train("chords", parts, config, work, jobs, threads, fit)
