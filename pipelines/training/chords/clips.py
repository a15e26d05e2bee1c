"""A clip with its chords from one seed: what sounds when, and the network's input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from models.tonality.chordnet import FRAME_CENTRE, FRAME_SAMPLES, FRAMES_TOGETHER, NO_CHORD
from models.tonality.keynet import KeyBands
from pipelines.training.clips import Generator, played
from pipelines.training.kept import reading
from pipelines.training.key.clips import NO_BASS, mastered
from pipelines.training.music.performance import Performance
from pipelines.training.music.score import DRUMS, EFFECTS, ChordSpan, Note, Piece
from pipelines.training.sound.mix import Instruments, render_mix
from pipelines.training.sound.mixing import Waveform
from pipelines.training.sound.soundfonts import SAMPLE_RATE

ROOT_ONLY = 25
"""This plus the root means a chord whose third does not sound."""
UNKNOWN_CHORD = -1
_BASS_BELOW = 60
_KEYBOARD = 128
_BASS_CHANNEL = 1
_INVERTED_PIECES, _INVERTED_CHORDS = 0.35, 0.3


@dataclass(frozen=True, slots=True)
class ChordClip:
    """A clip's bands and truth.

    Attributes:
        bands: float16 ``[N, 180]``, in tune with 440 Hz, see
            `models.tonality.keynet.KeyBands.magnitudes`.
        pitches: uint8 ``[N, 12]``: 1 if a pitch class sounds.
        bass: int8 ``[N]``: pitch class of the lowest note below middle C, or `NO_BASS`.
        chords: int8 ``[N]``: as in `models.tonality.chordnet.N_CHORDS`, `ROOT_ONLY` plus the root,
            or `UNKNOWN_CHORD`.
    """

    bands: NDArray[np.float16]
    pitches: NDArray[np.uint8]
    bass: NDArray[np.int8]
    chords: NDArray[np.int8]

    def save(self, path: Path) -> None:
        """Write the clip; the file appears whole or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(part, bands=self.bands, pitches=self.pitches, bass=self.bass, chords=self.chords)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "ChordClip":
        """Read what `save` wrote; raises as `pipelines.training.kept.reading`."""
        with reading(path) as file, np.load(file) as content:
            return cls(content["bands"], content["pitches"], content["bass"], content["chords"])


def make_chord_clip(
    kind: str,
    seed: int,
    generators: Mapping[str, Generator],
    instruments: Instruments,
    duration_s: float,
) -> ChordClip:
    """Invent, play, mix and measure a clip.

    Raises:
        UnusableError: See `played`.
    """
    mix, performance = perform_clip(kind, seed, generators, instruments, duration_s)
    return measure(mix, performance)


def perform_clip(
    kind: str,
    seed: int,
    generators: Mapping[str, Generator],
    instruments: Instruments,
    duration_s: float,
) -> tuple[Waveform, Performance]:
    """Invent, play and mix a clip; some pieces have chords whose bass is not the root.

    Raises:
        UnusableError: See `played`.
    """
    rng = Random(f"chords {kind} {seed}")  # noqa: S311
    noise = np.random.default_rng(seed)

    def generator(rng: Random, duration_s: float) -> Piece:
        piece = generators[kind](rng, duration_s)
        has_bass = kind in {"band", "electronic"}
        return inverted(piece, rng) if has_bass and rng.random() < _INVERTED_PIECES else piece

    piece, performance = played(f"{kind} {seed}", generator, rng, duration_s)
    drums = float(np.exp(rng.gauss(0.25, 0.6))) if rng.random() < 0.6 else 1.0
    mix = render_mix(piece, performance, instruments, duration_s, rng, noise, drums)
    return retuned(mastered(mix, rng), performance, rng.choice([0, 0, 0, -2, -1, 1, 2]))


def inverted(piece: Piece, rng: Random) -> Piece:
    """Put the third or fifth of some chords into the bass."""
    moves = [
        (chord, rng.choice(chord.tones[1:3]))
        for chord in piece.chords
        if rng.random() < _INVERTED_CHORDS
    ]
    notes: list[Note] = []
    for note in piece.notes:
        move = 0
        if note.channel == _BASS_CHANNEL:
            inside = (up for chord, up in moves if chord.start <= note.start < chord.end)
            move = next(inside, 0)
        notes.append(note._replace(pitch=note.pitch + move))
    return replace(piece, notes=notes)


def retuned(mix: Waveform, performance: Performance, shift: int) -> tuple[Waveform, Performance]:
    """Shift the sound and its notes by whole semitones, as a change of tape speed does."""
    if not shift:
        return mix, performance
    faster = 2 ** (shift / 12)
    return soxr.resample(mix, SAMPLE_RATE, SAMPLE_RATE / faster), Performance(
        [
            note if note.channel in (DRUMS, EFFECTS) else note._replace(pitch=note.pitch + shift)
            for note in (
                note._replace(start=note.start / faster, end=note.end / faster)
                for note in performance.notes
            )
        ],
        performance.beats / faster,
        performance.downbeats / faster,
        [
            chord._replace(
                start=chord.start / faster,
                end=chord.end / faster,
                root=(chord.root + shift) % 12,
            )
            for chord in performance.chords
        ],
    )


def measure(mix: Waveform, performance: Performance) -> ChordClip:
    """Measure the bands, and find the notes and chords of each frame."""
    peak = max(float(np.abs(mix).max()), 1e-6)
    with torch.inference_mode():
        waveform = torch.from_numpy(np.ascontiguousarray(mix))[None] / peak
        bands = KeyBands(FRAMES_TOGETHER).magnitudes(waveform)[0]
    n = len(bands)
    rate = SAMPLE_RATE / FRAME_SAMPLES
    pitches = np.zeros((n, 12), dtype=np.uint8)
    lowest = np.full(n, _KEYBOARD)
    notes = [note for note in performance.notes if note.channel not in (DRUMS, EFFECTS)]
    for note in notes:
        first = round(note.start * rate)
        last = max(first + 1, round(note.end * rate))
        pitches[first:last, note.pitch % 12] = 1
        lowest[first:last] = np.minimum(lowest[first:last], note.pitch)
    middles = (np.arange(n) * FRAME_SAMPLES + FRAME_CENTRE) / SAMPLE_RATE
    chords = np.where(pitches.any(axis=1), UNKNOWN_CHORD, NO_CHORD)
    for chord in performance.chords:
        inside = (middles >= chord.start) & (middles < chord.end)
        chords[inside] = told(chord, notes)
    return ChordClip(
        bands.clamp_max(60_000).numpy().astype(np.float16),
        pitches,
        np.where(lowest < _BASS_BELOW, lowest % 12, NO_BASS).astype(np.int8),
        chords.astype(np.int8),
    )


def told(chord: ChordSpan, notes: Sequence[Note]) -> int:
    """Return a chord as in `ChordClip.chords`, judged by which of its notes sound."""
    sounding = {
        note.pitch % 12
        for note in notes
        if note.start < chord.end - 0.05 and note.end > chord.start + 0.05
    }
    if not sounding:
        return NO_CHORD
    if chord.root not in sounding or len(sounding) < 2:
        return UNKNOWN_CHORD
    for third, base in ((4, 0), (3, 12)):
        if third in chord.tones and (chord.root + third) % 12 in sounding and 6 not in chord.tones:
            return base + chord.root
    return ROOT_ONLY + chord.root
