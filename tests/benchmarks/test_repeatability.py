"""The fit of the attributes' confidence, on tracks whose repeatability is known."""

from random import Random

import pytest

from benchmarks.attributes.repeatability import Pair, fit, usual_spread
from models.vibenet import ATTRIBUTES
from pipelines.analysis.records import MoodResult
from pipelines.analysis.tags.repeatability import chance, evidence


def mood(energy: float, spread: float) -> MoodResult:
    values = dict.fromkeys(ATTRIBUTES, 0.5) | {"energy": energy}
    return MoodResult(**values, tags=[], models={}, spread={"energy": spread}, n_parts=5)


def pairs(n: int) -> list[Pair]:
    rng = Random(0)
    found = []
    for track in range(n):
        spread = rng.choice([0.05, 0.1, 0.2])
        for _ in range(5):
            energies = (min(1.0, max(0.0, rng.gauss(0.5, spread))) for _ in range(2))
            found.append(Pair(str(track), *(mood(energy, spread) for energy in energies)))
    return found


def test_ten_points_are_the_same_and_eleven_are_not() -> None:
    assert Pair("a", mood(0.5, 0), mood(0.6, 0)).repeats("energy")
    assert not Pair("a", mood(0.5, 0), mood(0.61, 0)).repeats("energy")


@pytest.mark.parametrize("spread", [0.05, 0.1, 0.2])
def test_what_is_said_is_how_often_it_held(spread: float) -> None:
    learnt = pairs(400)
    weights, usual = fit(learnt, ["energy"]), usual_spread(learnt, "energy")
    held = [pair for pair in pairs(800)[2000:] if pair.told.spread["energy"] == spread]
    share = sum(pair.repeats("energy") for pair in held) / len(held)
    said = [chance(weights, evidence(pair.told, "energy", usual)) for pair in held]
    assert sum(said) / len(said) == pytest.approx(share, abs=0.12)
