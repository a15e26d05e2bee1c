"""How well keys and tempos go together in a mix: the Camelot wheel, and octaves of tempo."""

import math
from typing import Literal

HOURS = 12
KeyRelation = Literal[
    "same", "relative", "fifth up", "fifth down", "diagonal", "parallel", "distant"
]

PARALLEL_HOURS = 3
"""Hours from a minor key to the major key of its tonic, as 8A to 11B."""

FARTHEST_KEY = HOURS / 2 + 1


def read_camelot(name: str) -> tuple[int, bool]:
    """Return the hour, 1 to 12, of a name such as ``8A``, and whether it is a major key."""
    return int(name[:-1]), name[-1] == "B"


def compatible_keys(name: str) -> list[str]:
    """Return the keys that mix with one: itself, its relative, a fifth up and a fifth down."""
    hour, _ = read_camelot(name)
    letter, other = name[-1], "A" if name[-1] == "B" else "B"
    up, down = hour % HOURS + 1, (hour - 2) % HOURS + 1
    return [name, f"{hour}{other}", f"{up}{letter}", f"{down}{letter}"]


def key_relation(of: str, to: str) -> KeyRelation:
    """Return how the key ``of`` relates to the key ``to``, both Camelot names.

    Returns:
        ``relative`` shares all notes, a ``fifth`` all but one; ``diagonal`` is the relative of a
        fifth; ``parallel`` has the same tonic.
    """
    (hour, is_major), (from_hour, from_major) = read_camelot(of), read_camelot(to)
    hours = (hour - from_hour) % HOURS
    if is_major == from_major:
        same_mode: dict[int, KeyRelation] = {0: "same", 1: "fifth up", HOURS - 1: "fifth down"}
        return same_mode.get(hours, "distant")
    parallel = PARALLEL_HOURS if is_major else HOURS - PARALLEL_HOURS
    other_mode: dict[int, KeyRelation] = {
        0: "relative",
        1: "diagonal",
        HOURS - 1: "diagonal",
        parallel: "parallel",
    }
    return other_mode.get(hours, "distant")


def key_distance(one: str, other: str) -> float:
    """Return the steps on the Camelot wheel as a fraction of the most: 0 if equal, at most 1."""
    (hour, is_major), (other_hour, other_major) = read_camelot(one), read_camelot(other)
    around = (hour - other_hour) % HOURS
    return (min(around, HOURS - around) + (is_major != other_major)) / FARTHEST_KEY


def tempo_distance(one: float, other: float) -> float:
    """Return the octaves between two tempos, half and double counted as equal: 0 to 0.5."""
    octaves = math.log2(one / other)
    return abs(octaves - round(octaves))
