"""Where the evaluation set is: ``annotations.json`` (track → truth), and audio as ``<track>.wav``.

Neither is part of the repository.
"""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

from configs.settings import Settings


@dataclass(frozen=True, slots=True)
class Setting:
    """Where everything is; the environment may name the set, its audio and the peers' Python.

    Attributes:
        evalset: Folder with ``annotations.json``.
        audio: Folder with the clips.
        modules: Folder that `benchmarks.accuracy.modules` made; it may be missing.
        charts: Folder that `benchmarks.accuracy.charts` made; it may be missing.
        generated: Folder that `benchmarks.generated` made; it may be missing.
        metres: Folder that `benchmarks.accuracy.metres` made; it may be missing.
        chords: Folder that `benchmarks.accuracy.chord_pieces` made.
        model_dir: The model cache.
        peers_python: A Python with librosa, essentia and sonara; None skips the peers.
        cache: Where the peers' predictions are kept.
        skip: Prefixes of tracks to leave out.
    """

    evalset: Path = field(default_factory=lambda: _named("AFA_EVALSET") or Path("evalset"))
    audio: Path = field(
        default_factory=lambda: _named("AFA_EVAL_AUDIO") or Path.home() / ".cache" / "afa-evalset"
    )
    modules: Path = field(
        default_factory=lambda: _named("AFA_EVAL_MODULES") or Path.home() / ".cache" / "afa-modules"
    )
    charts: Path = field(
        default_factory=lambda: _named("AFA_EVAL_CHARTS") or Path.home() / ".cache" / "afa-charts"
    )
    generated: Path = field(
        default_factory=lambda: (
            _named("AFA_EVAL_GENERATED") or Path.home() / ".cache" / "afa-generated"
        )
    )
    metres: Path = field(
        default_factory=lambda: _named("AFA_EVAL_METRES") or Path.home() / ".cache" / "afa-metres"
    )
    chords: Path = field(
        default_factory=lambda: _named("AFA_EVAL_CHORDS") or Path.home() / ".cache" / "afa-chords"
    )
    model_dir: Path = field(default_factory=lambda: Settings().resolved_model_dir())
    peers_python: Path | None = field(default_factory=lambda: _named("AFA_PEERS_PYTHON"))
    cache: Path = Path.home() / ".cache" / "afa" / "peers"
    skip: tuple[str, ...] = ()


def ask_for_nothing(module: str, described: str) -> None:
    """Refuse arguments to a module that takes none, and answer ``--help``, before it fetches."""
    how = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(
        prog=f"python -m {module}", description=described, formatter_class=how, allow_abbrev=False
    ).parse_args()


def _named(variable: str) -> Path | None:
    """Return the path that an environment variable names."""
    value = os.environ.get(variable)
    return Path(value) if value else None
