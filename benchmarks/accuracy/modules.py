"""Tracker modules as a development set: real samples and exact rows that training does not use.

`python -m benchmarks.accuracy.modules` fetches and plays them into ``$AFA_EVAL_MODULES`` (default:
``afa-modules`` in ``~/.cache``): 60 s of each as ``<track>.wav``, and ``annotations.json``.
"""

import json
from pathlib import Path
from typing import Any

import soundfile

from benchmarks.evaluation_set import Setting, ask_for_nothing
from models.rhythm.network import SAMPLE_RATE
from pipelines.training.assets import fetch_packages
from pipelines.training.modules import Grid, usable_modules

PACKAGES = (
    "biniax2-data",
    "dodgindiamond2",
    "freedroid-data",
    "gemdropx",
    "gl-117-data",
    "monsterz-data",
    "njam-data",
    "open-invaders-data",
    "pekka-kana-2-data",
    "tomatoes-data",
    "vectoroids",
    "vodovod",
)
KIND = "modules"
LONGEST_S = 60.0
_SKIPPED = 0.3
"""Share skipped of a module's length beyond a clip, as songs begin unlike any other part."""


def build(folder: Path) -> dict[str, Any]:
    """Play the modules into a folder; return their annotations."""
    found: dict[str, Any] = {}
    for package in PACKAGES:
        root = fetch_packages([package], folder / "packages" / package)
        for path, module, grid in usable_modules(root):
            length_s = len(module.samples) / SAMPLE_RATE
            start_s = max(0.0, (length_s - LONGEST_S) * _SKIPPED)
            first = int(start_s * SAMPLE_RATE)
            part = module.samples[first : first + int(LONGEST_S * SAMPLE_RATE)]
            name = f"module_{package}_{path.stem}".replace(" ", "-").lower()
            soundfile.write(folder / f"{name}.wav", part, SAMPLE_RATE)
            found[name] = _annotation(grid, start_s, len(part) / SAMPLE_RATE)
    (folder / "annotations.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _annotation(grid: Grid, start_s: float, duration_s: float) -> dict[str, Any]:
    beats, downbeats = (
        [round(float(t - start_s), 4) for t in times if 0 <= t - start_s < duration_s]
        for times in (grid.beats, grid.downbeats)
    )
    return {
        "kind": KIND,
        "tempo": grid.tempo,
        "tempo_level": "sure",
        "beats": beats,
        "downbeats": downbeats,
    }


if __name__ == "__main__":
    ask_for_nothing("benchmarks.accuracy.modules", __doc__ or "")
    build(Setting().modules)
