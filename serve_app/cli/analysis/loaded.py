"""Loads the checkpoints once in each process of this command."""

from pathlib import Path
from typing import TYPE_CHECKING

from afa.errors import MachineError
from configs.settings import Settings
from models.checkpoints.cards import CardError
from pipelines.analysis.excerpt import Excerpt
from pipelines.audio.decode import DecodeLimits
from serve_app.cli.environment import profile_of, told

if TYPE_CHECKING:
    from pipelines.local import LocalAnalyzer

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)


class LoadingError(RuntimeError):
    """A worker cannot load the checkpoints, nor could any other; the message says why."""


_analyzer: "LocalAnalyzer | LoadingError | None" = None


def load_analyzer(
    max_windows: int, config: Path | None, *, is_partial: bool = False
) -> "LocalAnalyzer":
    """Load the checkpoints, or say why not."""
    from models.checkpoints.cache import CheckpointError
    from pipelines.batching.batcher import DeviceFaultError

    with told(CardError, CheckpointError, DeviceFaultError, MachineError):
        return _load(max_windows, config, is_partial=is_partial)


def _load(max_windows: int, config: Path | None, *, is_partial: bool) -> "LocalAnalyzer":
    # These imports take a second, so commands that analyse nothing avoid them.
    from afa.device import device_here, loading
    from pipelines.local import LocalAnalyzer

    profile = profile_of(config)
    options = profile.model_options(profile.embedding, Settings())
    device = device_here(options.device)
    excerpt = Excerpt() if is_partial else None
    with loading():
        return LocalAnalyzer(options.cards(), options.model_dir, device, max_windows, excerpt)


def start_worker(max_windows: int, config: Path | None, is_partial: bool) -> None:
    """Load the models once in each process of a pool; `loaded` raises if that failed.

    An error in an initializer would end its process, and appear only in its log.
    """
    global _analyzer
    try:
        import torch

        torch.set_num_threads(1)
        _analyzer = _load(max_windows, config, is_partial=is_partial)
    except Exception as error:  # noqa: BLE001 - whatever it is, it would fail each file
        _analyzer = LoadingError(str(error) or type(error).__name__)


def loaded() -> "LocalAnalyzer":
    """Return what `start_worker` has loaded in this process.

    Raises:
        LoadingError: It could not.
    """
    if isinstance(_analyzer, LoadingError):
        raise _analyzer
    if _analyzer is None:
        raise RuntimeError("start_worker has not run")
    return _analyzer
