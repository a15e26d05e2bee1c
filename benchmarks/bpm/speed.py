"""Seconds of audio per core-second from file to tempo, with accuracy, against librosa and Essentia.

One thread each, including decoding, on clips of the evaluation set whose tempo is certain
(``$AFA_EVALSET``, ``$AFA_EVAL_AUDIO``); without the set, on click tracks made here. The limit is
decoding alone. Essentia is added if ``$AFA_PEERS_PYTHON`` has it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bpm.predict import DECODE, OWN
from benchmarks.evaluation_set import Setting
from benchmarks.report import Options, Result, Target, interleave, median_ratio
from benchmarks.signals import RATE, encode, music_like
from pipelines.training.metrics import tempo_accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "bpm"

LIBROSA = "librosa"
ESSENTIA = ("essentia degara", "essentia multifeature")
N_CLIPS, QUICK_CLIPS = 24, 4
MADE_TEMPOS = (72.0, 90.0, 104.0, 120.0, 128.0, 140.0, 165.0, 174.0)
MADE_S = 60.0
LEAST_OF_LIBROSA = 2.0
_SINGLE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


@dataclass(frozen=True, slots=True)
class Clips:
    """Audio with known tempi."""

    source: str
    tempos: dict[str, float]
    files: list[Path]
    duration_s: float


def run(options: Options) -> Result:
    """Measure all contenders in interleaved rounds."""
    with tempfile.TemporaryDirectory(prefix="afa-bench-") as name, clips(Path(name), options) as on:
        found: dict[str, dict[str, float]] = {}
        out = Path(name) / "out.json"
        contenders: dict[str, Callable[[], float]] = {
            who: partial(rate, who, on, out, found) for who in (OWN, DECODE, LIBROSA, *essentias())
        }
        rates = interleave(contenders, options.rounds)
    return summarise(rates, found, on, options)


@contextmanager
def clips(folder: Path, options: Options) -> Iterator[Clips]:
    """Choose clips from the evaluation set, or make some."""
    wanted = QUICK_CLIPS if options.is_quick else N_CLIPS
    setting = Setting()
    annotations = setting.evalset / "annotations.json"
    truth = json.loads(annotations.read_text()) if annotations.is_file() else {}
    known = {
        name: track
        for name, track in sorted(truth.items())
        if track.get("tempo_level") == "sure" and (setting.audio / f"{name}.wav").is_file()
    }
    if known:
        chosen = list(known)[:: max(1, len(known) // wanted)][:wanted]
        yield Clips(
            "evaluation set",
            {name: float(known[name]["tempo"]) for name in chosen},
            [setting.audio / f"{name}.wav" for name in chosen],
            sum(float(known[name]["duration"]) for name in chosen),
        )
        return
    tempos = MADE_TEMPOS[:wanted]
    files = [clicks(folder / f"clicks_{tempo:g}.wav", tempo) for tempo in tempos]
    named = {path.stem: tempo for path, tempo in zip(files, tempos, strict=True)}
    yield Clips("click tracks", named, files, MADE_S * len(files))


def clicks(path: Path, tempo: float) -> Path:
    """Write clicks over music-like sound."""
    t = np.arange(int(MADE_S * RATE)) / RATE % (60 / tempo)
    click = 0.5 * np.exp(-60 * t) * np.sin(2 * np.pi * 1500 * t)
    samples = (0.2 * music_like(MADE_S) + click).astype(np.float32)
    return encode(path, samples, "wav", "pcm_s16le", "s16")


def essentias() -> tuple[str, ...]:
    """Return Essentia's methods if a Python with it is configured."""
    python = os.environ.get("AFA_PEERS_PYTHON")
    if not python:
        return ()
    done = subprocess.run([python, "-c", "import essentia"], capture_output=True)  # noqa: S603
    return ESSENTIA if done.returncode == 0 else ()


def rate(who: str, on: Clips, out: Path, found: dict[str, dict[str, float]]) -> float:
    """Run one contender over all clips; note its tempos, return audio seconds per core-second."""
    if who in (OWN, DECODE):
        command = [sys.executable, "-m", "benchmarks.bpm.predict"]
    else:
        python = os.environ["AFA_PEERS_PYTHON"] if who in ESSENTIA else sys.executable
        command = [python, str(Path(__file__).with_name("peers.py"))]
    subprocess.run(  # noqa: S603 - our own files
        [*command, who, str(out), *map(str, on.files)],
        check=True,
        env=os.environ | _SINGLE_THREAD,
        stderr=subprocess.DEVNULL,
    )
    content = json.loads(out.read_text())
    found[who] = content["tempos"]
    return on.duration_s / float(content["cpu_s"])


def summarise(
    rates: Mapping[str, list[float]],
    found: Mapping[str, Mapping[str, float]],
    on: Clips,
    options: Options,
) -> Result:
    """Compile the figures."""
    rows: list[tuple[str, float, float, float, float]] = []
    values: dict[str, dict[str, float]] = {}
    for who, measured in rates.items():
        scores = [tempo_accuracy(truth, found[who][name]) for name, truth in on.tempos.items()]
        accuracies = [statistics.mean(score[level] for score in scores) for level in (0, 1)]
        if who == DECODE:
            accuracies = [0.0, 0.0]
        ratio = median_ratio(measured, rates[LIBROSA])
        rows.append((who, statistics.median(measured), ratio, accuracies[0], accuracies[1]))
        values[who] = {
            "audio_s_per_core_s": round(statistics.median(measured), 1),
            "ratio_to_librosa": round(ratio, 4),
            "ratio_to_decoding": round(median_ratio(measured, rates[DECODE]), 4),
            "accuracy_1": round(accuracies[0], 4),
            "accuracy_2": round(accuracies[1], 4),
        }
    own, librosa = values[OWN], values[LIBROSA]
    return Result(
        NAME,
        values={
            "contenders": values,
            "clips": on.source,
            "n_clips": len(on.files),
            "minutes": round(on.duration_s / 60, 1),
            "rounds": options.rounds,
        },
        columns=("contender", "audio s/core-s", "of librosa", "accuracy 1", "accuracy 2"),
        rows=rows,
        targets=(
            Target("speed to librosa", own["ratio_to_librosa"], LEAST_OF_LIBROSA),
            Target("accuracy 1 less librosa's", own["accuracy_1"] - librosa["accuracy_1"], 0.0),
        ),
        draw=lambda axes: _draw(axes, rows),
    )


def _draw(axes: "Axes", rows: list[tuple[str, float, float, float, float]]) -> None:
    for who, speed, _, accuracy, _ in rows:
        if who == DECODE:
            axes.axvline(speed, linestyle="--", color="tab:gray", label=who)
        else:
            axes.scatter([speed], [accuracy], label=who)
    axes.set(
        xscale="log", xlabel="audio seconds per core-second", ylabel="tempo accuracy 1", ylim=(0, 1)
    )
    axes.legend()
