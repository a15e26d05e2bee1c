"""The accuracy benchmark on a small evaluation set of rendered pieces."""

import json
from pathlib import Path

import pytest

from benchmarks.accuracy.rhythm_and_key import OWN, _half_real, as_markdown, run
from benchmarks.evaluation_set import Setting
from benchmarks.report import Options
from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard
from pipelines.training.metrics import Score
from tests.data.audio_files import write_wav
from tests.data.synthetic_music import steady


def test_without_a_set_it_is_skipped(tmp_path: Path) -> None:
    skipped = run(Options(), Setting(evalset=tmp_path)).skipped
    assert "no evaluation set" in skipped
    assert "AFA_EVALSET" in skipped


def test_checkpoints_are_sought_where_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))
    assert Setting().model_dir == tmp_path


def test_missing_audio_is_named(tmp_path: Path) -> None:
    (tmp_path / "annotations.json").write_text(json.dumps({"x_a": {"tempo": 100}}))
    none = tmp_path / "none"
    elsewhere = dict.fromkeys(("charts", "generated", "modules", "metres"), none)
    setting = Setting(evalset=tmp_path, audio=tmp_path, **elsewhere)
    result = run(Options(), setting)
    assert "x_a" in result.skipped
    assert "AFA_EVAL_AUDIO" in result.skipped


def test_real_recordings_weigh_half() -> None:
    def score(mean: float, n: int = 1) -> Score:
        return Score(mean, mean, mean, n)

    kinds = {"real": {"beat F": score(0.4, 3)}, "charts": {"beat F": score(0.8)}}
    kinds |= {"rendered": {"beat F": score(0.9), "x": score(1)}}
    kinds |= {"modules": {"beat F": score(0.7)}, "metres": {"beat F": score(0.0)}}
    kinds |= {"generated": {"beat F": score(0.0)}}
    assert _half_real(kinds) == {"beat F": pytest.approx(0.65)}


@pytest.mark.timeout(900)
def test_scores_of_rendered_pieces(
    tmp_path: Path, cards: dict[str, ModelCard], model_dir: Path
) -> None:
    pull(cards["afa-beats-3"], model_dir)
    kinds = {"one_a": "real", "one_b": "rendered", "two_c": "modules", "four_d": "metres"}
    folders = {kind: tmp_path / kind for kind in ("modules", "metres")}
    for folder in folders.values():
        folder.mkdir()
    truth = {}
    for (name, kind), tempo, key in zip(
        kinds.items(), (100.0, 120.0, 160.0, 110.0), (0, 7, 2, 0), strict=True
    ):
        piece = steady(tempo, 16, key=key)
        write_wav(folders.get(kind, tmp_path) / f"{name}.wav", piece.samples)
        truth[name] = {
            "kind": kind,
            "tempo": tempo,
            "tempo_level": "sure",
            "beats": piece.beats.tolist(),
            "key": {0: "C", 7: "G", 2: "D"}[key],
            "mode": "major",
        }
    truth["four_d"]["time_signature"] = 4
    for name in ("two_c", "four_d"):
        target = folders[kinds[name]] / "annotations.json"
        target.write_text(json.dumps({name: truth.pop(name)}))
    (tmp_path / "annotations.json").write_text(json.dumps(truth))
    result = run(
        Options(),
        Setting(
            evalset=tmp_path,
            audio=tmp_path,
            **folders,
            charts=tmp_path / "none",
            generated=tmp_path / "none",
            model_dir=model_dir,
            cache=tmp_path / "cache",
        ),
    )
    scores = result.values["all"][OWN]
    assert scores["tempo accuracy 1"]["mean"] == 1.0
    assert scores["tempo accuracy 1"]["n"] == 2
    assert scores["beat F"]["mean"] > 0.9
    assert scores["key exact"]["mean"] == 1.0
    assert "downbeat F" not in scores
    assert set(result.values["by_source"][OWN]) == {"one", "two", "four"}
    told = result.values["time_signatures"]
    assert list(told) == ["four"]
    assert sum(told["four"].values()) == 1
    by_kind = result.values["by_kind"][OWN]
    assert {kind: found["beat F"]["n"] for kind, found in by_kind.items()} == dict.fromkeys(
        kinds.values(), 1
    )
    assert 0 < result.values["cpu_s_per_minute"][OWN] < 60
    assert "| modules |" in as_markdown(result.values)
    assert "| two |" in as_markdown(result.values)
    assert f"| four | {next(iter(told['four']))} (1) |" in as_markdown(result.values)
