"""Scores of the music21 corpus (mostly public domain), each parsed once and kept as notes."""

import json
import pickle
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pipelines.training.music.score import Note, Piece, UnusableError

_COMPOSERS = {
    "bach": 20, "mozart": 5, "haydn": 4, "beethoven": 5, "joplin": 3, "chopin": 2, "corelli": 1,
    "schumann_robert": 2, "schumann_clara": 1, "schubert": 1, "handel": 1, "monteverdi": 1,
    "weber": 1, "verdi": 1, "beach": 1, "josquin": 1, "johnson_j_r": 1, "leadSheet": 1,
    "miscFolk": 1, "ryansMammoth": 2, "airdsAirs": 1, "oneills1850": 1, "nottingham-dataset": 1,
}  # fmt: skip
_KEYBOARD = {"chopin", "joplin", "schumann_robert", "schumann_clara"}
_ENSEMBLES = (
    (40, 40, 41, 42), (48,), (44,), (19,), (52,), (53,), (56, 57, 58, 58), (73, 68, 71, 70),
    (21,), (24,), (46, 48), (11,), (49,),
)  # fmt: skip
_LARGEST_BYTES = 200_000
_LONGEST_PARSE_S = 60
_MOST_SCORES = 200


@dataclass(frozen=True, slots=True)
class ParsedScore:
    """What is kept of a score; times in beats.

    Attributes:
        notes: Start, end, part and pitch.
        downbeats: First beats of the bars.
        end: The score's length.
        offset: Position of the first beat.
        key: Tonic's pitch class, plus 12 for minor; None if the score does not state it.
    """

    notes: list[tuple[float, float, int, int]]
    downbeats: list[float]
    end: float
    offset: float
    key: int | None


def excluded_scores(annotations: Path) -> set[str]:
    """Return the names of the scores of a development set's tracks."""
    if not annotations.is_file():
        return set()
    tracks = json.loads(annotations.read_text())
    return {name.split("_", 1)[1] for name in tracks if name.startswith(("dm21_", "m21_"))}


