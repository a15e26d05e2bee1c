"""Charts of a rhythm game as a development set: real recordings whose beats and bars are known.

Debian's songs for Frets on Fire come with charts by their musicians: the notes of the guitar in
beats of a steady tempo. `python -m benchmarks.accuracy.charts` fetches and mixes them into
``$AFA_EVAL_CHARTS`` (default: ``afa-charts`` in ``~/.cache``): ``<track>.wav``, whole songs, and
``annotations.json``.
"""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from benchmarks.evaluation_set import Setting, ask_for_nothing
from pipelines.training.assets import fetch_packages

if TYPE_CHECKING:
    import mido

PACKAGES = ("fretsonfire-songs-muldjord", "fretsonfire-songs-sectoid")
KIND = "charts"
BEATS_PER_BAR = 4
_REST_BEATS = (1.5, 4.0)
"""A note after a rest this long begins a phrase; short and long rests must give the same bars."""
_CLEAR = 0.6
"""If at least this share of the phrases on whole beats begin on one beat, it is a bar's first."""
_SHIFTS_S = np.arange(-0.1, 0.1, 0.002)
"""Range of a chart's offset, as charts are aligned by ear."""
_HOP = 128
"""Samples, some 3 ms, over which the level is measured."""


def build(folder: Path) -> dict[str, Any]:
    """Mix the songs into a folder; return their annotations."""
    import mido

    found: dict[str, Any] = {}
    for package in PACKAGES:
        root = fetch_packages([package], folder / "packages" / package)
        for chart in sorted(root.rglob("notes.mid")):
            samples, rate = _mix(chart.parent)
            name = f"chart_{chart.parent.name}".replace(" ", "-").lower()
            soundfile.write(folder / f"{name}.wav", samples, rate)
            found[name] = annotate(mido.MidiFile(chart), samples, rate)
    (folder / "annotations.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _mix(folder: Path) -> tuple[NDArray[np.float32], int]:
    """Mix a song's guitar with the rest: ``[T]``, and its sample rate."""
    stems = [soundfile.read(path, dtype="float32") for path in sorted(folder.glob("*.ogg"))]
    rate = stems[0][1]
    mixed = np.zeros(max(len(samples) for samples, _ in stems), np.float32)
    for samples, _ in stems:
        mixed[: len(samples)] += samples.mean(axis=1)
    return mixed / max(1.0, float(np.abs(mixed).max())), rate


def annotate(chart: "mido.MidiFile", samples: NDArray[np.float32], rate: int) -> dict[str, Any]:
    """Return a song's tempo and beats, and its downbeats if its phrases reveal the bars."""
    events = [message for track in chart.tracks for message in track]
    (tempo,) = {message.tempo for message in events if message.type == "set_tempo"}
    period_s = tempo / 1e6
    beats = np.arange(0.0, len(samples) / rate, period_s)
    beats += _shift(samples, rate, beats)
    truth: dict[str, Any] = {
        "kind": KIND,
        "tempo": round(60 / period_s, 3),
        "tempo_level": "sure",
        "beats": beats[beats >= 0].round(4).tolist(),
    }
    first = first_beat(chart)
    if first is not None:
        bars = beats[first::BEATS_PER_BAR]
        truth["downbeats"] = bars[bars >= 0].round(4).tolist()
    return truth


def first_beat(chart: "mido.MidiFile") -> int | None:
    """Return the index of the chart's first beat that begins a bar; None if unclear."""
    starts = set()
    for track in chart.tracks:
        ticks = 0
        for message in track:
            ticks += message.time
            if message.type == "note_on" and message.velocity:
                starts.add(round(48 * ticks / chart.ticks_per_beat) / 48)
    onsets = np.array(sorted(starts))
    rests = np.diff(onsets, prepend=-np.inf)
    told = {_commonest(onsets[rests >= rest]) for rest in _REST_BEATS}
    return told.pop() if len(told) == 1 else None


def _commonest(phrases: NDArray[np.float64]) -> int | None:
    """Return the beat of the bar on which most phrases begin, of those that begin on a beat."""
    places = Counter(int(at) % BEATS_PER_BAR for at in phrases if at == int(at))
    place, n = max(places.items(), key=lambda item: item[1], default=(0, 0))
    return place if n > _CLEAR * places.total() else None


def _shift(samples: NDArray[np.float32], rate: int, times_s: NDArray[np.float64]) -> float:
    """Return the shift in seconds that moves times to where the level rises most on average."""
    frames = samples[: len(samples) // _HOP * _HOP].reshape(-1, _HOP)
    level = np.log(np.square(np.diff(frames, axis=1)).mean(axis=1) + 1e-6)
    rise = np.maximum(np.diff(level, prepend=level[0]), 0.0)

    def at(shift_s: float) -> float:
        where = np.rint((times_s + shift_s) * rate / _HOP).astype(np.int64)
        return float(rise[where[(where >= 0) & (where < len(rise))]].mean())

    return float(max(_SHIFTS_S, key=at))


if __name__ == "__main__":
    ask_for_nothing("benchmarks.accuracy.charts", __doc__ or "")
    build(Setting().charts)
