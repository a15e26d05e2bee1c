"""Prices: credits per operation."""

from collections.abc import Mapping
from dataclasses import dataclass, fields


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
    identify: int
    cache_hit_over_allowance: int

    @classmethod
    def from_table(cls, table: Mapping[str, int]) -> "Prices":
        """Validate the table.

        Raises:
            ValueError: A price is missing, unknown or not a whole number ≥ 0.
        """
        names = {field.name for field in fields(cls)}
        if set(table) != names:
            raise ValueError(f"wrong prices: {sorted(set(table) ^ names)}")
        for name, credits in table.items():
            if type(credits) is not int or credits < 0:
                raise ValueError(f"price {name} must be a whole number of credits, not {credits!r}")
        return cls(**table)
