"""Render the clips of a plan with several processes, except those that exist.

A clip is a function of its kind, its seed and the sounds, so a stopped run resumes where it was and
ends as if it had never stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from pipelines.audio.worker_pool import ended_by_errors, new_pool, without_ctrl_c
from pipelines.training.assets import fetch_packages
from pipelines.training.chords.clips import ChordClip
from pipelines.training.clips import Clip, Generator
from pipelines.training.key.clips import KeyClip
from pipelines.training.modules import module_clips
from pipelines.training.music.bands import band
from pipelines.training.music.classical import classical
from pipelines.training.music.corpus import CorpusSource
from pipelines.training.music.electronic import electronic
from pipelines.training.music.grooves import GrooveSource
from pipelines.training.music.score import UnusableError
from pipelines.training.plan import MODULES, PlanError, RenderPlan, below
from pipelines.training.sound.mix import Instruments

HELD_OUT = "held_out"
_HELD_OUT_SEED = 10_000_000
_MODULE_SEED = 20_000_000

Maker = Callable[
    [str, int, Mapping[str, Generator], Instruments, float], Clip | KeyClip | ChordClip
]
"""Makes a clip from a kind, a seed, generators, instruments and a duration in seconds."""


@dataclass(frozen=True, slots=True)
class Task:
    """A clip to render."""

    kind: str
    seed: int
    is_held_out: bool
    path: Path


def list_tasks(plan: RenderPlan, folder: Path) -> list[Task]:
    """List all clips of a plan; the first n are the same however many hours it has."""
    kinds, weights = list(plan.shares), list(plan.shares.values())
    tasks = []
    for i in range(plan.n_clips + plan.held_out_clips):
        is_held_out = i >= plan.n_clips
        seed = plan.seed + (_HELD_OUT_SEED + i - plan.n_clips if is_held_out else i)
        kind = Random(seed).choices(kinds, weights)[0]  # noqa: S311
        name = f"{HELD_OUT}-{kind}" if is_held_out else kind
        tasks.append(Task(kind, seed, is_held_out, folder / f"{name}_{seed}.npz"))
    return tasks


def render(
    make: Maker,
    plan: RenderPlan,
    folder: Path,
    n_jobs: int,
    told: Callable[[int, int], None],
) -> int:
    """Render the missing clips.

    Args:
        make: `pipelines.training.clips.make_clip` or its counterpart for keys or chords.
        plan: The data.
        folder: Work folder; clips go below ``clips``, packages below ``packages``.
        n_jobs: Processes.
        told: Called with (existing clips, all clips).

    Returns:
        Number of clips that could not be made, as their seeds gave nothing usable.

    Raises:
        PlanError: The plan's folder has no drum kits.
    """
    clips = folder / "clips"
    clips.mkdir(parents=True, exist_ok=True)
    tasks = list_tasks(plan, clips)
    root = fetch_packages(plan.packages, folder / "packages")
    if not (root / plan.kits).is_dir():
        raise PlanError(f"render.kits: no package of render.packages has a folder {plan.kits}")
    missing = [task for task in tasks if not task.path.exists()]
    done = len(tasks) - len(missing)
    failed = 0
    told(done, len(tasks))
    with ended_by_errors(new_pool(n_jobs, _prepare, make, plan, root, folder)) as pool:
        with without_ctrl_c():
            futures = [pool.submit(_make, task) for task in missing]
        for future in as_completed(futures):
            failed += not future.result()
            done += 1
            told(done, len(tasks))
    return failed


def add_modules(packages: Sequence[str], clip_s: float, folder: Path) -> int:
    """Cut the tracker modules of Debian packages into clips next to the rendered ones.

    Returns:
        Number of clips from modules.

    Raises:
        OSError: libopenmpt is not installed.
    """
    n_clips = 0
    for package in packages:
        root = fetch_packages([package], folder / "packages" / package)
        for clip in module_clips(root, clip_s):
            n_clips += 1
            clip.save(folder / "clips" / f"{MODULES}_{_MODULE_SEED + n_clips}.npz")
    return n_clips


def generators_of(plan: RenderPlan, root: Path, folder: Path) -> dict[str, Generator]:
    """Return the generators of each kind of music.

    Args:
        plan: Names the sources to leave out.
        root: Where the plan's packages are unpacked.
        folder: Work folder.
    """
    return {
        "electronic": electronic,
        "band": band,
        "classical": classical,
        "groove": GrooveSource(root, folder / "scratch", plan.development_set),
        "corpus": CorpusSource(folder / "corpus", plan.development_set),
    }


def held_out_instruments(plan: RenderPlan, root: Path) -> Instruments:
    """Return the sounds that the plan leaves out of training."""
    fonts = [root / name for name in plan.held_out_fonts]
    return Instruments(fonts, fonts, root / plan.kits, plan.held_out_kits, has_synthesis=False)


class _Studio:
    """What a rendering process holds: generators and instruments."""

    def __init__(self, make: Maker, plan: RenderPlan, root: Path, folder: Path) -> None:
        self.make = make
        self.duration_s = plan.clip_s
        self.generators = generators_of(plan, root, folder)
        kits = root / plan.kits
        names = sorted(path.name for path in kits.iterdir())
        self.training = Instruments(
            below(root, plan.fonts),
            below(root, plan.drum_fonts),
            kits,
            [name for name in names if name not in plan.held_out_kits],
        )
        self.held_out = held_out_instruments(plan, root)


_studios: list[_Studio] = []


def _prepare(make: Maker, plan: RenderPlan, root: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    _studios[:] = [_Studio(make, plan, root, folder)]


def _make(task: Task) -> bool:
    studio = _studios[0]
    instruments = studio.held_out if task.is_held_out else studio.training
    try:
        clip = studio.make(task.kind, task.seed, studio.generators, instruments, studio.duration_s)
    except UnusableError:
        return False
    clip.save(task.path)
    return True
