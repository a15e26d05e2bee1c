"""The clips that the key and the chord network learn from, rendered under a bar."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.progress import Progress

from serve_app.cli.environment import console, fail

if TYPE_CHECKING:
    from pipelines.training.cycle import CycleRun


def render_clips(what: Literal["key", "chords"], plan: "CycleRun", work: Path, jobs: int) -> None:
    """Render the clips of a plan that are not there yet."""
    try:
        from pipelines.training.chords.clips import make_chord_clip
        from pipelines.training.key.clips import make_key_clip
        from pipelines.training.render import render
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: install afa[train]")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("rendering", total=None)
        failed = render(
            make_key_clip if what == "key" else make_chord_clip,
            plan.render,
            work,
            jobs,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    console.print(f"{plan.render.hours:g} h rendered; {failed} clips could not be made")
