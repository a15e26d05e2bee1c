"""The confidence of attributes: what raises it, what lowers it, and when there is none."""

from dataclasses import replace

import pytest

from models.vibenet import ATTRIBUTES
from pipelines.analysis.records import MoodResult
from pipelines.analysis.tags.repeatability import repeatability


def heard(spread: float, n_parts: int = 6, value: float = 0.5) -> MoodResult:
    values = dict.fromkeys(ATTRIBUTES, value)
    spreads = dict.fromkeys(ATTRIBUTES, spread)
    models = {"attributes": "vibenet", "tags": "musicnn-mtt"}
    return MoodResult(**values, tags=[], models=models, spread=spreads, n_parts=n_parts)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_the_more_a_track_changes_the_less_its_attributes_repeat(name: str) -> None:
    told = [repeatability(heard(spread))[name] for spread in (0.01, 0.05, 0.1, 0.2, 0.4)]
    assert told == sorted(told, reverse=True)
    assert 0 < told[-1] < 0.5 < 0.7 < told[0] < 1


@pytest.mark.parametrize("name", ["energy", "valence", "acousticness"])
def test_of_a_single_part_little_is_known(name: str) -> None:
    assert repeatability(heard(0.02))[name] > repeatability(heard(0.0, n_parts=1))[name]


def test_every_attribute_of_the_default_network_has_one_and_of_silence_none() -> None:
    assert set(repeatability(heard(0.1))) == set(ATTRIBUTES)
    assert repeatability(replace(heard(0.1), spread={}, n_parts=0)) == {}


@pytest.mark.parametrize("role", ["attributes", "tags"])
def test_other_networks_were_not_measured(role: str) -> None:
    mood = heard(0.1)
    assert repeatability(replace(mood, models=mood.models | {role: "own"})) == {}
