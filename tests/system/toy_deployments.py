"""Model deployments like the real ones, with networks that only wait or break."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from ray import serve
from torch import Tensor

from pipelines.analysis.records import EmbeddingResult, MoodResult, SpectralResult
from pipelines.audio.track import Track
from pipelines.batching.steps import Outputs, Prepared, Step
from pipelines.batching.windows import WindowSpec
from serve_app.checkpoints.exchange import Cards
from serve_app.composition.options import ModelOptions, StoreOptions
from serve_app.deployments.model_server import ModelServer

WINDOW = 4_410
N_WINDOWS = 20


class ToyModel:
    """Sums its windows, slowly; breaks when the folder has a trap.

    Args:
        trap: A file that holds a number of forwards. The replica that takes the file first breaks
            after that many.
        window_s: Seconds of work per window.
    """

    model_id = "toy"
    spec = WindowSpec(44_100, WINDOW, WINDOW)

    def __init__(self, trap: Path, window_s: float) -> None:
        self._trap = trap
        self._window_s = window_s
        self._forwards_left: int | None = None

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        time.sleep(self._window_s * len(windows))
        if self._forwards_left is None and self._trap.exists():
            with contextlib.suppress(FileNotFoundError):  # the other replica was faster
                taken = self._trap.rename(self._trap.with_name(f"taken-{time.time_ns()}"))
                self._forwards_left = int(taken.read_text())
        if self._forwards_left is not None:
            self._forwards_left -= 1
            if self._forwards_left < 0:
                raise torch.AcceleratorError("CUDA error: unspecified launch failure")
        return {"sum": windows.sum(dim=-1)}


class ToyStep:
    """Makes `N_WINDOWS` windows of any track."""

    def __init__(self, model: ToyModel) -> None:
        self.models: Sequence[ToyModel] = (model,)

    is_mono = True

    def prepare(self, track: Track) -> Prepared:
        samples = np.resize(track.samples.mean(dim=0).numpy(), (N_WINDOWS, WINDOW))
        return Prepared({"toy": torch.from_numpy(samples)})

    def finish(self, prepared: Prepared, outputs: Outputs) -> tuple[MoodResult, EmbeddingResult]:
        assert len(outputs["toy"]["sum"]) == N_WINDOWS
        mood = MoodResult(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, [], {"tags": "toy"})
        return mood, EmbeddingResult([1.0] + [0.0] * 767, [], {"embedding": "toy"})


class ToySpectralStep(ToyStep):
    """The same step with another result."""

    def finish(self, prepared: Prepared, outputs: Outputs) -> SpectralResult:  # type: ignore[override]
        return SpectralResult(
            tempo=120.0,
            tempo_confidence=0.9,
            beats=[],
            downbeats=[],
            time_signature=4,
            time_signature_confidence=0.8,
            key=9,
            mode=0,
            key_confidence=0.7,
            loudness_lufs=-10.0,
            loudness_range_lu=5.0,
            true_peak_dbtp=-1.0,
            mix_in_s=0.5,
            mix_out_s=1.0,
            segments=[],
            sections=[],
            models={"beats": "toy", "key": "toy"},
        )


class Toy(ModelServer[Any]):
    """`MoodAndEmbedding` with a toy network."""

    roles: ClassVar[tuple[str, ...]] = ("attributes", "tags", "embedding")

    async def __init__(  # type: ignore[misc]  # as in its base class
        self, options: ModelOptions, stores: StoreOptions, folder: Path, window_s: float
    ) -> None:
        self._toy = ToyModel(folder / f"break-{type(self).__name__}", window_s)
        await ModelServer.__init__(self, options, stores)

    def build(self, cards: Cards) -> Step[Any]:
        return ToyStep(self._toy)


class ToySpectral(Toy):
    """`Spectral` with a toy network."""

    roles = ("beats", "key")

    def build(self, cards: Cards) -> Step[Any]:
        return ToySpectralStep(self._toy)


class Dying:
    """Ends its replica whatever it is asked to do, as a kill or a crash would."""

    async def analyse(self, *_: Any) -> None:
        os._exit(1)

    identify = embed = embed_text = analyse


ToyDeployment = serve.deployment(Toy)
DyingDeployment = serve.deployment(Dying)
ToySpectralDeployment = serve.deployment(ToySpectral)
