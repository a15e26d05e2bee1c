"""The mood step with the real default checkpoints."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard, choose_cards
from models.vibenet import ATTRIBUTES
from pipelines.analysis import mood
from pipelines.analysis.mood import MoodStep
from pipelines.analysis.records import MoodResult
from pipelines.analysis.tags.repeatability import repeatability
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local
from tests.data import synthetic_sounds

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def step(cards: dict[str, ModelCard], model_dir: Path) -> MoodStep:
    for model_id in ("vibenet", "musicnn-mtt"):
        pull(cards[model_id], model_dir)
    return mood.build(choose_cards(cards), model_dir, CPU, max_windows=2)


@pytest.fixture(scope="module")
def permissive(cards: dict[str, ModelCard], model_dir: Path) -> MoodStep:
    pull(cards["musicnn-mtt"], model_dir)
    return mood.build(choose_cards(cards, "permissive"), model_dir, CPU, max_windows=2)


def club(seconds: float = 8.0, gain: float = 1.0) -> Waveform:
    """A four-to-the-floor beat with noise hats and a saw bass."""
    rng = np.random.default_rng(1)
    t = np.arange(int(seconds * 44_100)) / 44_100
    beat = t % 0.47
    kick = np.sin(2 * np.pi * (50 * beat + 8 * (1 - np.exp(-30 * beat)))) * np.exp(-6 * beat)
    hat = rng.standard_normal(len(t)) * np.exp(-40 * ((t + 0.235) % 0.47))
    bass = (t * 55 % 1 - 0.5) * (beat > 0.1)
    samples = gain * (0.6 * kick + 0.15 * hat + 0.3 * bass)
    return Waveform(np.stack([samples, samples]).astype(np.float32))


def pad(seconds: float = 8.0) -> Waveform:
    """A soft, slow organ chord."""
    t = np.arange(int(seconds * 44_100)) / 44_100
    chord = sum(np.sin(2 * np.pi * f * t) for f in (130.8, 196.0, 261.6, 329.6))
    return Waveform((0.05 * chord * np.minimum(1, t / 2))[None].astype(np.float32))


def attributes(result: MoodResult) -> dict[str, float]:
    return {name: getattr(result, name) for name in ATTRIBUTES}


def tags(result: MoodResult) -> dict[str, float]:
    return {tag.tag: tag.score for tag in result.tags}


def test_a_club_beat_is_energetic_and_a_soft_chord_is_not(step: MoodStep) -> None:
    loud, soft = run_local(step, club()), run_local(step, pad())
    assert loud.energy > soft.energy + 0.3
    assert loud.acousticness < soft.acousticness - 0.3
    assert loud.danceability > soft.danceability
    assert {"techno", "electronic"} & set(tags(loud))
    assert {"ambient", "slow"} & set(tags(soft))
    assert loud.models == {"attributes": "vibenet", "tags": "musicnn-mtt"}


def test_metal_is_energetic_and_not_acoustic(step: MoodStep) -> None:
    metal = run_local(step, synthetic_sounds.metal())
    assert metal.energy > 0.8
    assert metal.acousticness < 0.2
    assert metal.instrumentalness > 0.8
    assert {"rock", "metal", "loud"} <= set(tags(metal))


def test_a_piano_alone_is_acoustic_and_instrumental(step: MoodStep) -> None:
    piano = run_local(step, synthetic_sounds.piano())
    assert piano.acousticness > 0.7
    assert piano.instrumentalness > 0.8
    assert piano.energy < 0.4
    assert piano.speechiness < 0.15
    assert piano.tags[0].tag == "piano"


def test_talk_is_speech_and_no_instrumental(step: MoodStep) -> None:
    talk = run_local(step, synthetic_sounds.speech())
    assert talk.speechiness > 0.3
    assert talk.instrumentalness < 0.2


def test_noise_is_not_speech(step: MoodStep) -> None:
    noise = run_local(step, synthetic_sounds.noise())
    assert noise.speechiness < 0.15
    assert noise.energy < 0.2
    assert noise.instrumentalness > 0.8


def test_the_level_of_a_track_does_not_move_its_attributes(step: MoodStep) -> None:
    loud, quiet = run_local(step, club()), run_local(step, club(gain=0.1))
    for name, value in attributes(loud).items():
        assert attributes(quiet)[name] == pytest.approx(value, abs=5e-3)


def test_silence_claims_nothing_and_runs_nothing(step: MoodStep) -> None:
    silence = Waveform(np.zeros((2, 44_100 * 3), np.float32))
    assert step.prepare(Track.of(silence)).windows == {}
    result = run_local(step, silence)
    assert set(attributes(result).values()) == {0.0}
    assert result.tags == []
    assert repeatability(result) == {}


def test_silence_inside_a_track_is_not_judged(step: MoodStep) -> None:
    music = club(20.0)
    gap = Waveform(np.pad(music.samples, ((0, 0), (0, 30 * 44_100))))
    assert len(step.prepare(Track.of(gap)).windows["vibenet"]) == 1
    with_gap, without = attributes(run_local(step, gap)), attributes(run_local(step, music))
    assert with_gap == pytest.approx(without, abs=0.05)


def test_a_track_shorter_than_a_window_is_repeated(step: MoodStep) -> None:
    windows = step.prepare(Track.of(club(1.5))).windows["musicnn-mtt"][:]
    assert windows.shape == (1, 48_128)
    period = 24_000
    torch.testing.assert_close(windows[0, :period], windows[0, period : 2 * period])


def test_a_track_that_changes_is_told_from_one_that_does_not(step: MoodStep) -> None:
    same = club(40.0)
    change = Waveform(np.concatenate([club(20.0).samples, pad(20.0).samples.repeat(2, 0)], axis=1))
    steady, mixed = run_local(step, same), run_local(step, change)
    assert (steady.n_parts, mixed.n_parts) == (2, 2)
    assert steady.spread["energy"] < 0.05 < 0.2 < mixed.spread["energy"]
    assert repeatability(steady)["energy"] > repeatability(mixed)["energy"] + 0.2
    assert set(run_local(step, club()).spread.values()) == {0.0}


def test_the_small_profile_looks_at_a_few_windows_of_the_whole_track(step: MoodStep) -> None:
    assert len(step.prepare(Track.of(club(60.0))).windows["musicnn-mtt"]) == 2


def test_tags_score_by_fall_and_all_stand_out(step: MoodStep) -> None:
    values = list(tags(run_local(step, club())).values())
    assert values == sorted(values, reverse=True)
    assert all(0.5 <= value <= 1 for value in values)


def test_permissive_attributes_come_from_the_tags_alone(permissive: MoodStep) -> None:
    assert [model.model_id for model in permissive.models] == ["musicnn-mtt"]
    loud, soft = run_local(permissive, club()), run_local(permissive, pad())
    assert loud.energy > soft.energy + 0.3
    assert loud.danceability > soft.danceability
    assert loud.acousticness < soft.acousticness
    assert all(0 <= value <= 1 for value in attributes(loud).values())
    assert loud.models["attributes"] == "musicnn-attributes"
    assert repeatability(loud) == {}
