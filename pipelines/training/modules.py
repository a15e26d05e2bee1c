"""Tracker modules: real samples, and rows with exact times. Played by libopenmpt (BSD-3).

Four rows per beat and sixteen per bar are a convention; modules whose notes contradict it are
refused.
"""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.rhythm.network import SAMPLE_RATE
from pipelines.training.assets import load_library
from pipelines.training.clips import UNKNOWN_KEY, Clip, bands_of
from pipelines.training.music.score import UnusableError
from pipelines.training.plan import MODULES

_SUFFIXES = {".mod", ".xm", ".s3m", ".it"}
_LIBRARY = "libopenmpt.so.0"
_BLOCK = 32
"""Samples played at a time: row times are exact to this (1.5 ms)."""
_LONGEST_S = 420
_SHORTEST_S = 15.0
_NOTES = range(1, 128)
_FASTEST_BPM, _SLOWEST_BPM = 190.0, 60.0
_STEADY, _SAME_STEP = 0.95, 0.03
_REPEATS = 0.3
_FEWEST_NOTES = 0.1
_FEWEST_BEATS = 16


@dataclass(frozen=True, slots=True)
class Module:
    """A module, played once.

    Attributes:
        samples: float32 ``[T]``, 22,050 Hz, full scale ±1.
        row_s: When each row began, seconds, ``[R]``.
        places: The row's number in its pattern, ``[R]``.
        orders: The pattern's place in the song, ``[R]``.
        n_notes: Notes that begin in the row, ``[R]``.
    """

    samples: NDArray[np.float32]
    row_s: NDArray[np.float64]
    places: NDArray[np.int64]
    orders: NDArray[np.int64]
    n_notes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Beats and downbeats of a module in seconds, ascending; tempo in BPM."""

    tempo: float
    beats: NDArray[np.float64]
    downbeats: NDArray[np.float64]


def find_modules(folder: Path) -> list[Path]:
    """Return the modules below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)


def play(path: Path) -> Module:
    """Play a module once.

    Raises:
        UnusableError: It cannot be read, or hardly anything sounds.
        OSError: libopenmpt is not installed.
    """
    library = _library()
    content = path.read_bytes()
    module = library.openmpt_module_create_from_memory2(content, len(content), *[None] * 7)
    if not module:
        raise UnusableError(path.name)
    try:
        samples, rows = _played(library, module)
    finally:
        library.openmpt_module_destroy(module)
    loudest = max((float(np.abs(block).max()) for block in samples), default=0.0)
    if loudest < 1e-3:
        raise UnusableError(path.name)
    row_s, places, orders, n_notes = (np.array(column) for column in zip(*rows, strict=True))
    return Module(np.concatenate(samples) / loudest, row_s, places, orders, n_notes)


Row = tuple[float, int, int, int]


def _played(library: ctypes.CDLL, module: int) -> tuple[list[NDArray[np.float32]], list[Row]]:
    buffer = (ctypes.c_float * _BLOCK)()
    samples: list[NDArray[np.float32]] = []
    rows: list[Row] = []
    counted: dict[tuple[int, int], int] = {}
    here, n_samples = (-1, -1), 0
    channels = library.openmpt_module_get_num_channels(module)
    while n_samples < _LONGEST_S * SAMPLE_RATE:
        n = library.openmpt_module_read_float_mono(module, SAMPLE_RATE, _BLOCK, buffer)
        if not n:
            break
        order = library.openmpt_module_get_current_order(module)
        place = library.openmpt_module_get_current_row(module)
        if (order, place) != here:
            here = order, place
            pattern = library.openmpt_module_get_current_pattern(module)
            if (pattern, place) not in counted:
                cells = (
                    library.openmpt_module_get_pattern_row_channel_command(
                        module, pattern, place, channel, 0
                    )
                    for channel in range(channels)
                )
                counted[pattern, place] = sum(note in _NOTES for note in cells)
            rows.append((n_samples / SAMPLE_RATE, place, order, counted[pattern, place]))
        samples.append(np.ctypeslib.as_array(buffer)[:n].copy())
        n_samples += n
    return samples, rows


