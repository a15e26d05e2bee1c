from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from benchmarks.accuracy.modules import PACKAGES as MEASURED
from models.rhythm.network import TEMPI, BeatFeatures, BeatNetwork
from models.rhythm.tracker import BeatTracker
from pipelines.training.augmentation import augment
from pipelines.training.clips import Clip
from pipelines.training.dataset import ClipSet, Sampler, load_clips, split, stretched
from pipelines.training.evaluate import as_prediction, clip_truth, predict
from pipelines.training.export import export, read_checkpoint
from pipelines.training.fit import Trainer, TrainingProgress, losses, rate_at
from pipelines.training.plan import FitPlan, PlanError, parse_plan
from pipelines.training.targets import pulse_target, tempo_target

CONFIG = Path(__file__).parents[3] / "configs" / "train_beats.yaml"


@pytest.fixture
def plan() -> FitPlan:
    shipped = parse_plan(yaml.safe_load(CONFIG.read_text())).fit
    return replace(
        shipped, steps=6, batch=2, segment_frames=200, channels=8, n_blocks=2, dropout=0.1
    )


def clicks(bpm: float = 120.0, n_frames: int = 500) -> Clip:
    """Bands with a burst on every beat, which on every fourth includes the low bands."""
    bands = np.full((n_frames, 83), 0.02, dtype=np.float16)
    beats = np.arange(0.2, n_frames / 50 - 0.1, 60 / bpm)
    for i, beat in enumerate(beats):
        at = round(beat * 50)
        bands[at : at + 2, 40:] = 3.0
        if i % 4 == 0:
            bands[at : at + 2, :40] = 3.0
    return Clip(bands, beats, beats[::4], 0, "test:clicks")


@pytest.fixture
def clips() -> ClipSet:
    return ClipSet([clicks(bpm) for bpm in (100.0, 120.0, 140.0)], ["a", "a", "b"])


def sampler(clips: ClipSet, plan: FitPlan) -> Sampler:
    return Sampler(clips, plan, {"a": 0.5, "b": 0.5})


def test_pulses_are_on_the_nearest_frame() -> None:
    target = pulse_target(np.array([0.0, 0.101, 0.2, -1.0, 9.0]), 20, 0.5)
    assert target[:12] == pytest.approx([1, 0.5, 0, 0, 0.5, 1, 0.5, 0, 0, 0.5, 1, 0.5])
    assert not target[12:].any()


def test_tempo_targets_follow_the_beats() -> None:
    beats = np.concatenate([np.arange(0, 4, 0.5), np.arange(4, 10, 1.0)])
    target = tempo_target(beats, 500)
    assert target.shape == (10, len(TEMPI))
    assert target[:9].sum(axis=1) == pytest.approx(1.0)
    assert TEMPI[target[1].argmax()] == pytest.approx(120, rel=0.02)
    assert TEMPI[target[7].argmax()] == pytest.approx(60, rel=0.02)
    assert not target[9].any()  # After the last beat.
    assert not tempo_target(np.array([1.0]), 100).any()


def test_stretching_moves_features_as_labels() -> None:
    clip = clicks()
    for slower in (0.8, 1.0, 1.25):
        bands, n_heard = stretched(clip.bands, slower, 400)
        assert n_heard == 400 if slower >= 1 else n_heard == pytest.approx(499 * 0.8, abs=2)
        beat = clip.beats[3] * slower * 50
        around = bands[int(beat) - 8 : int(beat) + 9].sum(axis=1)
        assert abs(int(around.argmax()) - 8 - (beat - int(beat))) <= 2


def test_augmentation_off_the_edges_is_silence_and_features_stay_sane() -> None:
    bands = torch.rand(8, 120, 83) * 2
    heard = torch.ones(8, 120)
    heard[3, 70:] = 0
    for seed in range(10):
        features = augment(bands.clone(), heard, np.random.default_rng(seed), 0.5)
        assert features.shape == bands.shape
        assert bool(torch.isfinite(features).all())
        assert not features[3, 70:].any()
        assert float(features.min()) >= 0


def test_what_is_not_augmented_is_what_the_service_computes() -> None:
    class Never(np.random.Generator):
        """Draws values that change nothing."""

        def random(self, *args: object, **kwargs: object) -> np.ndarray:  # type: ignore[override]
            return np.ones(args[0]) * 0.999  # type: ignore[call-overload,no-any-return]

        def normal(self, *args: object, **kwargs: object) -> np.ndarray:  # type: ignore[override]
            return np.zeros(args[2])  # type: ignore[call-overload,no-any-return]

    bands = torch.rand(2, 50, 83) * 4
    features = augment(bands.clone(), torch.ones(2, 50), Never(np.random.PCG64(0)), 0.0)
    torch.testing.assert_close(features, BeatFeatures().compress(bands))