class CorpusSource:
    """Draws pieces from the corpus.

    Args:
        cache: Folder for parsed scores.
        development_set: Annotations whose scores, and others with the same name, are left out.
    """

    def __init__(self, cache: Path, development_set: str) -> None:
        self._cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        self._excluded = excluded_scores(Path(development_set))
        self._scores: dict[str, list[Path]] = {}

    def __call__(self, rng: Random, duration_s: float) -> Piece:  # noqa: ARG002
        """Draw a score and an ensemble; a score may be shorter than `duration_s`."""
        scores = self._scores or self._list()
        composers = sorted(scores)
        composer = rng.choices(composers, [_COMPOSERS[name] for name in composers])[0]
        path = rng.choice(scores[composer])
        score = self._load(path)
        tempo = min(190.0, max(48.0, 95 * 2 ** rng.gauss(0, 0.43)))
        is_keyboard = composer in _KEYBOARD or rng.random() < 0.4
        programs = rng.choice([(0,), (0,), (1,), (6,)]) if is_keyboard else rng.choice(_ENSEMBLES)
        notes = [
            # Channel 9 is for drums.
            Note(a, b, (part if part < 9 else part + 1) % 16, pitch, rng.randint(66, 96))
            for a, b, part, pitch in score.notes
        ]
        beats = []
        at = score.offset
        while at < score.end:
            beats.append(at)
            at += 1.0
        if not notes or len(beats) < 8 or not score.downbeats:
            raise UnusableError(f"{path.name} is too short")
        channels = {note.channel for note in notes}
        return Piece(
            f"corpus:{composer}",
            notes,
            {channel: programs[channel % len(programs)] for channel in channels},
            tempo,
            beats,
            score.downbeats,
            key=score.key,
            is_expressive=True,
        )

    def _list(self) -> dict[str, list[Path]]:
        from music21 import corpus

        for path in sorted(corpus.getCorePaths()):
            name = "/".join(Path(path).with_suffix("").parts).split("corpus/")[-1]
            slug = re.sub(r"\W+", "_", name.lower()).strip("_")
            composer = name.split("/")[0]
            if composer not in _COMPOSERS or self._is_excluded(slug):
                continue
            self._scores.setdefault(composer, []).append(Path(path))
        # Parsing is expensive: of a long list, every n-th score will do.
        for composer, paths in self._scores.items():
            self._scores[composer] = paths[:: -(-len(paths) // _MOST_SCORES)]
        return self._scores

    def _is_excluded(self, slug: str) -> bool:
        return any(slug in name or name in slug for name in self._excluded)

    def _load(self, path: Path) -> ParsedScore:
        """Read a parsed score, or parse it; an unusable score is remembered as such."""
        kept = self._cache / f"{path.parent.name}-{path.name}.pickle"
        if kept.exists():
            # Written below, by this class.
            score: ParsedScore | None = pickle.loads(kept.read_bytes())  # noqa: S301
        else:
            score = parse_score(path)
            kept.write_bytes(pickle.dumps(score))
        if score is None:
            raise UnusableError(f"{path.name} cannot be used")
        return score


def parse_score(path: Path) -> ParsedScore | None:
    """Parse a score with one metre; None if its bars cannot be determined.

    Raises:
        ImportError: music21 is not installed.
    """
    from music21 import converter, meter
    from music21.exceptions21 import Music21Exception

    is_book = path.suffix == ".abc" and path.stat().st_size > 4000
    if is_book or path.stat().st_size > _LARGEST_BYTES:
        return None
    begun = time.monotonic()
    try:
        stream: Any = converter.parse(path)
        part = stream.parts[0] if stream.parts else stream
        metres = list(part.flatten().getElementsByClass(meter.TimeSignature))
        if len({found.ratioString for found in metres}) != 1:
            return None
        return (
            _measure(stream, part, metres[0])
            if time.monotonic() - begun < _LONGEST_PARSE_S
            else None
        )
    except (Music21Exception, AttributeError, ValueError, ZeroDivisionError):
        return None


def _measure(stream: Any, part: Any, metre: Any) -> ParsedScore:
    unit = _beat_quarters(metre.numerator, metre.denominator)
    notes = []
    for i, voice in enumerate(stream.parts or [stream]):
        for element in voice.flatten().stripTies().notes:
            if type(element).__name__ not in {"Note", "Chord"}:
                continue
            start = float(element.offset) / unit
            end = float(element.offset + element.quarterLength * 0.95) / unit
            notes += [(start, end, i, int(pitch.midi)) for pitch in element.pitches]
    bars = part.getElementsByClass("Measure")
    downbeats = _downbeats(
        [(float(bar.offset), float(bar.highestTime)) for bar in bars],
        float(metre.barDuration.quarterLength),
    )
    downbeats = [at / unit for at in downbeats]
    offset = downbeats[0] % 1 if downbeats else 0.0
    return ParsedScore(notes, downbeats, float(stream.highestTime) / unit, offset, _key(stream))


def _beat_quarters(numerator: int, denominator: int) -> float:
    """Return a beat's length in quarter notes."""
    if denominator == 8 and numerator % 3 == 0 and numerator > 3:
        return 1.5
    return 0.5 if denominator == 8 else 4 / denominator


def _downbeats(bars: Iterable[tuple[float, float]], length: float) -> list[float]:
    """Find where bars begin, ignoring a pick-up and the second part of a split bar."""
    found, lacking = [], 0.0
    for i, (offset, filled) in enumerate(bars):
        if filled < length - 1e-6 and (i == 0 or filled <= lacking + 1e-6):
            lacking = max(0.0, lacking - filled)
        else:
            lacking = max(0.0, length - filled)
            found.append(offset)
    return found


def _key(stream: Any) -> int | None:
    """Read the key that the score states."""
    for found in stream.flatten().getElementsByClass("Key"):
        tonic: int = found.tonic.pitchClass
        return tonic + 12 * int(found.mode == "minor")
    return None
