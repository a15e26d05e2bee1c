"""The shape that every analysis step has, and how one runs without a batcher.

A step is work around batched forwards: `prepare` cuts the windows of each of its models,
the forwards run wherever and in whatever batches, `finish` (CPU) turns the rows into a result. The
local path and the served path differ only in who calls `forward`; since a row of a batch equals the
same window alone, they give the same answer.
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
    """Windows of several models, cut whenever they are asked for and kept by nobody.

    So a long track's overlapping windows are in memory for one model at a time.
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
        windows: Model id → windows ``[W, …, T]`` with W ≥ 1, where the track lies. A model that is
            absent is not run and absent from the outputs (for example, nothing is run on silence).
        context: Whatever the step's own `finish` wants to know, for which the windows may be gone;
            nobody else looks inside.
    """

    windows: Mapping[str, Windows]
    context: object = None


class Step(Protocol[R_co]):
    """An analysis of a whole track; `prepare` and `finish` are thread-safe and keep no state."""

    @property
    def models(self) -> Sequence[WindowedModel]:
        """The models whose forwards the step needs, each with its own ``model_id``."""
        ...

    @property
    def is_mono(self) -> bool:
        """Whether the mean of a track's channels is all that it reads."""
        ...

    def prepare(self, track: Track) -> Prepared:
        """Resample, set the level and cut the windows, on the device where the track lies.

        Raises:
            AudioError: The audio is not fit for this step.
        """
        ...

    def finish(self, prepared: Prepared, outputs: Outputs) -> R_co:
        """Merge the rows of all windows into the result; CPU only."""
        ...


class Both(Generic[A, B]):
    """Two steps as one: a track is brought to the device once, for both.

    A model of both needs no special case: its windows go by its id, so they are run once, and both
    steps read the rows.
    """

    def __init__(self, first: Step[A], second: Step[B]) -> None:
        self._first, self._second = first, second

    @property
    def models(self) -> Sequence[WindowedModel]:
        """See `Step`; every model once."""
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
    """The `finish` of a step without its models: it can be sent to another process."""

    def __call__(self, context: object, outputs: Outputs) -> R_co:
        """Make the result of what `prepare` noted of a track, and its rows; none of silence."""
        ...


@runtime_checkable
class HeavyStep(Protocol[R_co]):
    """A step whose `finish` takes a tenth of a second of a processor and more."""

    @property
    def finisher(self) -> Finisher[R_co]:
        """What `finish` does."""
        ...


def run_local(
    step: Step[R_co], waveform: Waveform, batch_windows: int = 0, device: torch.device = CPU
) -> R_co:
    """Run a step in this thread, without a batcher.

    Args:
        step: What to compute.
        waveform: The decoded track.
        batch_windows: At most so many windows in one forward; 0 as `most_windows`.
        device: Where its models live.
    """
    return run_on(step, bring(waveform, device, is_mono=step.is_mono), batch_windows)


def run_on(step: Step[R_co], track: Track, batch_windows: int = 0) -> R_co:
    """Run a step in this thread on a track that lies with its models (see `bring`)."""
    most = batch_windows or most_windows(track.samples.device)
    with torch.inference_mode():
        prepared = step.prepare(track)
        outputs = {
            model.model_id: forward_windows(model, prepared.windows[model.model_id], most)
            for model in step.models
            if model.model_id in prepared.windows
        }
        prepared = Prepared({}, prepared.context)  # the windows have been heard
    return step.finish(prepared, outputs)


def forward_windows(
    model: WindowedModel, windows: Windows, batch_windows: int
) -> dict[str, Tensor]:
    """Run a model over windows ``[W, …, T]`` in batches and give the rows ``[W, …]`` on the CPU."""
    with torch.inference_mode():
        batches = []
        for start in range(0, len(windows), batch_windows):
            outputs = model.forward(windows[start : start + batch_windows])
            batches.append({name: rows.cpu() for name, rows in outputs.items()})
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
