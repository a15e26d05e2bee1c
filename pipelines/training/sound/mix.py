"""From a performance to a mix: which instrument plays which part."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from pipelines.training.music.performance import Performance
from pipelines.training.music.score import DRUMS, EFFECTS, KICK, Note, Piece
from pipelines.training.sound.drumkits import play_drums, sampled_kits
from pipelines.training.sound.effects import play_effects
from pipelines.training.sound.mixing import Waveform, distort, duck, master, normalise
from pipelines.training.sound.soundfonts import play
from pipelines.training.sound.synthesis import draw_patch, play_patch, sing

_PIANOS = range(8)


@dataclass(frozen=True, slots=True)
class Instruments:
    """The sounds of one set (training or held out).

    Attributes:
        fonts: General MIDI soundfonts; one named twice is drawn twice as often.
        drum_fonts: Soundfonts for drums.
        kits_folder: Folder of Hydrogen's kits; None if there are none.
        kits: Names of the kits used.
        has_synthesis: Whether oscillators, voices and synthetic drums may play.
    """

    fonts: Sequence[Path]
    drum_fonts: Sequence[Path]
    kits_folder: Path | None = None
    kits: Sequence[str] = ()
    has_synthesis: bool = True


def render_mix(
    piece: Piece,
    performance: Performance,
    instruments: Instruments,
    duration_s: float,
    rng: Random,
    noise: np.random.Generator,
    drums_level: float = 1.0,
) -> Waveform:
    """Render a performance with random instruments and mix it, float32 ``[T]`` at 22,050 Hz."""
    by_channel: dict[int, list[Note]] = {}
    for note in performance.notes:
        by_channel.setdefault(note.channel, []).append(note)
    drums = by_channel.pop(DRUMS, [])
    parts: list[tuple[Waveform, float]] = []
    effects = by_channel.pop(EFFECTS, [])
    if instruments.has_synthesis:
        if effects:
            parts.append((play_effects(effects, duration_s, noise), 0.0))
        parts += _synthesised(piece, by_channel, duration_s, rng, noise)
    parts += _sampled(piece, by_channel, instruments, duration_s, rng)
    if parts and drums and rng.random() < (0.5 if piece.is_electronic else 0.06):
        kicks = [note.start for note in drums if note.pitch == KICK]
        depth = rng.uniform(0.3, 0.9)
        parts = [(duck(part, kicks, depth), gain) for part, gain in parts]
    if drums:
        gain = drums_level * float(np.exp(rng.gauss(0.1, 0.5)))
        parts.append((_drums(piece, drums, instruments, duration_s, rng, noise), gain))
    mix = np.zeros(round(duration_s * 22_050), dtype=np.float32)
    for part, gain in parts:
        # Gain 0: effects keep their level relative to the others.
        mix += part / 0.15 * 0.6 if gain == 0.0 else gain * normalise(part)
    return master(mix, rng, noise)


def _synthesised(
    piece: Piece,
    by_channel: dict[int, list[Note]],
    duration_s: float,
    rng: Random,
    noise: np.random.Generator,
) -> list[tuple[Waveform, float]]:
    """Render some channels by synthesis, and remove them from `by_channel`."""
    parts: list[tuple[Waveform, float]] = []
    voice = piece.voice
    if voice in by_channel and rng.random() < (0.12 if piece.is_electronic else 0.3):
        parts.append((sing(by_channel.pop(voice), duration_s, rng, noise), rng.uniform(0.5, 1.6)))
    is_choir = piece.is_expressive and len(by_channel) >= 3 and rng.random() < 0.12
    is_bowed = piece.is_expressive and rng.random() < 0.12
    share = 0.75 if piece.is_electronic and rng.random() < 0.8 else 0.0
    share = share or (0.08 if not piece.is_expressive else 0.0)
    for channel in sorted(by_channel):
        if is_choir:
            part = sing(by_channel.pop(channel), duration_s, rng, noise)
        elif is_bowed or rng.random() < share:
            notes = by_channel.pop(channel)
            long = float(np.mean([note.end - note.start for note in notes])) > 0.6
            patch = draw_patch(rng, is_soft=is_bowed or long)
            part = play_patch(notes, patch, duration_s, rng.choice([8.0, 16.0, 30.0]))
        else:
            continue
        parts.append((part, rng.uniform(0.4, 1.1)))
    return parts


def _sampled(
    piece: Piece,
    by_channel: dict[int, list[Note]],
    instruments: Instruments,
    duration_s: float,
    rng: Random,
) -> list[tuple[Waveform, float]]:
    """Render the remaining channels with a soundfont; distorted guitars separately."""
    parts: list[tuple[Waveform, float]] = []
    font = rng.choice(instruments.fonts)
    programs = {channel: piece.programs.get(channel, 0) for channel in by_channel}
    for channel in by_channel:
        if not piece.is_expressive and channel not in piece.distorted and rng.random() < 0.25:
            programs[channel] = rng.randrange(96)
    volumes = {channel: rng.randint(60, 120) for channel in range(16)}
    dirty = {c for c in by_channel if c in piece.distorted and rng.random() < 0.7}
    clean = [note for c, notes in by_channel.items() if c not in dirty for note in notes]
    if clean:
        pedal: list[float] = []
        if piece.is_expressive and programs.get(0) in _PIANOS and rng.random() < 0.6:
            pedal = [note.start for note in clean if note.channel == 1 and note.velocity > 60][::2]
        part = play(clean, programs, volumes, font, duration_s, pedal)
        parts.append((distort(part, rng.uniform(1, 4)) if rng.random() < 0.04 else part, 1.0))
    if dirty:
        notes = [note for c in sorted(dirty) for note in by_channel[c]]
        part = play(notes, programs, volumes, font, duration_s)
        parts.append((distort(part, rng.uniform(2, 12)), rng.uniform(0.5, 1.3)))
    return parts


def _drums(
    piece: Piece,
    notes: list[Note],
    instruments: Instruments,
    duration_s: float,
    rng: Random,
    noise: np.random.Generator,
) -> Waveform:
    """Render drums with a sampled kit, synthetic drums or a soundfont."""
    draw = rng.random()
    kits = {}
    if instruments.kits_folder:
        found = sampled_kits(instruments.kits_folder)
        kits = {name: found[name] for name in instruments.kits if name in found}
    if instruments.has_synthesis and draw < (0.4 if piece.is_electronic else 0.12):
        return play_drums(notes, None, duration_s, rng, noise)
    if kits and draw < 0.75:
        return play_drums(notes, kits[rng.choice(sorted(kits))], duration_s, rng, noise)
    volumes = {DRUMS: rng.randint(80, 120)}
    program = rng.choice([0, 0, 8, 16, 24, 25] if piece.is_electronic else [0, 0, 0, 8, 16, 40])
    font = rng.choice(instruments.drum_fonts)
    return play(notes, {DRUMS: program}, volumes, font, duration_s)
