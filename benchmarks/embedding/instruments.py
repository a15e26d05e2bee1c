"""Rendered instruments: one tune on every General MIDI program, with two soundfonts.

A search with one font's sound among the other font's instruments should find the same family.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.embedding.music import audio_dir
from pipelines.audio.resample import resample
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.training.assets import fetch_packages
from pipelines.training.music.score import Note
from pipelines.training.sound import soundfonts

PACKAGES = ("fluid-soundfont-gm", "timgm6mb-soundfont")
FONTS = ("FluidR3_GM.sf2", "TimGM6mb.sf2")
FAMILIES = (
    *("piano", "chromatic percussion", "organ", "guitar", "bass", "strings", "ensemble", "brass"),
    *("reed", "pipe", "synth lead", "synth pad"),
)
"""General MIDI's families of eight programs, from 0 on; effects and percussion are left out."""
PROGRAMS_OF_A_FAMILY = 8
DURATION_S = 10.0
_SCALE = (0, 2, 4, 5, 7, 9, 11, 12)
_BASS = 4


def sounds(programs: int) -> Iterator[tuple[int, str, Waveform]]:
    """Yield font number, family and sound; ``programs`` of each family.

    Raises:
        OSError: libfluidsynth is not installed, or a soundfont is unavailable.
    """
    root = fetch_packages(PACKAGES, audio_dir() / "soundfonts")
    paths = [next(root.rglob(name)) for name in FONTS]
    for number, font in enumerate(paths):
        for family, name in enumerate(FAMILIES):
            for n in range(programs):
                program = PROGRAMS_OF_A_FAMILY * family + n
                yield number, name, _rendered(font, program, is_bass=family == _BASS)


def _rendered(font: Path, program: int, *, is_bass: bool) -> Waveform:
    """Play a tune; each font and program has its own."""
    rng = Random(f"{font.name} {program}")  # noqa: S311
    notes, at = [], 0.0
    base = 36 if is_bass else 60
    while at < DURATION_S - 1:
        length = rng.choice((0.25, 0.5, 0.5, 1.0))
        pitch = base + rng.choice(_SCALE)
        notes.append(Note(at, at + length, 0, pitch, rng.randint(70, 110)))
        at += length
    heard = soundfonts.play(notes, {0: program}, {0: 100}, font, DURATION_S)
    samples = resample(heard, soundfonts.SAMPLE_RATE, SAMPLE_RATE)
    return Waveform(np.ascontiguousarray(samples[None]), SAMPLE_RATE)
