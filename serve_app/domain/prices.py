"""Prices: credits per operation."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise

from serve_app.domain.credits import MOST_CREDITS


@dataclass(frozen=True, slots=True)
class Prices:
    """Credits per operation; see ``configs/prices.yaml``."""

    asset_upload: int
    resolve: int
    poll: int
    features_by_id_miss: int
    features_by_name_miss: int
    key_bpm_miss: int
    beatgrid_miss: int
    batch_slot: int
    bpm: int
    analysis: int
    embed: int
    identify: int
    similar: int
    path: int
    cache_hit_over_allowance: int

    def steps(self, price: int) -> list[tuple[int, int]]:
        """Split the price of a miss into ranges at the prices of cheaper kinds of miss.

        So a customer who has paid for tempo and key has paid the first part of the same track's
        features.
        """
        misses = (self.key_bpm_miss, self.features_by_id_miss, self.features_by_name_miss)
        ends = sorted(
            {cost for cost in (*misses, self.beatgrid_miss) if 0 < cost < price} | {price}
        )
        return list(pairwise([0, *ends]))

    @classmethod
    def from_table(cls, table: Mapping[str, int]) -> "Prices":
        """Validate the table.

        Raises:
            ValueError: A price is missing, unknown or not a whole number from 0 to `MOST_CREDITS`.
        """
        names = {field.name for field in fields(cls)}
        if set(table) != names:
            raise ValueError(f"wrong prices: {sorted(set(table) ^ names)}")
        for name, credits in table.items():
            if type(credits) is not int or not 0 <= credits <= MOST_CREDITS:
                raise ValueError(
                    f"price {name} must be a whole number of credits up to {MOST_CREDITS}, "
                    f"not {credits!r}"
                )
        return cls(**table)
