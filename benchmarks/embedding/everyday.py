"""Everyday sounds that every child knows: animals, tools, instruments and words.

The recordings of Tux Paint's stamps, grouped by folder. Debian's package
``tuxpaint-stamps-default`` (161 MB; public domain and GPL) is fetched and unpacked, not installed.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.embedding.music import audio_dir
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import AudioError, Waveform
from pipelines.training.assets import fetch_packages

PACKAGE = "tuxpaint-stamps-default"
KINDS = {
    "bird": "animals/birds",
    "insect": "animals/insects",
    "mammal": "animals/mammals",
    "instrument": "hobbies/music",
    "household": "household",
    "speech": "symbols/math",
}
"""Kind → folder."""
MOST = 40
"""Maximum per kind; the number 7 is spoken in many languages, and is the only number used."""
_STAMPS = Path("usr/share/tuxpaint/stamps")
_DESCRIPTION = "_desc"
"""In the names of files in which a voice says what a stamp shows."""
_LIMITS = DecodeLimits(max_seconds=60.0, min_seconds=0.0)


def sounds() -> Iterator[tuple[str, Waveform]]:
    """Yield kind and sound of each recording.

    Raises:
        PackageError: The package is unavailable.
    """
    stamps = fetch_packages([PACKAGE], audio_dir() / PACKAGE) / _STAMPS
    for kind, folder in KINDS.items():
        for path in files(stamps / folder, "7*.ogg" if kind == "speech" else "*.ogg"):
            try:
                yield kind, decode(path, _LIMITS)
            except AudioError:
                continue


def files(folder: Path, pattern: str) -> list[Path]:
    """Return the recordings below a folder, without those that only say what a stamp shows."""
    found = sorted(path for path in folder.rglob(pattern) if _DESCRIPTION not in path.stem)
    return found[:MOST]
