"""Tempo of metronomes from 40 to 240 BPM, the first thing that a developer tries.

Six sounds, without accents, in 3/4 and in 4/4. A tempo is right within 1 %; half and double are
wrong, and `tempo_alternatives` should then offer the right one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.report import Options, Result, Target
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis.spectral import build
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.steps import run_local

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "metronomes"

TEMPI = range(40, 250, 10)
METRES = (0, 3, 4)
"""Clicks from one accent to the next; 0 has none."""
SECONDS = 20.0
FIRST_S = 0.2
SAME = 0.01
QUICK_STRIDE = 9

_CLICK_S = 0.06
_HZ = {"woodblock": (820.0, 1240.0, 2710.0), "beep": (1000.0,), "low beep": (440.0,)}
_DECAY_S = {"click": 0.002, "woodblock": 0.025, "kick": 0.03, "hat": 0.012}
SOUNDS = ("click", "woodblock", "beep", "low beep", "kick", "hat")
_SOFT = 0.6
"""Level of a click without an accent."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The result for one metronome; tempi in BPM."""

    tempo: int
    sound: str
    metre: int
    told: float
    alternatives: list[float]

    @property
    def is_right(self) -> bool:
        """Whether the reported tempo is right."""
        return _is(self.told, self.tempo)

    @property
    def is_offered(self) -> bool:
        """Whether the right tempo is reported or among the alternatives."""
        return any(_is(told, self.tempo) for told in (self.told, *self.alternatives))


def _is(told: float, tempo: float) -> bool:
    return abs(told / tempo - 1.0) < SAME


def run(options: Options) -> Result:
    """Analyse every metronome."""
    cards = choose_cards(parse_cards(load_table("models")))
    step = build(cards, Settings().resolved_model_dir(), torch.device("cpu"))
    clips = [(tempo, sound, metre) for tempo in TEMPI for sound in SOUNDS for metre in METRES]
    found = []
    for tempo, sound, metre in clips[:: QUICK_STRIDE if options.is_quick else 1]:
        heard = run_local(step, Waveform(metronome(tempo, sound, metre, SECONDS)[None]))
        others = [round(other.tempo, 2) for other in heard.tempo_alternatives]
        found.append(Heard(tempo, sound, metre, round(heard.tempo, 2), others))
    return summarise(found)


def metronome(tempo: float, sound: str, metre: int, seconds: float) -> NDArray[np.float32]:
    """Tick from `FIRST_S` on.

    Args:
        tempo: BPM.
        sound: One of `SOUNDS`.
        metre: One of `METRES`, or any other.
        seconds: Length.

    Returns:
        float32 ``[T]`` at 44.1 kHz.
    """
    n = int(seconds * SAMPLE_RATE)
    track = np.zeros(n + SAMPLE_RATE)
    for i, beat in enumerate(np.arange(FIRST_S, seconds, 60 / tempo)):
        click = _click(sound, is_accent=metre > 0 and i % metre == 0)
        at = round(beat * SAMPLE_RATE)
        track[at : at + len(click)] += click
    return (0.7 * track[:n]).astype(np.float32)


def _click(sound: str, *, is_accent: bool) -> NDArray[np.float64]:
    t = np.arange(int(_CLICK_S * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = 1.5 if is_accent else 1.0
    if sound in _HZ:
        wave = np.sum([np.sin(2 * np.pi * hz * pitch * t) for hz in _HZ[sound]], axis=0)
    elif sound == "kick":
        wave = np.sin(2 * np.pi * np.cumsum(50.0 + 100.0 * np.exp(-60.0 * t)) / SAMPLE_RATE)
    else:
        wave = np.random.default_rng(5).standard_normal(len(t))
        if sound == "hat":
            wave = np.diff(wave, prepend=0.0)
    decay_s = _DECAY_S.get(sound)
    edges = np.minimum(1.0, np.minimum(t, t[::-1]) / 0.002)
    wave = wave * (edges if decay_s is None else np.exp(-t / decay_s))
    return np.asarray(wave / np.abs(wave).max() * (1.0 if is_accent else _SOFT))


def summarise(found: Sequence[Heard]) -> Result:
    """Count the right results at each tempo."""
    by_tempo = {tempo: [one for one in found if one.tempo == tempo] for tempo in TEMPI}
    by_tempo = {tempo: heard for tempo, heard in by_tempo.items() if heard}
    rows = [
        (
            tempo,
            len(heard),
            sum(one.is_right for one in heard),
            sum(one.is_offered for one in heard),
            ", ".join(sorted({f"{one.told:.0f}" for one in heard if not one.is_right})),
        )
        for tempo, heard in by_tempo.items()
    ]
    offered = sum(one.is_offered for one in found) / len(found)
    return Result(
        NAME,
        values={
            "n": len(found),
            "right": sum(one.is_right for one in found),
            "offered": sum(one.is_offered for one in found),
            "wrong": [asdict(one) for one in found if not one.is_right],
        },
        columns=("BPM", "n", "right", "right or an alternative", "told instead"),
        rows=rows,
        targets=(Target("right or an alternative, share", offered, 1.0),),
        draw=_drawing(rows),
    )


def _drawing(rows: Sequence[tuple[int, int, int, int, str]]) -> "Callable[[Axes], None]":
    def draw(axes: "Axes") -> None:
        tempi = [row[0] for row in rows]
        axes.bar(tempi, [row[3] for row in rows], width=8, label="right or an alternative")
        axes.bar(tempi, [row[2] for row in rows], width=5, label="right")
        axes.set(xlabel="BPM", ylabel="metronomes", title="Six sounds, three accents, 20 s")
        axes.legend(loc="lower center")

    return draw
