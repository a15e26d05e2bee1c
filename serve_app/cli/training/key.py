"""`afa train key`: render music with exact keys and train the key network on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serve_app.cli.environment import console
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

WEIGHTS = Path("models/weights/afa-key-1.safetensors")
_WORK = work_folder("key")


def key(
    parts: Parts = None,
    config: Config = None,
    work: Work = _WORK,
    jobs: Jobs = 2,
    threads: Threads = 2,
    target: Target = WEIGHTS,
) -> None:
    """Render music with exact keys, train the key network on it and write its weights.

    Rendering that was stopped goes on where it was; the same description gives the same draws.
    """

    def fit(plan: "CyclePlan", training: Sequence[Path], validation: Sequence[Path]) -> None:
        from pipelines.training.cycle import write
        from pipelines.training.key.clips import KeyClip
        from pipelines.training.key.fit import KeyTrainer, score_clips

        with training_bar(plan.steps) as tell:
            network = KeyTrainer(plan, [KeyClip.load(path) for path in training]).run(tell)
        score = score_clips(network, [KeyClip.load(path) for path in validation])
        write(network, target)
        console.print(
            f"{target}: {plan.steps} steps on {len(training)} clips; "
            f"weighted score of {len(validation)} others {score:.3f}"
        )

    train("key", parts, config, work, jobs, threads, fit)
