"""Chords against those of scores and, for recordings, against those of another network.

The music is that of `benchmarks.accuracy.chord_pieces`. Figures are the shares of the time in which
mir_eval's comparisons agree, averaged over pieces, and the share of the time with a right chord for
each range of confidence.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.evaluation_set import Setting
from benchmarks.report import Options, Result
from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis.records import UNKNOWN_KEY, Chord
from pipelines.analysis.spectral import build
from pipelines.analysis.tonality.notes import chord_name
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.batching.steps import CPU, run_local
from pipelines.training.metrics import summarise

NAME = "chords"
RECORDINGS = "recording"
"""The kind of pieces with chords from a network; their basses do not count against afa."""
WITHOUT_BASS = {"majmin": "major, minor", "root": "root"}
METRICS = {**WITHOUT_BASS, "majmin_inv": "with the bass"}
"""mir_eval's comparison → its name here."""
CONFIDENCES = (0.0, 0.5, 0.7, 0.9, 1.0)
"""Edges of the ranges in which right chords are counted."""
UNKNOWN = "X"
"""An unknown chord in mir_eval's notation."""
Label = tuple[float, float, str]
"""Start and end in seconds, and a chord in Harte's notation, or `UNKNOWN`."""

_QUICK_STRIDE = 5
_SILENCE = Chord(0.0, 0.0, UNKNOWN_KEY, UNKNOWN_KEY, UNKNOWN_KEY, 1.0)
"""The chord reported for a track without sound."""
_RANGES = tuple(pairwise(CONFIDENCES))


def run(options: Options, setting: Setting | None = None) -> Result:
    """Analyse, compare and count.

    Args:
        options: ``is_quick`` takes every fifth piece.
        setting: Where the music is.
    """
    setting = setting or Setting()
    path = setting.chords / "annotations.json"
    if not path.is_file():
        return Result(
            NAME, skipped=f"no {path}: python -m benchmarks.accuracy.chord_pieces makes it"
        )
    pieces: dict[str, Any] = json.loads(path.read_text())
    if options.is_quick:
        pieces = dict(list(pieces.items())[::_QUICK_STRIDE])
    files = [setting.chords / f"{name}.wav" for name in pieces]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        return Result(NAME, skipped=f"{len(missing)} pieces are not there, {missing[0]} for one")
    found = _analysed(files, setting.model_dir)
    kinds = {name: piece["kind"] for name, piece in pieces.items()}
    scores = {
        name: compare(
            piece["chords"], found[name], WITHOUT_BASS if kinds[name] == RECORDINGS else METRICS
        )
        for name, piece in pieces.items()
    }
    by_kind = {
        kind: summarise({n: scored for n, scored in scores.items() if kinds[n] == kind}, METRICS)
        for kind in dict.fromkeys(kinds.values())
    }
    told = {
        kind: right_by_confidence(
            [(pieces[name]["chords"], found[name]) for name in pieces if kinds[name] == kind]
        )
        for kind in by_kind
    }
    bins = [f"{low:.1f}-{high:.1f}" for low, high in _RANGES]
    return Result(
        NAME,
        values={
            "kinds": {
                kind: {metric: asdict(score) for metric, score in means.items()}
                for kind, means in by_kind.items()
            },
            "right_by_confidence": {
                kind: dict(zip(bins, shares, strict=True)) for kind, shares in told.items()
            },
            "pieces": scores,
        },
        columns=("", *METRICS.values(), *(f"right at {name}" for name in bins)),
        rows=[
            (
                kind,
                *(means[metric].counted if metric in means else "-" for metric in METRICS),
                *("-" if share is None else f"{share:.2f}" for share, _ in told[kind]),
            )
            for kind, means in by_kind.items()
        ],
    )


def _analysed(paths: Sequence[Path], model_dir: Path) -> dict[str, Sequence[Chord]]:
    cards = choose_cards(parse_cards(load_table("models")))
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = build(cards, model_dir, CPU)
        return {
            path.stem: run_local(step, decode(path, DecodeLimits())).chords or [_SILENCE]
            for path in paths
        }
    finally:
        torch.set_num_threads(n_threads)


def compare(
    truth: Sequence[Label], found: Sequence[Chord], metrics: Iterable[str] = METRICS
) -> dict[str, float]:
    """Score a piece: metric → share of the time; metrics to which nothing applies are left out."""
    import mir_eval.chord

    _, reference, estimate, lengths = _side_by_side(truth, found)
    scores = {}
    for metric in metrics:
        comparisons = getattr(mir_eval.chord, metric)(reference, estimate)
        if lengths[comparisons >= 0].any():
            scores[metric] = float(mir_eval.chord.weighted_accuracy(comparisons, lengths))
    return scores


def _side_by_side(
    truth: Sequence[Label], found: Sequence[Chord]
) -> tuple[NDArray[np.int64], list[str], list[str], NDArray[np.float64]]:
    """Cut both at all edges; return each stretch's index in ``found``, both labels and length."""
    edges = np.unique([at for start, end, _ in truth for at in (start, end)])
    starts = np.array([chord.start_s for chord in found])
    edges = np.unique([*edges, *(at for at in starts if edges[0] < at < edges[-1])])
    middles = (edges[:-1] + edges[1:]) / 2
    said = np.maximum(0, np.searchsorted(starts, middles, "right") - 1)
    firsts = np.array([start for start, *_ in truth])
    places = np.searchsorted(firsts, middles, "right") - 1
    is_known = [truth[place][1] >= middle for place, middle in zip(places, middles, strict=True)]
    reference = [
        truth[place][2] if known else UNKNOWN for place, known in zip(places, is_known, strict=True)
    ]
    names = [chord_name(chord.root, chord.mode, chord.bass) for chord in found]
    return said, reference, [names[place] for place in said], np.diff(edges)


def right_by_confidence(
    pieces: Sequence[tuple[Sequence[Label], Sequence[Chord]]],
) -> list[tuple[float | None, float]]:
    """Return for each range of `CONFIDENCES` the share of the time that was right, and its seconds.

    A chord is right regardless of its bass.
    """
    import mir_eval.chord

    right, heard = np.zeros(len(_RANGES)), np.zeros(len(_RANGES))
    for truth, found in pieces:
        said, reference, estimate, lengths = _side_by_side(truth, found)
        hits = mir_eval.chord.majmin(reference, estimate)
        confidences = np.array([found[place].confidence for place in said])
        places = np.clip(np.searchsorted(CONFIDENCES, confidences, "right") - 1, 0, len(right) - 1)
        counts = hits >= 0
        np.add.at(heard, places[counts], lengths[counts])
        np.add.at(right, places[counts], (lengths * hits)[counts])
    return [
        (float(hit / total) if total else None, float(total))
        for hit, total in zip(right, heard, strict=True)
    ]