def grid_of(module: Module) -> Grid:
    """Find beats and bars from the rows.

    Raises:
        UnusableError: The rows are not clearly those of steady bars of four beats.
    """
    steps = np.diff(module.row_s)
    if len(module.samples) < _SHORTEST_S * SAMPLE_RATE or len(steps) < _FEWEST_BEATS:
        raise UnusableError("too short")
    same = np.abs(steps / np.median(steps) - 1) < _SAME_STEP
    if same.mean() <= _STEADY:
        raise UnusableError("not steady")
    tempo = float(60 / (4 * steps[same].mean()))
    beat = 4
    if tempo > _FASTEST_BPM:
        tempo, beat = tempo / 2, 8
    bar = 4 * beat
    starts = np.flatnonzero(np.diff(module.orders, prepend=-1))
    lengths, times = np.unique(np.diff(starts, append=len(module.orders)), return_counts=True)
    # A pattern's last row may be held at the song's end; lengths that occur once mean little.
    usual = lengths[(times > 1) & (lengths > 1)]
    centred = module.n_notes - module.n_notes.mean()

    def alike(lag: int) -> float:
        if lag >= len(centred):
            return 0.0
        return float(centred[lag:] @ centred[:-lag] / max(1e-9, float(centred @ centred)))

    is_clear = (
        _SLOWEST_BPM <= tempo <= _FASTEST_BPM
        and not (usual % bar).any()
        and max(alike(bar), alike(2 * bar)) > _REPEATS
        and (alike(bar) > alike(bar * 3 // 4) or alike(2 * bar) > alike(bar * 3 // 2))
        and float(np.mean(module.n_notes > 0)) > _FEWEST_NOTES
    )
    if not is_clear:
        raise UnusableError("no clear bars of four beats")
    return Grid(
        tempo, module.row_s[module.places % beat == 0], module.row_s[module.places % bar == 0]
    )


def usable_modules(folder: Path) -> Iterator[tuple[Path, Module, Grid]]:
    """Play the modules below a folder, without duplicates, and skip those without clear bars."""
    seen: set[bytes] = set()
    for path in find_modules(folder):
        content = path.read_bytes()
        if content in seen:
            continue
        seen.add(content)
        try:
            module = play(path)
            yield path, module, grid_of(module)
        except UnusableError:
            continue


def module_clips(folder: Path, clip_s: float) -> Iterator[Clip]:
    """Cut all usable modules below a folder into clips, at most five of each."""
    for path, module, grid in usable_modules(folder):
        for start_s in np.arange(5) * clip_s:
            stop_s = min(start_s + clip_s, len(module.samples) / SAMPLE_RATE)
            beats, downbeats = (
                times[(times >= start_s) & (times < stop_s)] - start_s
                for times in (grid.beats, grid.downbeats)
            )
            if len(beats) < _FEWEST_BEATS:
                break
            part = module.samples[round(start_s * SAMPLE_RATE) : round(stop_s * SAMPLE_RATE)]
            yield Clip(bands_of(part), beats, downbeats, UNKNOWN_KEY, f"{MODULES}:{path.stem}")


@cache
def _library() -> ctypes.CDLL:
    library = load_library(_LIBRARY, "libopenmpt0")
    handle, integer = ctypes.c_void_p, ctypes.c_int32
    signatures: dict[str, tuple[object, Sequence[object]]] = {
        "create_from_memory2": (handle, (ctypes.c_char_p, ctypes.c_size_t, *[handle] * 7)),
        "destroy": (None, (handle,)),
        "read_float_mono": (ctypes.c_size_t, (handle, integer, ctypes.c_size_t, handle)),
        "get_num_channels": (integer, (handle,)),
        "get_current_order": (integer, (handle,)),
        "get_current_row": (integer, (handle,)),
        "get_current_pattern": (integer, (handle,)),
        "get_pattern_row_channel_command": (
            ctypes.c_uint8,
            (handle, integer, integer, integer, ctypes.c_int),
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"openmpt_module_{name}")
        function.restype, function.argtypes = result, arguments
    return library
