"""The structure of every analysis step, and how to run one without a batcher.

A step is work around batched forwards: `prepare` cuts the windows for each of its models, the
forwards run anywhere and in any batches, and `finish` (CPU) turns the rows into a result. The local
path and the served path differ only in who calls `forward`; since a row of a batch equals the same
window alone, they give the same answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.upload import bring
from pipelines.batching.windows import WindowedModel, Windows, most_windows

R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")

CPU = torch.device("cpu")

Outputs = Mapping[str, Mapping[str, Tensor]]
"""Model id → output name → CPU rows ``[W, …]``, in the order of that model's windows."""


class WindowsOnDemand(Mapping[str, Windows]):
    """Windows of several models, cut on each access and never kept.

    So a long track's overlapping windows are in memory for only one model at a time.
    """

    def __init__(self, cutters: Mapping[str, Callable[[], Windows]]) -> None:
        self._cutters = cutters

    def __getitem__(self, model_id: str) -> Windows:
        return self._cutters[model_id]()

    def __contains__(self, model_id: object) -> bool:
        return model_id in self._cutters  # without cutting

    def __iter__(self) -> Iterator[str]:
        return iter(self._cutters)

    def __len__(self) -> int:
        return len(self._cutters)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One track, ready for the device.

    Attributes:
        windows: Model id → windows ``[W, …, T]`` with W ≥ 1, on the track's device. A missing model
            does not run and is missing from the outputs (for example, none runs on silence).
        context: Whatever the step's own `finish` needs, as the windows may be gone by then; nothing
            else reads it.
    """

    windows: Mapping[str, Windows]
    context: object = None


class Step(Protocol[R_co]):
    """An analysis of a whole track; `prepare` and `finish` are thread-safe and keep no state."""

    @property
    def models(self) -> Sequence[WindowedModel]:
        """The models whose forwards the step needs, each with a distinct ``model_id``."""
        ...

    @property
    def is_mono(self) -> bool:
        """Whether it reads only the mean of a track's channels."""
        ...

    def prepare(self, track: Track) -> Prepared:
        """Resample, set the level and cut the windows, on the track's device.

        Raises:
            AudioError: The audio is unsuitable for this step.
        """
        ...

    def finish(self, prepared: Prepared, outputs: Outputs) -> R_co:
        """Merge the rows of all windows into the result; CPU only."""
        ...


class Both(Generic[A, B]):
    """Two steps as one: a track is copied to the device once, for both.

    A model that both use needs no special case: windows are keyed by its id, so they run once, and
    both steps read the rows.
    """

    def __init__(self, first: Step[A], second: Step[B]) -> None:
        self._first, self._second = first, second

    @property
    def models(self) -> Sequence[WindowedModel]:
        """See `Step`; each model once."""
        both = [*self._first.models, *self._second.models]
        return tuple({model.model_id: model for model in both}.values())

    @property
    def is_mono(self) -> bool:
        """See `Step`."""
        return self._first.is_mono and self._second.is_mono

    def prepare(self, track: Track) -> Prepared:
        """See `Step`; windows of a shared model are the same for both."""
        parts = self._first.prepare(track), self._second.prepare(track)
        cutters = {
            model_id: partial(part.windows.__getitem__, model_id)
            for part in parts
            for model_id in part.windows
        }
        return Prepared(WindowsOnDemand(cutters), tuple(part.context for part in parts))

    def finish(self, prepared: Prepared, outputs: Outputs) -> tuple[A, B]:
        """See `Step`."""
        first, second = cast("tuple[object, object]", prepared.context)
        return (
            self._first.finish(Prepared({}, first), outputs),
            self._second.finish(Prepared({}, second), outputs),
        )


class Finisher(Protocol[R_co]):
    """The `finish` of a step without its models, which can be sent to another process."""

    def __call__(self, context: object, outputs: Outputs) -> R_co:
        """Make the result from a track's context and its rows, of which silence has none."""
        ...


@runtime_checkable
class HeavyStep(Protocol[R_co]):
    """A step whose `finish` takes a tenth of a second of processor time or more."""

    @property
    def finisher(self) -> Finisher[R_co]:
        """Does what `finish` does."""
        ...


def run_local(
    step: Step[R_co], waveform: Waveform, batch_windows: int = 0, device: torch.device = CPU
) -> R_co:
    """Run a step in this thread, without a batcher.

    Args:
        step: What to compute.
        waveform: The decoded track.
        batch_windows: Maximum windows in one forward; 0 for `most_windows`.
        device: Where its models are.
    """
    return run_on(step, bring(waveform, device, is_mono=step.is_mono), batch_windows)


def run_on(step: Step[R_co], track: Track, batch_windows: int = 0) -> R_co:
    """Run a step in this thread on a track that is on its models' device (see `bring`)."""
    most = batch_windows or most_windows(track.samples.device)
    with torch.inference_mode():
        prepared = step.prepare(track)
        outputs = {
            model.model_id: forward_windows(model, prepared.windows[model.model_id], most)
            for model in step.models
            if model.model_id in prepared.windows
        }
        prepared = Prepared({}, prepared.context)  # the windows are no longer needed
    return step.finish(prepared, outputs)


def forward_windows(
    model: WindowedModel, windows: Windows, batch_windows: int
) -> dict[str, Tensor]:
    """Run a model over windows ``[W, …, T]`` in batches; return rows ``[W, …]`` on the CPU."""
    with torch.inference_mode():
        batches = []
        for start in range(0, len(windows), batch_windows):
            outputs = model.forward(windows[start : start + batch_windows])
            batches.append({name: rows.cpu() for name, rows in outputs.items()})
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
