"""The benchmarks of networks and of audio, with small stand-ins."""

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from benchmarks.accuracy import partial
from benchmarks.bpm import speed
from benchmarks.cost import stages
from benchmarks.gpu import cpu_embed, frontends
from benchmarks.gpu.subjects import Subject
from benchmarks.report import Options
from pipelines.analysis.records import EmbeddingResult, MoodResult, MoodTag
from pipelines.audio.track import Track
from pipelines.batching.steps import Outputs, Prepared
from pipelines.batching.windows import WindowSpec
from tests.data.audio_files import click_track, encode


class Tiny(nn.Module):
    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        return {"embedding": windows.reshape(len(windows), -1, 32).mean(dim=1)}


TINY = Subject("tiny", lambda device: Tiny().to(device), 320, 16_000)


def test_the_batcher_is_compared_with_the_loop_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # A processor without bfloat16 takes minutes to multiply large matrices.
    monkeypatch.setattr(cpu_embed, "MATRIX", 64)
    result = cpu_embed.measure(TINY, 0.05, Options(rounds=2))
    assert result.values["batcher_to_bare_loop"] > 0
    assert result.values["audio_s_per_s"]["batcher"] > 1
    assert [row[0] for row in result.rows] == ["batcher", "bare loop"]


def test_bytes_are_counted_for_kernels_and_not_for_views() -> None:
    class Doubled(nn.Module):
        def forward(self, windows: Tensor) -> dict[str, Tensor]:
            return {"features": windows.reshape(-1)[None] * 2}

    assert frontends.traffic_bytes(Doubled(), torch.zeros(4, 100)) == 2 * 4 * 400


def test_tempo_clips_are_made_where_there_is_no_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_EVALSET", str(tmp_path / "none"))
    monkeypatch.setattr(speed, "MADE_S", 2.0)
    with speed.clips(tmp_path, Options(is_quick=True)) as on:
        assert on.source == "click tracks"
        assert [path.stem in on.tempos and path.exists() for path in on.files] == [True] * 4


def test_speed_and_accuracy_of_tempo_are_put_together() -> None:
    on = speed.Clips("x", {"a": 120.0, "b": 90.0}, [Path("a"), Path("b")], 120.0)
    rates = {"afa": [100.0, 300.0], "decode alone": [400.0, 400.0], "librosa": [50.0, 100.0]}
    found = {
        "afa": {"a": 121.0, "b": 180.0},
        "decode alone": {"a": 60.0, "b": 60.0},
        "librosa": {"a": 121.0, "b": 91.0},
    }
    result = speed.summarise(rates, found, on, Options())
    own = result.values["contenders"]["afa"]
    assert own["accuracy_1"] == 0.5
    assert own["accuracy_2"] == 1.0
    assert own["ratio_to_librosa"] == 2.5
    assert own["ratio_to_decoding"] == 0.5
    assert [target.is_met for target in result.targets] == [True, False]


def mood(energy: float, *tags: str) -> MoodResult:
    listed = [MoodTag(tag, 0.5) for tag in tags]
    return MoodResult(0.1, 0.2, energy, 0.4, 0.5, 0.6, 0.7, listed, {})


def test_agreement_of_a_part_with_the_whole() -> None:
    whole = mood(0.3, "a", "b"), EmbeddingResult([1.0, 0.0], [], {})
    part = mood(1.0, "b", "c"), EmbeddingResult([0.6, 0.8], [], {})
    found = partial.agreement("x", 100.0, whole, part, 0.25)
    assert found.cosine == pytest.approx(0.6)
    assert found.attributes == pytest.approx(0.1)
    assert found.tag_scores == pytest.approx(1 / 3)
    assert found.top_tags == 0.5
    result = partial.summarise([found], Options())
    assert result.values["agreement"]["cosine"]["mean"] == 0.6
    assert [target.is_met for target in result.targets] == [False, True]


def test_every_stage_of_an_analysis_has_its_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model:
        model_id = "busy"
        spec = WindowSpec(16_000, 16_000, 16_000)

        def forward(self, windows: Tensor) -> dict[str, Tensor]:
            until_s = time.process_time() + 0.05
            while time.process_time() < until_s:
                pass
            return {"sum": windows.sum(dim=1)}

    class OneModel:
        is_mono = True
        models = (Model(),)

        def prepare(self, track: Track) -> Prepared:
            return Prepared({"busy": track.mono_at(16_000)[: 3 * 16_000].view(3, 16_000)})

        def finish(self, prepared: Prepared, outputs: Outputs) -> int:
            return len(outputs["busy"]["sum"])

    monkeypatch.setattr(stages, "CLIP_S", 3.0)
    clips = stages.make_clips(tmp_path, 2)
    spent_s = stages.stages(clips, {"": OneModel(), stages.NETWORKS: OneModel()})
    assert list(spent_s) == [
        *("decoding wav", "decoding mp3", "decoding flac"),
        *("resampling and tuning", "busy", "results"),
        *(stages.NETWORKS + name for name in ("resampling and level", "busy", "results")),
    ]
    # Two batches for each of two clips: 0.2 s for 6 s of audio.
    assert spent_s["busy"] == pytest.approx(2.0, rel=0.3)
    result = stages.summarise([spent_s, spent_s])
    of_networks = sum(s for name, s in spent_s.items() if name.startswith(stages.NETWORKS))
    of_tracks = sum(s for name, s in spent_s.items() if not name.startswith("decoding "))
    for container in ("wav", "mp3", "flac"):
        everything = spent_s["decoding " + container] + of_tracks
        assert result.values["everything_s"][container] == pytest.approx(everything, abs=1e-3)
        assert result.values["decoding_and_spectral_s"][container] == pytest.approx(
            everything - of_networks, abs=1e-3
        )
    assert [target.is_met for target in result.targets] == [False, False]


def test_only_long_recordings_are_taken_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "SHORTEST_S", 3.0)
    long = encode(tmp_path / "long.mp3", click_track(120, 5), "mp3", "libmp3lame")
    (tmp_path / "same.mp3").write_bytes(long.read_bytes())
    encode(tmp_path / "short.mp3", click_track(120, 1), "mp3", "libmp3lame")
    (tmp_path / "text.ogg").write_bytes(b"nothing to hear")
    assert partial.find_tracks(tmp_path) == [long]