def test_batches_depend_on_seed_and_step_alone(clips: ClipSet, plan: FitPlan) -> None:
    first, again = sampler(clips, plan), sampler(clips, plan)
    first.batch(0)
    one, other = first.batch(5), again.batch(5)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(one.features, again.batch(6).features)
    seeded = sampler(clips, replace(plan, seed=1))
    assert not torch.equal(one.features, seeded.batch(5).features)
    assert one.features.shape == (2, 200, 83)
    assert one.tempi.shape == (2, 4, 64)


def test_labels_are_where_the_clicks_are(clips: ClipSet, plan: FitPlan) -> None:
    plain = replace(plan, batch=16, mixup=0.0, segment_frames=300)
    hits = []
    for step in range(4):
        batch = sampler(clips, plain).batch(step)
        power = batch.features[..., 40:].mean(dim=-1)
        loud = power > power.mean(dim=1, keepdim=True)
        on_beat = batch.beats == 1
        near = torch.nn.functional.max_pool1d(loud.float()[:, None], 5, 1, 2)[:, 0] > 0
        hits.append(near[on_beat].float().mean())
        assert bool((batch.downbeats <= batch.beats).all())
    assert float(torch.stack(hits).mean()) > 0.85


def test_shares_are_kept(plan: FitPlan) -> None:
    clips = ClipSet([clicks(), clicks(), clicks(60.0)], ["a", "a", "b"])
    drawn = Sampler(clips, replace(plan, batch=64), {"a": 0.2, "b": 0.8}).batch(0)
    slow = (drawn.tempi.sum(dim=1).argmax(dim=-1) < 23).float().mean()
    assert 0.65 < float(slow) < 0.95
    with pytest.raises(ValueError, match="no clips"):
        Sampler(ClipSet([], []), plan, {})


def test_a_kind_without_a_share_is_left_out(clips: ClipSet, plan: FitPlan) -> None:
    batch = Sampler(clips, plan, {"b": 1.0}).batch(0)
    alone = Sampler(ClipSet(clips.clips[2:], ["b"]), plan, {"b": 1.0}).batch(0)
    assert torch.equal(batch.beats, alone.beats)
    for shares in ({"b": 0.0}, {"c": 1.0}):
        with pytest.raises(PlanError, match=r"none of the clips' kinds: \['a', 'b'\]"):
            Sampler(clips, plan, shares)


def test_fractions_are_nested_and_validation_is_apart(tmp_path: Path) -> None:
    for seed in range(60):
        clicks(n_frames=60).save(tmp_path / f"a_{seed}.npz")
    clicks(n_frames=60).save(tmp_path / "held_out-a_7.npz")
    (tmp_path / "a_99.part.npz").touch()
    found = load_clips(tmp_path)
    assert sorted(found) == list(range(60))
    assert set(load_clips(tmp_path, "held_out-")) == {7}
    half, validation = split(found, 20, 0.5)
    whole, _ = split(found, 20)
    assert (len(validation.clips), len(whole.clips)) == (3, 57)
    assert 15 < len(half.clips) < 42
    assert {id(clip) for clip in half.clips} < {id(clip) for clip in whole.clips}


def test_the_rate_rises_and_falls(plan: FitPlan) -> None:
    long = replace(plan, steps=1000, warm_up=0.1)
    rates = [rate_at(step, long) for step in range(1000)]
    assert rates.index(max(rates)) == pytest.approx(100, abs=2)
    assert max(rates) == pytest.approx(plan.peak_rate, rel=0.01)
    assert rates[0] < 0.02 * plan.peak_rate
    assert rates[-1] < 0.01 * plan.peak_rate


