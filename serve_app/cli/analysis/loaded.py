"""The checkpoints in a process of this command, loaded once."""

from pathlib import Path
from typing import TYPE_CHECKING

from configs.settings import Settings
from models.checkpoints.cards import CardError
from pipelines.analysis.excerpt import Excerpt
from pipelines.audio.decode import DecodeLimits
from serve_app.cli.environment import profile_of, told

if TYPE_CHECKING:
    from pipelines.local import LocalAnalyzer

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)

_analyzer: "LocalAnalyzer | None" = None


def load_analyzer(
    max_windows: int, config: Path | None, *, is_partial: bool = False
) -> "LocalAnalyzer":
    """Load the checkpoints; the imports take a second, so other commands do without."""
    from afa.device import resolve_device
    from models.checkpoints.cache import CheckpointError
    from pipelines.batching.batcher import DeviceFaultError
    from pipelines.local import LocalAnalyzer

    profile = profile_of(config)
    options = profile.model_options(profile.embedding, Settings())
    device = resolve_device(options.device)
    excerpt = Excerpt() if is_partial else None
    with told(CardError, CheckpointError, DeviceFaultError):
        return LocalAnalyzer(options.cards(), options.model_dir, device, max_windows, excerpt)


def start_worker(max_windows: int, config: Path | None, is_partial: bool) -> None:
    """Load the models once in each process of a pool."""
    import torch

    global _analyzer
    torch.set_num_threads(1)
    _analyzer = load_analyzer(max_windows, config, is_partial=is_partial)


def loaded() -> "LocalAnalyzer":
    """Give what `start_worker` has loaded in this process."""
    if _analyzer is None:
        raise RuntimeError("start_worker has not run")
    return _analyzer
