"""Tempo, key, beats, loudness, mood and embedding of audio, in this process.

    import afa

    track = afa.analyze("song.mp3")
    vectors = afa.embed(["a.flac", "b.flac"])
    for track in afa.Analyzer(device="cuda").stream(paths): ...
    similar = afa.Library().similar(track)

Importing afa is quick: networks and torch are loaded when the first track is analysed.
"""

from collections.abc import Iterable
from functools import cache
from os import PathLike

from afa.analyzer import Analyzer
from afa.errors import AfaError, AudioError, LibraryError, MachineError, ModelError
from afa.library import Library, LibraryTrack, Similar
from afa.track import Track, Vector

__all__ = [
    "AfaError",
    "Analyzer",
    "AudioError",
    "Library",
    "LibraryError",
    "LibraryTrack",
    "MachineError",
    "ModelError",
    "Similar",
    "Track",
    "analyze",
    "embed",
]


@cache
def _analyzer() -> Analyzer:
    return Analyzer()


def analyze(path: str | PathLike[str]) -> Track:
    """Analyse a file with this machine's default checkpoints; see `Analyzer.analyze`."""
    return _analyzer().analyze(path)


def embed(paths: Iterable[str | PathLike[str]]) -> Vector:
    """Return the embeddings of files, one row each; see `Analyzer.embed`."""
    return _analyzer().embed(paths)
