"""How far the attributes of a track repeat in another part of it, and the fit of their confidence.

``python -m benchmarks.attributes.repeatability FIT CHECK`` analyses all audio below two folders
(the first 90 s of tracks of a minute or more), fits `pipelines.analysis.tags.repeatability` on the
first and prints how well that module's current weights hold on the second.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.distortions import Audio, at_speed, mp3
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import pull
from models.checkpoints.cards import choose_cards, parse_cards
from models.vibenet import ATTRIBUTES
from pipelines.analysis import mood_and_embedding
from pipelines.analysis.mood_and_embedding import MoodAndEmbeddingStep
from pipelines.analysis.records import MoodResult
from pipelines.analysis.tags.presence import with_presence
from pipelines.analysis.tags.repeatability import evidence, repeatability
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import SAMPLE_RATE, AudioError, Waveform
from pipelines.batching.steps import run_local

Floats = NDArray[np.float64]

WITHIN = 10
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_SUFFIXES = (".ogg", ".mp3", ".flac", ".wav")
_LIMITS = DecodeLimits(max_seconds=3600.0, min_seconds=0.0)
_SHORTEST, _LONGEST = 60 * SAMPLE_RATE, 90 * SAMPLE_RATE
_RIDGE = 1.0
_OF_A_TRACK = 8.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The results for a track and for another part of it; attributes are from 0 to 1."""

    track: str
    told: MoodResult
    other: MoodResult

    def repeats(self, name: str) -> bool:
        """Whether the two values are within `WITHIN` of 100."""
        one, other = (round(100 * float(getattr(mood, name))) for mood in (self.told, self.other))
        return abs(one - other) <= WITHIN


def pairs_below(folder: Path, step: MoodAndEmbeddingStep) -> Iterator[Pair]:
    """Analyse every track below a folder in parts."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
    for n, path in enumerate(files):
        try:
            samples = decode(path, _LIMITS).samples[:, :_LONGEST]
        except AudioError:
            continue
        if samples.shape[1] >= _SHORTEST:
            yield from _pairs(path.name, np.broadcast_to(samples, (2, samples.shape[1])), n, step)


def _pairs(track: str, audio: Audio, n: int, step: MoodAndEmbeddingStep) -> Iterator[Pair]:
    """Compare the whole and two excerpts with halves, excerpts and altered excerpts."""

    def hear(samples: Audio) -> MoodResult:
        return with_presence(*run_local(step, Waveform(samples)))

    rng, half = Random(track), audio.shape[1] // 2  # noqa: S311
    length = (30, 30, 15)[n % 3] * SAMPLE_RATE
    starts = (rng.randrange(half - length + 1), half + rng.randrange(half - length + 1))
    first, second = (audio[:, start : start + length] for start in starts)
    altered = [mp3(first, 64), at_speed(first, 0.97 + 0.06 * (n % 2)), equalised(first, n // 2 % 2)]
    del altered[n % 3]
    whole, one, other = (hear(samples) for samples in (audio, first, second))
    halves = hear(audio[:, :half]), hear(audio[:, half:])
    changed = [hear(samples) for samples in altered]
    yield from (Pair(track, whole, part) for part in (*halves, one, other, *changed))
    yield from (Pair(track, one, part) for part in (other, halves[1]))
    yield from (Pair(track, other, part) for part in (one, halves[0], *changed))


def equalised(audio: Audio, is_bright: int) -> Audio:
    """Move 6 dB from one end of the spectrum to the other."""
    hz = np.maximum(np.fft.rfftfreq(audio.shape[1], 1 / SAMPLE_RATE), 1)
    tilt_db = 6 / (1 + (4000 / hz) ** 2) - 6 / (1 + (hz / 150) ** 2)
    gain = 10 ** (tilt_db * (1 if is_bright else -1) / 20)
    changed: Audio = np.fft.irfft(np.fft.rfft(audio) * gain, audio.shape[1]).astype(np.float32)
    return changed


def usual_spread(pairs: Sequence[Pair], name: str) -> float:
    """Return the standard deviation between the parts of a track, over all tracks."""
    told = {id(pair.told): pair.told for pair in pairs}.values()
    squares = sum((mood.n_parts - 1) * mood.spread[name] ** 2 for mood in told)
    return math.sqrt(squares / max(1, sum(mood.n_parts - 1 for mood in told)))


def fit(pairs: Sequence[Pair], names: Sequence[str]) -> Floats:
    """Fit the weights of all attributes by one logistic regression; each track counts the same."""
    tracks = Counter(pair.track for pair in pairs)
    rows, hits, weights = [], [], []
    for name in names:
        usual = usual_spread(pairs, name)
        for pair in pairs:
            rows.append(evidence(pair.told, name, usual))
            hits.append(float(pair.repeats(name)))
            weights.append(_OF_A_TRACK / tracks[pair.track])
    return _logistic(np.array(rows), np.array(hits), np.array(weights))


def _logistic(rows: Floats, hits: Floats, weights: Floats) -> Floats:
    ridge = np.diag([1e-3, *[_RIDGE] * (rows.shape[1] - 1)])
    found: Floats = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-rows @ found))
        slope = rows.T @ (weights * (hits - chance)) - ridge @ found
        bend = (rows * (weights * chance * (1 - chance))[:, None]).T @ rows + ridge
        found = found + np.linalg.solve(bend, slope)
    return found


def table(pairs: Sequence[Pair], name: str) -> list[tuple[float, float, float, int]]:
    """Return bin, mean confidence, share that repeats and n, with the current `repeatability`."""
    said = np.array([repeatability(pair.told)[name] for pair in pairs])
    hits = np.array([pair.repeats(name) for pair in pairs])
    bins = np.digitize(said, BINS[1:-1])
    among = {BINS[b]: bins == b for b in np.unique(bins)}
    return [
        (least, float(said[here].mean()), float(hits[here].mean()), int(here.sum()))
        for least, here in among.items()
    ]


def main(fitted: Path, checked: Path) -> None:
    """Fit on one folder and check on another."""
    cards = choose_cards(parse_cards(load_table("models")))
    model_dir = Settings().resolved_model_dir()
    for role in ("tags", "attributes", "embedding"):
        pull(cards[role][0], model_dir)
    step = mood_and_embedding.build(cards, model_dir, torch.device("cpu"))
    learnt, unseen = (list(pairs_below(folder, step)) for folder in (fitted, checked))
    print("weights", fit(learnt, ATTRIBUTES).round(2))  # noqa: T201
    for name in ATTRIBUTES:
        share = fmean(pair.repeats(name) for pair in unseen)
        usual = usual_spread(learnt, name)
        print(f"{name}: usual spread {usual:.3f}; {len(unseen)} pairs, {share:.2f} repeat")  # noqa: T201
        for least, said, held, n in table(unseen, name):
            print(f"  from {least:.1f}: said {said:.2f}, held {held:.2f}, n {n}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
