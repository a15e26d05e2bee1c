"""Features are cached under the checkpoints that made them."""

from dataclasses import replace

import pytest

from pipelines.analysis.records import QuickFeatures
from serve_app.checkpoints.choice import models_name
from serve_app.services.lookup.feature_cache import BRIEF_S, KEPT_S, FeatureCache
from serve_app.services.simulation.features import simulated_features

OLD, NEW = models_name({"embedding": "a"}), models_name({"embedding": "b"})


class Kept:
    """A `CachePort` that records lifetimes."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}
        self.ttl_s: dict[tuple[str, str], float] = {}

    async def get(self, space: str, key: str) -> bytes | None:
        return self.values.get((space, key))

    async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
        self.values[space, key], self.ttl_s[space, key] = value, ttl_s

    def is_away(self) -> bool:
        return False


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def test_what_the_named_checkpoints_made_is_kept(kept: Kept) -> None:
    cache = FeatureCache(kept, lambda: OLD)
    key = cache.shared_key("isrc:X")
    await cache.put(key, simulated_features("x"), OLD)
    found = await cache.whole(key)
    assert found is not None
    assert found.beats == simulated_features("x").beats
    assert set(kept.ttl_s.values()) == {KEPT_S}
    assert len(kept.values) == 2


async def test_what_others_made_is_kept_under_theirs(kept: Kept) -> None:
    asked = FeatureCache(kept, lambda: OLD).shared_key("isrc:X")
    swapped = FeatureCache(kept, lambda: NEW)
    made = replace(simulated_features("x"), models={"embedding": "b"})
    await swapped.put(asked, made, NEW)
    found = await swapped.whole(swapped.shared_key("isrc:X"))
    assert found is not None
    assert found.models == {"embedding": "b"}
    assert kept.ttl_s["analysis", swapped.shared_key("isrc:X")] == KEPT_S
    # Requests that wait under the old name get the answer; later ones do not.
    assert await swapped.whole(asked) == found
    assert kept.ttl_s["analysis", asked] == kept.ttl_s["features", asked] == BRIEF_S


@pytest.mark.parametrize("is_settled", [True, False])
async def test_tempo_and_key_are_kept_briefly_during_a_swap(kept: Kept, is_settled: bool) -> None:
    cache = FeatureCache(kept, lambda: OLD, lambda: is_settled)
    await cache.put_quick("k", QuickFeatures(120.0, 0.9, 9, 0, "8A"))
    assert kept.ttl_s["quick", "k"] == (KEPT_S if is_settled else BRIEF_S)
