"""The shipped policies, simulated with a burst."""

import json
from itertools import pairwise

import pytest

from benchmarks.serving import scaling
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def played() -> scaling.Run:
    return scaling.simulate(16)


def test_a_burst_is_met_and_its_replicas_are_given_back(played: scaling.Run) -> None:
    assert max(played.waits_s) < 30
    for name, counts in played.replicas.items():
        assert counts[-1] < max(counts) or max(counts) == 1, name
    assert max(played.replicas["AnalysisWorker"]) > 4
    assert max(played.replicas["Spectral"]) > 1
    assert played.waiting[-1] == 0


def test_nothing_flaps(played: scaling.Run) -> None:
    """A deployment that grew shrinks after the burst, and does not grow for it again."""
    assert played.flaps <= 3


def test_one_card_is_kept_busy_and_gets_no_second(played: scaling.Run) -> None:
    alone = scaling.simulate(1)
    assert max(alone.replicas["Spectral"]) == max(alone.replicas["MoodAndEmbedding"]) == 1
    assert alone.card_hours == pytest.approx(1.0)
    assert max(alone.waits_s) > max(played.waits_s)


def test_more_cards_take_in_more_of_a_burst_that_needs_them() -> None:
    runs = [scaling.simulate(cards, scaling.LARGE) for cards in scaling.CARDS]
    assert all(more.refused < fewer.refused for fewer, more in pairwise(runs))
    assert max(runs[-1].replicas["Spectral"]) > max(runs[-2].replicas["Spectral"])
    assert scaling.simulate(scaling.MAIN_CARDS).refused == 0


def test_decoding_takes_what_was_measured() -> None:
    measured = json.loads((REPOSITORY / "benchmarks" / "results" / "decode.json").read_text())
    pace = measured["formats"]["MP3 320k"]["audio_s_per_core_s"]
    assert pytest.approx(scaling.TRACK_S / pace, rel=0.05) == scaling.DECODE_S


def test_a_replica_is_held_up_by_its_card_or_its_cpus_and_never_by_one_core() -> None:
    rows = {row["name"]: row for row in scaling.profile()["deployments"]}
    found = {name: scaling.limits(rows[name]) for name in scaling.OWN_S}
    held_up_by = {name: min(limits, key=limits.__getitem__) for name, limits in found.items()}
    assert held_up_by == {"Spectral": "finishing", "MoodAndEmbedding": "card"}
