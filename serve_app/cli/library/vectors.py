"""`afa models embed`: vectors of another model, in addition to the library's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from configs.settings import Settings
from models.checkpoints.cards import CardError, choose_cards
from serve_app.cli.environment import console, errors, fail, told
from serve_app.cli.library.opened import existing
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.edit import Edit, Embedded, kept, where_there
from serve_app.services.export.tracks import tracks_of

if TYPE_CHECKING:
    import torch

    from pipelines.analysis.embedding import EmbeddingStep

WRITTEN_TOGETHER = 64


def embed(
    model_id: Annotated[str, typer.Argument(help="An embedding of `afa models list`, pulled.")],
) -> None:
    """Add the vectors of another embedding to the library's tracks, next to those they have.

    Nothing else about the tracks changes. `GET /v1/similar/{id}?model=ID` compares the new vectors,
    and so does `?text=` if the model reads text. Only tracks without such a vector are analysed,
    from their files on this machine, so the same command continues after a stop. A running service
    uses the vectors at once.
    """
    from afa.device import device_here
    from afa.errors import AudioError, MachineError
    from afa.streaming import stream
    from models.checkpoints.cache import CheckpointError
    from pipelines.batching.batcher import DeviceFaultError

    settings = Settings()
    library = existing(settings, LocalFiles(settings.data_dir.absolute()))
    todo, n_before, n_failed = dict[Path, str](), 0, 0
    for one in tracks_of(library):
        if model_id in one.track.embeddings:
            n_before += 1
        else:
            todo[one.path] = one.track.track_id
    if not todo and not n_before:
        fail("the library has no tracks with files on this machine; `afa scan FOLDER` adds them")
    waiting: list[Edit] = []
    with (
        told(CardError, CheckpointError, DeviceFaultError, MachineError),
        told(ServiceUnavailableError, OSError),
    ):
        device = device_here(settings.device)
        step = step_of(model_id, settings, device)
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
            task = bar.add_task("embedding", total=len(todo))
            try:
                for path, outcome in stream(step, device, todo):
                    bar.advance(task)
                    if isinstance(outcome, AudioError):
                        n_failed += 1
                        errors.print(str(outcome), highlight=False)
                        continue
                    vector = outcome[1].vector
                    if any(vector):  # silence has no embedding
                        made = Embedded(model_id, vector)
                        waiting.append(Edit(todo[path], where_there(kept), embedded=made))
                    if len(waiting) == WRITTEN_TOGETHER:
                        library.write(waiting)
                        waiting.clear()
            finally:
                library.write(waiting)
    n_embedded = len(todo) - n_failed
    console.print(f"{n_embedded} embedded, {n_before} were so already, {n_failed} failed")
    if n_failed:
        raise typer.Exit(1)


def step_of(model_id: str, settings: Settings, device: "torch.device") -> "EmbeddingStep":
    """Load one embedding model and try it.

    Raises:
        CardError: It is not known, not allowed, or not an embedding.
        CheckpointError: It is not on this machine, or not what its card says.
        DeviceFaultError: The device is broken, or has too little memory.
        MachineError: Likewise.
    """
    from afa.cards import known_cards
    from afa.device import loading
    from pipelines.analysis.embedding import build
    from pipelines.analysis.networks.checkpoint_model import try_all

    model_dir = settings.resolved_model_dir()
    chosen = {"embedding": model_id}
    cards = choose_cards(known_cards(model_dir), settings.model_licences, chosen)
    with loading():
        step = build({"embedding": cards["embedding"]}, model_dir, device)
        try_all(step.models)
    return step
