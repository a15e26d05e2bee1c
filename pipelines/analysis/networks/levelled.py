"""The windows of a whole track for networks that hear every track at one loudness."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from pipelines.analysis.networks.checkpoint_model import CheckpointModel
from pipelines.audio.gain import audible
from pipelines.audio.track import Track
from pipelines.batching.steps import Prepared, WindowsOnDemand


def levelled_windows(track: Track, models: Sequence[CheckpointModel], measured_at: int) -> Prepared:
    """Resample, set the level and cut the windows; no network runs on silence.

    Args:
        track: The track.
        models: The networks, of any sample rates.
        measured_at: Hz at which the loudness is measured.

    Returns:
        The windows, with the gain as context; neither if the track is silent.
    """
    levelled = track.levelled_at(measured_at)
    if levelled is None:
        return Prepared({})
    samples, gain = levelled

    def cut(model: CheckpointModel) -> Tensor:
        rate = model.spec.sample_rate
        at_rate = samples if rate == measured_at else track.mono_at(rate).mul_(gain)
        return audible(model.cut(at_rate), gain)

    return Prepared(
        WindowsOnDemand({model.model_id: partial(cut, model) for model in models}), context=gain
    )