def test_a_run_that_was_stopped_ends_as_if_it_had_not(
    clips: ClipSet, plan: FitPlan, tmp_path: Path
) -> None:
    whole = Trainer(plan, sampler(clips, plan), torch.device("cpu"))
    told: list[TrainingProgress] = []
    whole.run(tmp_path / "whole.pt", told.append, report_every=2)
    assert [step.step for step in told] == [2, 4, 6]
    begun = Trainer(plan, sampler(clips, plan), torch.device("cpu"))
    begun.run(tmp_path / "part.pt", told.append, until=3)
    resumed = Trainer(plan, sampler(clips, plan), torch.device("cpu"))
    resumed.load(tmp_path / "part.pt")
    assert resumed.step == 3
    resumed.run(tmp_path / "part.pt", told.append)
    expected = torch.load(tmp_path / "whole.pt", weights_only=True)
    actual = torch.load(tmp_path / "part.pt", weights_only=True)
    for part in ("network", "averaged"):
        for name, tensor in expected[part].items():
            torch.testing.assert_close(actual[part][name], tensor, rtol=0, atol=0)


@pytest.mark.slow
def test_a_network_learns_clicks_and_is_scored(plan: FitPlan, tmp_path: Path) -> None:
    clips = ClipSet([clicks(bpm) for bpm in (90.0, 120.0, 150.0)], ["a"] * 3)
    eager = replace(
        plan, steps=60, batch=8, peak_rate=1e-2, channels=16, n_blocks=6, dropout=0.0, mixup=0.0
    )
    trainer = Trainer(eager, Sampler(clips, eager, {"a": 1.0}), torch.device("cpu"))
    told: list[TrainingProgress] = []
    trainer.run(tmp_path / "c.pt", told.append, report_every=10)
    assert told[-1].beat_loss < 0.6 * told[0].beat_loss
    assert told[-1].downbeat_loss < 0.7 * told[0].downbeat_loss
    network = read_checkpoint(tmp_path / "c.pt", eager)
    clip = clicks(110.0, n_frames=1000)
    found = as_prediction(predict([network], clip.bands))
    truth = clip_truth(clip)
    assert truth["tempo"] == pytest.approx(110)
    assert found["tempo"] == pytest.approx(110, rel=0.04)
    heard = np.array(found["beats"])
    assert np.abs(clip.beats[2:-2, None] - heard).min(axis=1).max() < 0.05


def test_losses_leave_out_what_is_not_heard(clips: ClipSet, plan: FitPlan) -> None:
    batch = sampler(clips, plan).batch(0)
    network = BeatNetwork(8, 2).eval().requires_grad_(requires_grad=False)
    whole = losses(network(batch.features), batch)
    batch.heard[:, 100:] = 0
    part = losses(network(batch.features), batch)
    batch.beats[:, 100:] = 1 - batch.beats[:, 100:]
    assert float(losses(network(batch.features), batch)[0]) == float(part[0])
    assert float(part[0]) != float(whole[0])
    empty = batch._replace(tempi=torch.zeros_like(batch.tempi), heard=torch.zeros(2, 200))
    assert [float(loss) for loss in losses(network(empty.features), empty)] == [0, 0, 0]


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "size"])
def test_a_checkpoint_that_does_not_fit_is_told(
    damage: str, clips: ClipSet, plan: FitPlan, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.pt"
    trainer = Trainer(plan, sampler(clips, plan), torch.device("cpu"))
    trainer.save(path)
    whole = path.read_bytes()
    if damage == "size":
        plan = replace(plan, channels=12)
        trainer = Trainer(plan, sampler(clips, plan), torch.device("cpu"))
    else:
        path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "other": b"hello"}[damage])
    with pytest.raises(PlanError, match=r"checkpoint.pt is damaged, or not of .*; remove it"):
        trainer.load(path)
    with pytest.raises(PlanError, match=r"checkpoint.pt is damaged, or not of .*; remove it"):
        read_checkpoint(path, plan)
    with pytest.raises(PlanError, match=r"checkpoint.pt is damaged, .*; correct fit.initial"):
        Trainer(replace(plan, initial=str(path)), sampler(clips, plan), torch.device("cpu"))


