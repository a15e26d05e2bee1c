"""Scores of tempo, beats, downbeats and key against annotations, and their intervals.

Metrics are mir_eval's; conventions (4 % tempo tolerance, related levels, what counts as missing)
are those of the evaluation set, so that figures are comparable with its README.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

METRICS = (
    "tempo accuracy 1",
    "tempo accuracy 2",
    "beat F",
    "beat F any level",
    "downbeat F",
    "key weighted",
    "key exact",
)
PITCH_CLASSES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
"""Spelt like annotations, with the usual flats; mir_eval accepts either. The service spells them as
in `pipelines.analysis.tonality.notes`."""

_TOLERANCE = 0.04
_OCTAVES = (1.0, 1 / 3, 1 / 2, 2.0, 3.0)
_ROUNDS = 2000
_GROUPS = 5
_NATURAL = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}

Track = Mapping[str, Any]
"""A prediction or an annotation: ``tempo``, ``beats``, ``downbeats``, ``key``, ``mode``; an
annotation also has ``tempo_level`` ("sure", or "octave" when its octave is not known)."""


@dataclass(frozen=True, slots=True)
class Score:
    """Mean of a metric and its 95 % bootstrap interval over ``n`` tracks."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def counted(self) -> str:
        """The score as text, with its number of tracks."""
        return f"{self} ({self.n})"


def tempo_accuracy(truth: float, found: float | None) -> tuple[float, float]:
    """Score a tempo as right within 4 %, and as right apart from a factor of 2 or 3."""
    if not found:
        return 0.0, 0.0
    hits = [abs(found / (truth * factor) - 1.0) <= _TOLERANCE for factor in _OCTAVES]
    return float(hits[0]), float(any(hits))


def beat_f(truth: Sequence[float], found: Sequence[float]) -> float:
    """F-measure at ±70 ms, without the first five seconds; 0 if either side is empty."""
    import mir_eval.beat

    reference, estimate = (
        mir_eval.beat.trim_beats(np.sort(np.asarray(x, dtype=float))) for x in (truth, found)
    )
    if not len(reference) or not len(estimate):
        return 0.0
    return float(mir_eval.beat.f_measure(reference, estimate))


def beat_f_any_level(truth: Sequence[float], found: Sequence[float]) -> float:
    """Best F-measure over the annotated level, its off-beats, double, halves and thirds."""
    beats = np.asarray(truth, dtype=float)
    off = (beats[1:] + beats[:-1]) / 2
    levels: list[NDArray[np.float64]] = [beats, np.sort(np.concatenate([beats, off])), off]
    levels += [beats[phase::step] for step in (2, 3) for phase in range(step)]
    return max(beat_f(level.tolist(), found) for level in levels)


def key_name(key: str, mode: str) -> str:
    """Spell a key as mir_eval does: "F#", "minor" gives "F# minor"."""
    symbol = key.strip().replace("♯", "#").replace("♭", "b")
    accidentals = symbol.count("#") - symbol[1:].count("b")
    return f"{PITCH_CLASSES[(_NATURAL[symbol[0].upper()] + accidentals) % 12]} {mode.lower()}"


def key_weighted(truth: Track, found: Track) -> float:
    """MIREX score: 1 exact, .5 a fifth off, .3 relative, .2 parallel, 0 for no key."""
    import mir_eval.key

    if not found.get("key") or found.get("mode") not in ("major", "minor"):
        return 0.0
    return float(
        mir_eval.key.weighted_score(
            key_name(truth["key"], truth["mode"]), key_name(found["key"], found["mode"])
        )
    )


def score_track(truth: Track, found: Track, fields: frozenset[str]) -> dict[str, float]:
    """Score one track.

    Args:
        truth: The annotation.
        found: The prediction; a missing field scores 0.
        fields: The fields that this library predicts; others are not scored.
    """
    sure = truth.get("tempo_level") == "sure"
    scores: dict[str, float] = {}
    if "tempo" in truth and "tempo" in fields:
        first, second = tempo_accuracy(truth["tempo"], found.get("tempo"))
        scores["tempo accuracy 2"] = second
        if sure:
            scores["tempo accuracy 1"] = first
    if "beats" in truth and "beats" in fields:
        beats = found.get("beats") or []
        scores["beat F any level"] = beat_f_any_level(truth["beats"], beats)
        if sure:
            scores["beat F"] = beat_f(truth["beats"], beats)
    if "downbeats" in truth and "downbeats" in fields and sure:
        scores["downbeat F"] = beat_f(truth["downbeats"], found.get("downbeats") or [])
    if "key" in truth and "key" in fields:
        scores["key weighted"] = key_weighted(truth, found)
        scores["key exact"] = float(scores["key weighted"] == 1.0)
    return scores


def score_all(
    truth: Mapping[str, Track], found: Mapping[str, Track]
) -> dict[str, dict[str, float]]:
    """Score every annotated track: track → metric → value."""
    fields = frozenset(
        field
        for field in ("tempo", "beats", "downbeats", "key")
        if any(prediction.get(field) for prediction in found.values())
    )
    return {name: score_track(track, found.get(name, {}), fields) for name, track in truth.items()}


def bootstrap(values: Sequence[float]) -> Score:
    """Mean with its 95 % percentile interval, drawing tracks with replacement."""
    sample = np.asarray(values, dtype=float)
    draws = np.random.default_rng(0).integers(0, len(sample), (_ROUNDS, len(sample)))
    low, high = np.percentile(sample[draws].mean(axis=1), [2.5, 97.5])
    return Score(float(sample.mean()), float(low), float(high), len(sample))


def summarise(
    scores: Mapping[str, Mapping[str, float]], metrics: Iterable[str] = METRICS
) -> dict[str, Score]:
    """Bootstrap every metric over the tracks that have it."""
    columns = {
        metric: [track[metric] for track in scores.values() if metric in track]
        for metric in metrics
    }
    return {metric: bootstrap(values) for metric, values in columns.items() if values}


def reliability(
    confidences: Sequence[float], hits: Sequence[float]
) -> list[tuple[float, float, int]]:
    """Group tracks by confidence: (mean confidence, share right, tracks) of each group."""
    confidence, hit = np.asarray(confidences, dtype=float), np.asarray(hits, dtype=float)
    groups = np.minimum((confidence * _GROUPS).astype(int), _GROUPS - 1)
    return [
        (float(confidence[groups == i].mean()), float(hit[groups == i].mean()), int(n))
        for i, n in enumerate(np.bincount(groups, minlength=_GROUPS))
        if n
    ]
