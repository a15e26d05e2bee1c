"""The tables have the contract's numbers, and wrong tables are refused."""

from typing import Any

import pytest

from configs.tables import load_table
from serve_app.domain.credits import MOST_CREDITS
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers

MB = 2**20
DAY_S = 86_400


def test_the_contracts_numbers_of_the_tiers() -> None:
    tiers = Tiers(load_table("tiers"))
    assert [tier.name for tier in tiers] == ["free", "basic", "pro", "scale"]
    assert tiers["starter"] is tiers["basic"]
    assert [tier.grace_credits for tier in tiers] == [0, 500, 2000, 10_000]
    assert [tier.upload_bytes for tier in tiers] == [15 * MB, 15 * MB, 50 * MB, 50 * MB]
    assert [tier.asset_lifetime_s for tier in tiers] == [DAY_S, DAY_S, 7 * DAY_S, 7 * DAY_S]
    assert tiers["pro"].cache_lookups == 300_000
    assert tiers.first_with("gpu").name == "basic"
    assert tiers.first_with("embedding").name == "pro"


def test_the_contracts_prices() -> None:
    prices = Prices.from_table(load_table("prices"))
    assert (prices.analysis, prices.identify, prices.bpm, prices.batch_slot) == (10, 3, 2, 2)
    assert (prices.features_by_id_miss, prices.asset_upload, prices.resolve) == (2, 0, 0)


def changed(table: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return table | {"pro": table["pro"] | fields}


def test_a_wrong_tier_table_is_refused() -> None:
    table = load_table("tiers")
    with pytest.raises(ValueError, match="exactly"):
        Tiers({name: row for name, row in table.items() if name != "free"})
    with pytest.raises(ValueError, match="colour"):
        Tiers(changed(table, colour="red"))
    with pytest.raises(ValueError, match="negative"):
        Tiers(changed(table, upload_bytes=-1))
    for name in ("asset_lifetime_s", "lane_weight"):
        with pytest.raises(ValueError, match="at least 1"):
            Tiers(changed(table, **{name: 0}))
    for wrong in ({"compute": 0}, {"read": 1_000_001}, {"write": 1}):
        with pytest.raises(ValueError, match="compute, poll, read, each from 1"):
            Tiers(changed(table, rate=table["pro"]["rate"] | wrong))
    for name in ("monthly_credits", "cache_lookups", "grace_credits"):
        Tiers(changed(table, **{name: MOST_CREDITS}))
        with pytest.raises(ValueError, match="at most 1000000000000"):
            Tiers(changed(table, **{name: MOST_CREDITS + 1}))


@pytest.mark.parametrize("credits", [-1, 2.5, "2", True, MOST_CREDITS + 1])
def test_a_wrong_price_is_refused(credits: Any) -> None:
    with pytest.raises(ValueError, match="bpm"):
        Prices.from_table(load_table("prices") | {"bpm": credits})


def test_a_missing_price_is_refused() -> None:
    table = load_table("prices")
    del table["bpm"]
    with pytest.raises(ValueError, match="bpm"):
        Prices.from_table(table)
