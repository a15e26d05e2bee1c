"""Replicas share the rate limits while the cache is away: each knows how many there may be."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import serve
from ray.serve.config import AutoscalingConfig

from serve_app.composition.options import StoreOptions
from serve_app.composition.stores import open_stores
from serve_app.deployments.api import most_replicas
from serve_app.domain.tiers import Tier


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, 1),
        ({"num_replicas": 4}, 4),
        ({"autoscaling_config": {"min_replicas": 2, "max_replicas": 16}}, 16),
    ],
)
def test_the_serve_file_says_how_many(
    row: dict[str, object], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @serve.deployment
    class Some:
        pass

    config = Some.options(**row)._deployment_config
    assert config.autoscaling_config is None or isinstance(
        config.autoscaling_config, AutoscalingConfig
    )
    context = SimpleNamespace(_deployment_config=config)
    monkeypatch.setattr(serve, "get_replica_context", lambda: context)
    assert most_replicas() == expected


async def test_each_replica_lets_its_share_through(tmp_path: Path) -> None:
    away = "redis://127.0.0.1:9"
    stores = open_stores(
        StoreOptions(
            ledger_url=away, cache_url=away, object_store=tmp_path.as_uri(), key_pepper="pepper"
        ),
        replicas=4,
    )
    tier: Tier = stores.tiers["basic"]
    allowed = [(await stores.limits.check("bob", "compute", tier)).allowed for _ in range(10)]
    assert allowed.count(True) == tier.rate["compute"] // 4
    await stores.close()
