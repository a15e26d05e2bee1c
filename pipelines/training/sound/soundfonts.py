"""Soundfonts, played by libfluidsynth inside the process.

A synthesiser is kept for each soundfont, so that fonts are loaded once. Every rendering starts with
a reset synthesiser and is a function of its notes, except for a few milliseconds of attacks: a
voice remembers what it played last.
"""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.training.assets import load_library
from pipelines.training.music.score import Note

SAMPLE_RATE = 22_050
_LIBRARY = "libfluidsynth.so.3"
_GAIN = 0.4
_POLYPHONY = 64
_BLOCK = 64
_LINEAR = 1  # Interpolation between samples: a third of the cost of the default.
_CONTROL_VOLUME = 7
_CONTROL_PEDAL = 64


@cache
def library() -> ctypes.CDLL:
    """Load libfluidsynth.

    Raises:
        OSError: It is not installed.
    """
    fluid = load_library(_LIBRARY, "libfluidsynth3")
    pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    fluid.new_fluid_settings.restype = pointer
    fluid.new_fluid_synth.restype = pointer
    fluid.new_fluid_synth.argtypes = [pointer]
    fluid.fluid_settings_setnum.argtypes = [pointer, text, ctypes.c_double]
    fluid.fluid_settings_setint.argtypes = [pointer, text, integer]
    fluid.fluid_synth_sfload.argtypes = [pointer, text, integer]
    fluid.fluid_synth_set_interp_method.argtypes = [pointer, integer, integer]
    fluid.fluid_synth_system_reset.argtypes = [pointer]
    fluid.fluid_synth_all_sounds_off.argtypes = [pointer, integer]
    fluid.fluid_synth_noteon.argtypes = [pointer, integer, integer, integer]
    fluid.fluid_synth_noteoff.argtypes = [pointer, integer, integer]
    fluid.fluid_synth_program_change.argtypes = [pointer, integer, integer]
    fluid.fluid_synth_cc.argtypes = [pointer, integer, integer, integer]
    side = (pointer, integer, integer)
    fluid.fluid_synth_write_float.argtypes = [pointer, integer, *side, *side]
    fluid.fluid_set_log_function.argtypes = [integer, pointer, pointer]
    for level in range(5):
        fluid.fluid_set_log_function(level, None, None)
    return fluid


@cache
def _synthesiser(font: Path) -> int:
    fluid = library()
    settings = fluid.new_fluid_settings()
    fluid.fluid_settings_setnum(settings, b"synth.sample-rate", float(SAMPLE_RATE))
    fluid.fluid_settings_setnum(settings, b"synth.gain", _GAIN)
    fluid.fluid_settings_setint(settings, b"synth.dynamic-sample-loading", 1)
    fluid.fluid_settings_setint(settings, b"synth.polyphony", _POLYPHONY)
    fluid.fluid_settings_setint(settings, b"synth.lock-memory", 0)
    # Their delay lines outlive a reset; the mixer adds rooms.
    fluid.fluid_settings_setint(settings, b"synth.reverb.active", 0)
    fluid.fluid_settings_setint(settings, b"synth.chorus.active", 0)
    synthesiser: int = fluid.new_fluid_synth(settings)
    if fluid.fluid_synth_sfload(synthesiser, str(font).encode(), 1) < 0:
        raise OSError(f"libfluidsynth cannot load {font}")
    fluid.fluid_synth_set_interp_method(synthesiser, -1, _LINEAR)
    return synthesiser


def play(
    notes: Sequence[Note],
    programs: Mapping[int, int],
    volumes: Mapping[int, int],
    font: Path,
    duration_s: float,
    pedal_s: Sequence[float] = (),
) -> NDArray[np.float32]:
    """Render notes with a General MIDI soundfont.

    Args:
        notes: Times in seconds, channels 0 to 15.
        programs: Program of each channel.
        volumes: Controller 7 of each channel.
        font: An SF2 or SF3 file.
        duration_s: Seconds to render.
        pedal_s: Times at which the sustain pedal changes, on channels 0 and 1.

    Returns:
        float32 ``[T]`` at 22,050 Hz, the sum of both channels.
    """
    fluid, synthesiser = library(), _synthesiser(font)
    fluid.fluid_synth_system_reset(synthesiser)
    for channel, program in programs.items():
        fluid.fluid_synth_program_change(synthesiser, channel, program)
    for channel, volume in volumes.items():
        fluid.fluid_synth_cc(synthesiser, channel, _CONTROL_VOLUME, volume)
    total = round(duration_s * SAMPLE_RATE)
    sides = np.zeros((2, total), dtype=np.float32)
    done = 0
    for at, kind, channel, pitch, velocity in _events(notes, pedal_s):
        until = min(total, round(at * SAMPLE_RATE))
        if until > done:
            _write(fluid, synthesiser, sides[:, done:until])
            done = until
        if kind == "on":
            fluid.fluid_synth_noteon(synthesiser, channel, pitch, velocity)
        elif kind == "off":
            fluid.fluid_synth_noteoff(synthesiser, channel, pitch)
        else:
            fluid.fluid_synth_cc(synthesiser, channel, _CONTROL_PEDAL, velocity)
    if done < total:
        _write(fluid, synthesiser, sides[:, done:])
    # Nothing of this piece may carry over into the next: neither voices nor the rest of a block.
    fluid.fluid_synth_all_sounds_off(synthesiser, -1)
    _write(fluid, synthesiser, np.zeros((2, 2 * _BLOCK - total % _BLOCK), dtype=np.float32))
    return np.asarray(sides.sum(axis=0), dtype=np.float32)


def _write(fluid: ctypes.CDLL, synthesiser: int, sides: NDArray[np.float32]) -> None:
    left, right = (side.ctypes.data for side in sides)
    fluid.fluid_synth_write_float(synthesiser, sides.shape[1], left, 0, 1, right, 0, 1)


def _events(
    notes: Sequence[Note], pedal_s: Sequence[float]
) -> list[tuple[float, str, int, int, int]]:
    """Return (second, kind, channel, pitch, velocity) in order; ends come before other events."""
    events = []
    for start, end, channel, pitch, velocity in notes:
        events.append((start, 1, "on", channel, pitch, velocity))
        events.append((max(end, start + 0.03), 0, "off", channel, pitch, 0))
    for at in pedal_s:
        for channel in (0, 1):
            events.append((at, 0, "pedal", channel, 0, 0))
            events.append((at + 0.05, 1, "pedal", channel, 0, 127))
    events.sort()
    return [
        (at, kind, channel, pitch, velocity) for at, _, kind, channel, pitch, velocity in events
    ]
