"""Tiers: what a customer's plan includes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from serve_app.domain.credits import MOST_CREDITS

ALIASES = {"starter": "basic"}
SOLD = ("free", "basic", "pro", "scale")
LOCAL = "local"
"""Tier of the machine's own user: without limits, and only for callers on this machine."""

LOCAL_OWNER = f"local-{LOCAL}"
"""The owner of the key that `afa up` prints."""

ORDER = (*SOLD, LOCAL)
COUNTED = ("monthly_credits", "cache_lookups", "grace_credits")
"""Fields that the ledger calculates with."""

CLASSES = frozenset({"read", "compute", "poll"})
MOST_PER_MINUTE = 1_000_000
"""Scripts count whole microseconds between two requests."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One plan. ``configs/tiers.yaml`` explains the fields."""

    name: str
    monthly_credits: int
    cache_lookups: int
    grace_credits: int
    upload_bytes: int
    asset_lifetime_s: int
    storage_bytes: int
    max_audio_s: int
    gpu: bool
    embedding: bool
    rate: Mapping[str, int]
    identify_in_flight: int
    uploads_in_flight: int
    lane_weight: int
    owner_jobs: int


class Tiers:
    """All tiers by name.

    Raises:
        ValueError: A tier is missing, or a field is missing, unknown, too small or too large.
    """

    def __init__(self, table: Mapping[str, Mapping[str, Any]]) -> None:
        if set(table) != set(ORDER):
            raise ValueError(f"tiers must be exactly {ORDER}, not {tuple(table)}")
        names = {field.name for field in fields(Tier)} - {"name"}
        for name, row in table.items():
            if set(row) != names:
                raise ValueError(f"tier {name}: wrong fields {sorted(set(row) ^ names)}")
            if any(isinstance(value, int) and value < 0 for value in row.values()):
                raise ValueError(f"tier {name}: negative value")
            if min(row["asset_lifetime_s"], row["lane_weight"]) < 1:
                raise ValueError(f"tier {name}: asset_lifetime_s and lane_weight are at least 1")
            rates = row["rate"]
            if set(rates) != CLASSES or not all(1 <= n <= MOST_PER_MINUTE for n in rates.values()):
                raise ValueError(
                    f"tier {name}: rate has {', '.join(sorted(CLASSES))}, each from 1 to "
                    f"{MOST_PER_MINUTE}"
                )
            if max(row[field] for field in COUNTED) > MOST_CREDITS:
                raise ValueError(f"tier {name}: {', '.join(COUNTED)} are at most {MOST_CREDITS}")
        self._by_name = {name: Tier(name=name, **row) for name, row in table.items()}

    def __getitem__(self, name: str) -> Tier:
        """Return the tier with that name or alias; KeyError if there is none."""
        return self._by_name[ALIASES.get(name, name)]

    def __iter__(self) -> Iterator[Tier]:
        """Iterate over the tiers that are sold, from the smallest to the largest."""
        return iter(self._by_name[name] for name in SOLD)

    @property
    def every(self) -> tuple[Tier, ...]:
        """All tiers; the last is that of the machine's own user."""
        return tuple(self._by_name[name] for name in ORDER)

    def first_with(self, feature: str) -> Tier:
        """Return the smallest tier whose boolean ``feature`` is true."""
        return next(tier for tier in self if getattr(tier, feature) is True)
