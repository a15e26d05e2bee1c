from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.audio.resample import resample
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import Both, Outputs, Prepared, WindowsOnDemand, run_local
from pipelines.batching.windows import WindowSpec, cut, window_starts


class PeakModel:
    """Returns each window's peak, and records the batches that it was given."""

    def __init__(self, model_id: str, length: int) -> None:
        self.model_id = model_id
        self.spec = WindowSpec(sample_rate=8000, length=length, hop=length)
        self.batches: list[int] = []

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        assert torch.is_inference_mode_enabled()
        self.batches.append(len(windows))
        return {"peak": windows.abs().amax(-1, keepdim=True), "first": windows[:, 0]}


class PeakStep:
    is_mono = True

    def __init__(self, *models: PeakModel) -> None:
        self.models = models

    def prepare(self, track: Track) -> Prepared:
        samples = track.mono_at(8000)
        windows = {
            m.model_id: cut(samples, window_starts(len(samples), m.spec), m.spec.length)
            for m in self.models
            if samples.any()
        }
        return Prepared(windows, context=len(samples))

    def finish(self, prepared: Prepared, outputs: Outputs) -> tuple[object, dict[str, list[float]]]:
        return prepared.context, {k: v["first"].tolist() for k, v in outputs.items()}


def test_rows_come_back_in_order_for_every_model_whatever_the_batch() -> None:
    long, short = PeakModel("long", 400), PeakModel("short", 100)
    ramp = Waveform(np.arange(1050, dtype=np.float32)[None] / 2000 + 0.1, 8000)
    context, rows = run_local(PeakStep(long, short), ramp, batch_windows=4)
    assert context == 1050
    starts = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950]
    assert rows["short"] == pytest.approx([s / 2000 + 0.1 for s in starts])
    assert rows["long"] == pytest.approx([s / 2000 + 0.1 for s in (0, 400, 650)])
    assert short.batches == [4, 4, 3]
    assert long.batches == [3]


def test_a_forward_on_the_cpu_takes_two_windows_where_nothing_is_said() -> None:
    model = PeakModel("short", 100)
    run_local(PeakStep(model), Waveform(np.ones((1, 500), np.float32), 8000))
    assert model.batches == [2, 2, 1]


def test_a_model_without_windows_is_not_run() -> None:
    model = PeakModel("quiet", 100)
    _, rows = run_local(PeakStep(model), Waveform(np.zeros((1, 500), np.float32), 8000))
    assert rows == {}
    assert model.batches == []


def test_resampling_keeps_a_tone_and_its_level() -> None:
    t = np.arange(44_100) / 44_100
    tone = np.stack([np.sin(2 * np.pi * 440 * t), np.zeros_like(t)]).astype(np.float32)
    out = resample(tone, 44_100, 16_000)
    assert out.shape == (2, 16_000)
    want = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    assert np.abs(out[0] - want)[500:-500].max() < 1e-4
    assert not out[1].any()


def test_equal_rates_and_empty_input_are_left_alone() -> None:
    samples = np.ones(7, np.float32)
    assert resample(samples, 8000, 8000) is samples
    assert resample(samples[:0], 8000, 16_000).shape == (0,)


def test_windows_on_demand_are_cut_for_one_model_at_a_time() -> None:
    told: list[str] = []

    class Frugal(PeakStep):
        def prepare(self, track: Track) -> Prepared:
            windows = super().prepare(track).windows

            def cut_for(model_id: str) -> Tensor:
                told.append(model_id)
                return windows[model_id]

            cutters = {model_id: partial(cut_for, model_id) for model_id in windows}
            return Prepared(WindowsOnDemand(cutters))

    class Told(PeakModel):
        def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
            told.append(f"run {self.model_id}")
            return super().forward(windows)

    ramp = Waveform(np.arange(1050, dtype=np.float32)[None] / 2000 + 0.1, 8000)
    models = [Told(name, 100) for name in "abc"]
    both = Both(Frugal(*models[:2]), Frugal(models[2]))
    (_, first), (_, second) = run_local(both, ramp, batch_windows=100)
    assert told == ["a", "run a", "b", "run b", "c", "run c"]
    assert (first | second).keys() == {"a", "b", "c"}
    assert "a" in Frugal(*models).prepare(Track.of(ramp)).windows
    assert told[6:] == []


def test_the_windows_are_let_go_before_the_result_is_made() -> None:
    class Step(PeakStep):
        def finish(
            self, prepared: Prepared, outputs: Outputs
        ) -> tuple[object, dict[str, list[float]]]:
            assert not prepared.windows
            return super().finish(prepared, outputs)

    context, rows = run_local(
        Step(PeakModel("a", 100)), Waveform(np.ones((1, 250), np.float32), 8000)
    )
    assert context == 250
    assert rows["a"] == [1, 1, 1]