def test_a_checkpoint_of_a_longer_run_is_told(
    clips: ClipSet, plan: FitPlan, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.pt"
    Trainer(plan, sampler(clips, plan), torch.device("cpu")).run(path, lambda _: None)
    shorter = Trainer(replace(plan, steps=5), sampler(clips, plan), torch.device("cpu"))
    with pytest.raises(PlanError, match=r"another run: it has 6 steps, and fit.steps is 5; use"):
        shorter.load(path)


def test_weights_of_a_training_that_diverged_are_not_exported(tmp_path: Path) -> None:
    network = BeatNetwork(8, 2)
    next(network.parameters()).data[0] = torch.nan
    with pytest.raises(PlanError, match="diverged"):
        export([network], tmp_path / "beats.safetensors", {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("n_networks", [1, 2])
def test_exported_weights_say_the_same(n_networks: int, tmp_path: Path) -> None:
    networks = []
    for seed in range(n_networks):
        torch.manual_seed(seed)
        networks.append(BeatNetwork(8, 3).eval())
    target = tmp_path / "weights" / "beats.safetensors"
    export(networks, target, {"training": "test"})
    tracker = BeatTracker.from_tensors({k: v.float() for k, v in load_file(target).items()})
    features = torch.rand(1, 200, 83)
    with torch.inference_mode():
        activations, _ = tracker.average(features)
        said = torch.stack([network(features).downbeat.sigmoid() for network in networks]).mean(0)
    torch.testing.assert_close(activations[..., 1], said, rtol=0.01, atol=0.003)
    assert [path.name for path in target.parent.iterdir()] == ["beats.safetensors"]


def test_a_run_begins_from_exported_weights(clips: ClipSet, plan: FitPlan, tmp_path: Path) -> None:
    network = BeatNetwork(plan.channels, plan.n_blocks)
    export([network], tmp_path / "first.safetensors", {})
    begun = replace(plan, initial=str(tmp_path / "first.safetensors"))
    trainer = Trainer(begun, sampler(clips, plan), torch.device("cpu"))
    for name, tensor in trainer.averaged.state_dict().items():
        torch.testing.assert_close(tensor, network.state_dict()[name].half().float())


def test_what_is_exported_is_drawn_towards_where_the_run_began(
    clips: ClipSet, plan: FitPlan, tmp_path: Path
) -> None:
    first = BeatNetwork(plan.channels, plan.n_blocks)
    export([first], tmp_path / "first.safetensors", {})
    tuned = replace(plan, initial=str(tmp_path / "first.safetensors"), initial_share=0.25)
    trainer = Trainer(tuned, sampler(clips, plan), torch.device("cpu"))
    trainer.run(tmp_path / "c.pt", lambda _: None)
    made = read_checkpoint(tmp_path / "c.pt", tuned).state_dict()
    own = trainer.averaged.state_dict()
    name = "project.weight"
    assert not torch.equal(own[name], first.state_dict()[name])
    expected = 0.75 * own[name] + 0.25 * first.state_dict()[name].half().float()
    torch.testing.assert_close(made[name], expected)


def test_plans_are_checked() -> None:
    content = yaml.safe_load(CONFIG.read_text())
    plan = parse_plan(content)
    assert plan.render.hours >= 60
    assert plan.render.n_clips == plan.render.hours * 80
    assert sum(plan.render.shares.values()) == pytest.approx(1)
    assert not set(plan.render.held_out_fonts) & {*plan.render.fonts, *plan.render.drum_fonts}
    for wrong, told in (
        ({"fit": {}}, r"'render' and 'fit' \(and 'modules'\), not 'fit'"),
        (None, "not nothing"),
        ({"render": 1, "fit": 2}, "RenderPlan has fields, not 1"),
        ({**content, "modules": 3}, "modules is a list, not 3"),
        ({**content, "fit": {**content["fit"], "peak_rate": "4e-3"}}, "is a number, not '4e-3'"),
        ({**content, "fit": {**content["fit"], "shares": {"band": "x"}}}, "names with numbers"),
        ({**content, "fit": {**content["fit"], "batch": 1.5}}, "batch is a whole number, not 1.5"),
        ({**content, "fit": {**content["fit"], "steps": 0}}, "steps must be above 0, not 0"),
        ({**content, "fit": {**content["fit"], "warm_up": 1.0}}, "below 1, not 1.0"),
    ):
        with pytest.raises(PlanError, match=told):
            parse_plan(wrong)
    misspelt = dict(content["fit"])
    misspelt["stpes"] = misspelt.pop("steps")
    with pytest.raises(PlanError, match=r"missing \['steps'\], unknown \['stpes'\]"):
        parse_plan({**content, "fit": misspelt})
    with pytest.raises(PlanError, match="not rendered"):
        parse_plan({**content, "fit": {**content["fit"], "shares": {"opera": 1.0}}})
    with pytest.raises(PlanError, match="not rendered"):
        parse_plan({**content, "fit": {**content["fit"], "shares": {"module": 1.0}}})


def test_what_is_tuned_on_is_not_what_is_measured() -> None:
    tuned = parse_plan(yaml.safe_load(CONFIG.with_name("tune_beats.yaml").read_text()))
    assert tuned.fit.initial
    assert not set(tuned.modules) & set(MEASURED)
