"""The benchmark of embeddings: its measures on known vectors, and which music it uses."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.embedding import embedding, everyday, music
from benchmarks.embedding.heard import PLAIN, HeardInstruments, HeardSounds, HeardTracks
from benchmarks.embedding.measures import (
    average_precision,
    effective_dimension,
    found_first,
    hubness,
    interval,
    neighbours_agree,
)
from benchmarks.report import Options
from pipelines.audio.waveform import Waveform

PLAN = Path(__file__).parents[2] / "configs" / "train_embedding.yaml"
RATE = 44_100


def at(*degrees: float) -> np.ndarray:
    """Return unit vectors in the plane."""
    radians = np.deg2rad(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_nothing_is_measured_that_was_learnt_from() -> None:
    assert not set(music.PACKAGES) & set(yaml.safe_load(PLAN.read_text())["packages"])


def test_average_precision_and_neighbours_of_known_rankings() -> None:
    vectors = at(0, 10, 25, 60)
    labels = np.array(["a", "b", "a", "b"])
    # From 0: b a b. From 10: a a b. From 25: b, a (25 away), b. From 60: a b a.
    assert average_precision(vectors, labels) == pytest.approx([1 / 2, 1 / 3, 1 / 2, 1 / 2])
    assert neighbours_agree(vectors, labels).tolist() == [0, 0, 0, 0]
    alone = np.array(["a", "a", "a", "b"])
    assert average_precision(vectors, alone) == pytest.approx([1, 1, 1])


def test_a_query_finds_the_track_of_its_number_whatever_its_length() -> None:
    tracks = at(0, 40, 80)
    assert found_first(3 * at(5, 70, 79), tracks).tolist() == [1, 0, 1]


def test_dimension_and_hubs() -> None:
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((2000, 8))
    assert effective_dimension(spread) == pytest.approx(8, rel=0.05)
    assert effective_dimension(spread * [1, 1, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6]) < 2.1
    few = rng.standard_normal((200, 64))
    hub = np.concatenate([few + 3, np.full((1, 64), 3.0)])  # the centre is near to all
    assert hubness(hub) > hubness(few[:, :3]) + 1


def test_an_interval_holds_its_mean() -> None:
    found = interval(np.array([1.0] * 90 + [0.0] * 10))
    assert (found.mean, found.n) == (0.9, 100)
    assert 0.8 < found.low < 0.9 < found.high < 1


def test_the_other_excerpt_has_nothing_of_the_first() -> None:
    n = 90 * RATE
    waveform = Waveform(np.arange(n, dtype=np.float32)[None], RATE)
    first = music.EXCERPT.take(waveform).samples
    other = music.elsewhere(waveform).samples
    assert other.shape == first.shape
    assert not np.intersect1d(first, other).size


@pytest.mark.parametrize("name", music.ALTERATIONS)
def test_alterations_change_a_track_and_leave_it_sound(name: str) -> None:
    rng = np.random.default_rng(0)
    samples = 0.1 * rng.standard_normal((1, 80 * RATE)).astype(np.float32)
    altered = music.ALTERATIONS[name](Waveform(samples, RATE)).samples
    assert np.isfinite(altered).all()
    assert altered.shape[1] == pytest.approx(30 * RATE, rel=0.04)
    plain = music.EXCERPT.take(Waveform(samples, RATE)).samples
    assert altered.shape != plain.shape or not np.allclose(altered[:1], plain, atol=1e-4)


def test_figures_are_of_their_contender_and_the_default_is_held_to_its_bound() -> None:
    good, bad = at(0, 40, 80, 120), at(0, 1, 2, 3)
    versions = {
        PLAIN: {"good": good, "bad": bad},
        "louder": {"good": at(1, 41, 81, 121), "bad": at(3, 2, 1, 0)},
    }
    tracks = HeardTracks(np.array(["a", "a", "b", "b"]), versions)
    fonts, families = np.array(["1", "1", "2", "2"]), np.array(["x", "y", "x", "y"])
    played = HeardInstruments(fonts, families, {"good": at(0, 90, 1, 91), "bad": at(0, 90, 91, 1)})
    kinds = np.array(["bird", "bird", "speech", "speech"])
    sounds = HeardSounds(kinds, {"good": at(0, 1, 90, 91), "bad": at(0, 90, 1, 91)})
    found = {name: embedding.measure(name, tracks, played, sounds) for name in ("good", "bad")}
    assert (found["good"].found_all.mean, found["bad"].found_all.mean) == (1, 0)
    assert (found["good"].family_nearest.mean, found["bad"].family_nearest.mean) == (1, 0)
    assert (found["good"].kind_nearest.mean, found["bad"].kind_nearest.mean) == (1, 0)
    for default, is_met in (("good", True), ("bad", False)):
        result = embedding.summarise(found, default, {"bad": 1.5})
        assert [target.is_met for target in result.targets] == [is_met]
        assert result.values["contenders"]["good"]["found"]["louder"]["mean"] == 1


def test_everyday_sounds_are_recordings_and_not_what_is_said_of_them(tmp_path: Path) -> None:
    for name in ("owl.ogg", "owl_desc.ogg", "owl.png", "owl_desc_fr.ogg"):
        (tmp_path / name).touch()
    assert [path.name for path in everyday.files(tmp_path, "*.ogg")] == ["owl.ogg"]


def test_a_machine_that_cannot_fetch_skips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AFA_EMBEDDING_AUDIO", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    skipped = embedding.run(Options(is_quick=True)).skipped
    assert "cannot be fetched" in skipped
    assert "apt-get is missing" in skipped
