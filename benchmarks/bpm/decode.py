"""Seconds of audio decoded per core-second, walls and pipes included, against `ffmpeg -threads 1`.

Both turn a file into 44.1 kHz float32 stereo in this process's memory; the processor time of all
participating processes counts.
"""

import os
import resource
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Options, Result, Target, interleave, median_ratio
from benchmarks.signals import encode, music_like
from pipelines.audio.decode import DecodeLimits, Decoder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "decode"

DURATION_S = 180.0
REPEATS = 3
"""Decodings per round: processor time of other processes is counted in ticks of 10 ms."""

FILES: tuple[tuple[str, str, str, str, int, int], ...] = (
    ("MP3 320k", "mp3", "libmp3lame", "fltp", 320_000, 44_100),
    ("MP3 128k", "mp3", "libmp3lame", "fltp", 128_000, 44_100),
    ("AAC 192k", "ipod", "aac", "fltp", 192_000, 44_100),
    ("FLAC", "flac", "flac", "s16", 0, 44_100),
    ("WAV", "wav", "pcm_s16le", "s16", 0, 44_100),
    ("Opus 128k", "ogg", "libopus", "flt", 128_000, 48_000),
)


def run(options: Options) -> Result:
    """Measure and compare."""
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        return Result(NAME, skipped="there is no ffmpeg on PATH to compare with")
    decoder = Decoder()
    rows, speeds = [], {}
    try:
        with tempfile.TemporaryDirectory(prefix="afa-bench-") as folder:
            samples = music_like(DURATION_S)
            for name, container, codec, sample_format, bit_rate, rate in FILES:
                path = Path(folder) / "audio"
                source = encode(path, samples, container, codec, sample_format, bit_rate, rate)
                decoder.decode(source, DecodeLimits())  # starts the spawner, warms the cache
                measured = interleave(
                    {
                        "ours": partial(_ours, decoder, source),
                        "ffmpeg": partial(_ffmpegs, ffmpeg, source),
                    },
                    options.rounds,
                )
                ours, theirs = measured["ours"], measured["ffmpeg"]
                ratio = median_ratio(ours, theirs)
                speeds[name] = {
                    "audio_s_per_core_s": round(statistics.median(ours), 1),
                    "ffmpeg_audio_s_per_core_s": round(statistics.median(theirs), 1),
                    "ratio": round(ratio, 4),
                }
                rows.append((name, statistics.median(ours), statistics.median(theirs), ratio))
    finally:
        decoder.close()
    lowest = min(float(row[3]) for row in rows)
    version = subprocess.run(  # noqa: S603 - a program found on PATH, fixed arguments
        [ffmpeg, "-version"], capture_output=True, text=True, check=True
    ).stdout.split()[2]
    return Result(
        NAME,
        values={
            "lowest_ratio": round(lowest, 4),
            "median_ratio": round(statistics.median(float(row[3]) for row in rows), 4),
            "formats": speeds,
            "ffmpeg": version,
            "duration_s": DURATION_S,
            "rounds": options.rounds,
        },
        columns=("format", "ours, s/core-s", "ffmpeg, s/core-s", "ratio"),
        rows=rows,
        targets=(Target("lowest_ratio", lowest, 0.8),),
        draw=lambda axes: _draw(axes, rows),
    )


def _ours(decoder: Decoder, source: Path) -> float:
    def decode() -> None:
        decoder.decode(source, DecodeLimits())

    pid = decoder.process_id
    before_s = _spawner_s(pid)
    own_s = _processor_s(decode)
    return REPEATS * DURATION_S / (own_s + _spawner_s(pid) - before_s)


def _ffmpegs(ffmpeg: str, source: Path) -> float:
    command = (
        f"{ffmpeg} -nostdin -loglevel error -threads 1 -i {source} "
        "-f f32le -ar 44100 -ac 2 -threads 1 pipe:1"
    )

    def decode() -> None:
        samples = np.empty(int((DURATION_S + 1) * 44_100) * 2, np.float32)
        target = samples.data.cast("B")
        process = subprocess.Popen(  # noqa: S603 - see above
            command.split(), stdout=subprocess.PIPE, bufsize=0, pipesize=1 << 20
        )
        with process:
            if process.stdout is not None:
                while n := os.readv(process.stdout.fileno(), [target]):
                    target = target[n:]

    return REPEATS * DURATION_S / _processor_s(decode)


def _processor_s(work: Callable[[], None]) -> float:
    """Processor seconds of this process and of the children that it has waited for."""

    def used_s() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        usages = [resource.getrusage(kind) for kind in kinds]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before_s = used_s()
    for _ in range(REPEATS):
        work()
    return used_s() - before_s


def _spawner_s(pid: int) -> float:
    """Processor seconds of the spawner and of the children that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _draw(axes: "Axes", rows: list[tuple[str, float, float, float]]) -> None:
    places = np.arange(len(rows))
    axes.bar(places - 0.2, [row[1] for row in rows], 0.4, label="afa, sandboxed")
    axes.bar(places + 0.2, [row[2] for row in rows], 0.4, label="ffmpeg -threads 1")
    axes.set_xticks(places, [row[0] for row in rows])
    axes.set(ylabel="seconds of audio per core-second", title="Decode to 44.1 kHz float32 stereo")
    axes.legend()
