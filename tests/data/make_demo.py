"""Render the bundled demo track: an original piece whose tempo and key are known exactly.

From the repository root ``python tests/data/make_demo.py`` writes ``serve_app/data/demo.mp3``.
The piece is 16 bars of 4/4 at 124 BPM in A minor (harmonic minor on the dominant, so that it cannot
be mistaken for C major), first downbeat at 0.25 s. It is composed and synthesised here: no samples.
"""

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

Audio = NDArray[np.float64]

SAMPLE_RATE = 44_100
TEMPO = 124.0
FIRST_DOWNBEAT_S = 0.25
N_BARS = 16
BEAT_S = 60.0 / TEMPO
BIT_RATE = 128_000
PATH = Path("serve_app/data/demo.mp3")

# MIDI note numbers, one chord per bar.
A_MINOR, F_MAJOR, D_MINOR, E_SEVENTH = (57, 60, 64), (53, 57, 60), (50, 57, 65), (52, 56, 62)
PROGRESSION = [A_MINOR, F_MAJOR, D_MINOR, E_SEVENTH] * 3 + [A_MINOR, D_MINOR, E_SEVENTH, A_MINOR]
ROOTS = [33, 29, 38, 28] * 3 + [33, 38, 28, 33]
# The melody: (beat within the four-bar phrase, length in beats, MIDI note).
MELODY = [
    (0.0, 1.0, 76), (1.0, 0.5, 74), (1.5, 0.5, 72), (2.0, 1.5, 69), (3.5, 0.5, 71),
    (4.0, 1.0, 72), (5.0, 0.5, 71), (5.5, 0.5, 69), (6.0, 2.0, 77),
    (8.0, 1.0, 74), (9.0, 0.5, 72), (9.5, 0.5, 69), (10.0, 1.5, 65), (11.5, 0.5, 69),
    (12.0, 1.0, 68), (13.0, 1.0, 71), (14.0, 1.5, 76), (15.5, 0.5, 74),
]  # fmt: skip


def hertz(note: float) -> float:
    """Equal-tempered frequency of a MIDI note, A4 = 440 Hz."""
    return float(440.0 * 2.0 ** ((note - 69) / 12))


def seconds(length_s: float) -> Audio:
    """Sample times of a note of that length."""
    return np.arange(int(length_s * SAMPLE_RATE)) / SAMPLE_RATE


def harmonic_tone(frequency: float, length_s: float, partials: int, decay: float) -> Audio:
    """A tone of 1/n partials whose upper ones die sooner; 5 ms attack, 30 ms release."""
    t = seconds(length_s)
    tone = np.zeros_like(t)
    for n in range(1, partials + 1):
        tone += np.sin(2 * np.pi * n * frequency * t) / n * np.exp(-decay * n * t)
    return tone * np.minimum(1, t / 0.005) * np.minimum(1, (length_s - t) / 0.03)


def kick() -> Audio:
    """A falling sine: 150 Hz to 48 Hz."""
    t = seconds(0.28)
    phase = 2 * np.pi * (48 * t + (150 - 48) / 28 * (1 - np.exp(-28 * t)))
    return np.sin(phase) * np.exp(-9 * t) * np.minimum(1, t / 0.001)


def noise_hit(rng: np.random.Generator, length_s: float, decay: float, bright: bool) -> Audio:
    """A burst of noise; ``bright`` takes its first difference twice, which leaves a hi-hat."""
    t = seconds(length_s)
    noise = rng.standard_normal(t.size)
    if bright:
        noise = np.diff(np.diff(noise, prepend=0.0), prepend=0.0) / 4
    return noise * np.exp(-decay * t)


def add(track: Audio, sound: Audio, beat: float, gain: float, pan: float = 0.0) -> None:
    """Mix ``sound`` into ``track`` (float64 ``[2, T]``) at ``beat``, panned at constant power."""
    start = round((FIRST_DOWNBEAT_S + beat * BEAT_S) * SAMPLE_RATE)
    stop = min(start + sound.size, track.shape[1])
    angle = (pan + 1) * np.pi / 4
    track[0, start:stop] += gain * np.cos(angle) * sound[: stop - start]
    track[1, start:stop] += gain * np.sin(angle) * sound[: stop - start]


def add_harmony(track: Audio, bar: int) -> None:
    """Pad chords, off-beat stabs from the fifth bar, and an eighth-note bass."""
    for voice, note in enumerate(PROGRESSION[bar]):
        pan = (voice - 1) * 0.5
        add(track, harmonic_tone(hertz(note), 4 * BEAT_S, 5, 0.25), bar * 4, 0.10, pan)
        if bar >= 4:
            for beat in (0.5, 1.5, 2.5, 3.5):
                stab = harmonic_tone(hertz(note + 12), 0.3 * BEAT_S, 4, 4.0)
                add(track, stab, bar * 4 + beat, 0.07, -pan)
    for eighth in range(8):
        note = ROOTS[bar] + (12 if eighth % 4 == 3 else 0)
        tone = harmonic_tone(hertz(note), 0.45 * BEAT_S, 6, 2.5)
        add(track, tone, bar * 4 + eighth / 2, 0.30 if eighth % 2 == 0 else 0.20)


def add_drums(track: Audio, bar: int, rng: np.random.Generator) -> None:
    """Kick on every beat, snare on two and four, eighth-note hats, a crash on each phrase."""
    for beat in range(4):
        add(track, kick(), bar * 4 + beat, 0.75 if beat == 0 else 0.6)
        if beat % 2 == 1 and bar >= 2:
            add(track, noise_hit(rng, 0.2, 22, bright=False), bar * 4 + beat, 0.13, 0.1)
            add(track, harmonic_tone(190, 0.12, 2, 18), bar * 4 + beat, 0.2, 0.1)
        for half in (0.0, 0.5):
            hat = noise_hit(rng, 0.09, 60 if half == 0.0 else 35, bright=True)
            add(track, hat, bar * 4 + beat + half, 0.16, 0.3)
    if bar % 4 == 0:
        add(track, noise_hit(rng, 1.6, 3, bright=True), bar * 4, 0.14, -0.3)


def render() -> NDArray[np.float32]:
    """The whole piece: float32 ``[2, T]``, peak 0.9."""
    rng = np.random.default_rng(124)
    length_s = FIRST_DOWNBEAT_S + N_BARS * 4 * BEAT_S + 0.5
    track = np.zeros((2, int(length_s * SAMPLE_RATE)))
    for bar in range(N_BARS):
        add_harmony(track, bar)
        add_drums(track, bar, rng)
    for phrase in (1, 2):
        for beat, length, note in MELODY:
            tone = harmonic_tone(hertz(note), length * BEAT_S * 0.95, 7, 1.2)
            add(track, tone, phrase * 16 + beat, 0.20, 0.15)
    return np.asarray(0.9 * track / np.abs(track).max(), dtype=np.float32)


def write_mp3(waveform: NDArray[np.float32], path: Path) -> None:
    """Encode float32 ``[2, T]`` as a constant-bit-rate MP3."""
    with av.open(str(path), "w", format="mp3") as container:
        container.metadata.update(
            {"title": "Demo in A minor", "artist": "The afa Demo Band", "album": "Fixtures"}
        )
        stream = container.add_stream("libmp3lame", rate=SAMPLE_RATE, layout="stereo")
        stream.bit_rate = BIT_RATE
        for start in range(0, waveform.shape[1], 1152):
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(waveform[:, start : start + 1152]), "fltp", "stereo"
            )
            frame.sample_rate = SAMPLE_RATE
            frame.pts = start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


if __name__ == "__main__":
    write_mp3(render(), PATH)
