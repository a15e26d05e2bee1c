"""`afa train key`: train the key network on rendered music, and on recordings without labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from configs.settings import Settings
from configs.tables import load_table
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
    from pipelines.training.cycle import CyclePlan
    from pipelines.training.key.recordings import HeardRecording

_WORK = work_folder("key")


def key(
    parts: Parts = None,
    config: Config = None,
    work: Work = _WORK,
    jobs: Jobs = 2,
    threads: Threads = 2,
    target: Target = None,
    music: Music = None,
) -> None:
    """Render music with exact keys, train the key network on it and write its weights.

    With --music, three quarters of what it learns from are recordings, with the keys that afa finds
    in them.
    Rendering and reading that were stopped continue where they were; the same description gives the
    same draws.
    """
    weights = target or work / "key.safetensors"

    def fit(plan: "CyclePlan", training: Sequence[Path], validation: Sequence[Path]) -> None:
        from pipelines.training.cycle import write
        from pipelines.training.key.clips import KeyClip
        from pipelines.training.key.fit import KeyTrainer, score_clips

        recordings = _heard(music, work / "heard") if music else []
        clips, others = ([KeyClip.load(path) for path in kept] for kept in (training, validation))
        with training_bar(plan.steps) as tell:
            network = KeyTrainer(plan, clips, recordings).run(tell)
        score = score_clips(network, others)
        write(network, weights)
        console.print(
            f"{weights}: {plan.steps} steps on {len(training)} clips; "
            f"weighted score of {len(others)} others {score:.3f}"
        )

    train("key", parts, config, work, jobs, threads, fit)


def _heard(music: Sequence[str], folder: Path) -> list["HeardRecording"]:
    """Analyse the recordings with this installation's networks, unless that is already done."""
    from models.checkpoints.cards import choose_cards, parse_cards
    from pipelines.training.key.recordings import HeardRecording, KeyEar

    cards = choose_cards(parse_cards(load_table("models")))
    ear = KeyEar(cards, Settings().resolved_model_dir())
    by = "+".join(card.model_id for card in (*cards["key"], *cards["chords"]))
    kept = read_recordings(music, folder / by, ear.read)
    return [HeardRecording.load(path) for path in kept]
