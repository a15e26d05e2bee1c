"""Tempo, key, length and energy of a track: verified by a person, else from the analysis."""

from dataclasses import dataclass

from pipelines.analysis.tonality import notes
from serve_app.library.track import LibraryTrack


@dataclass(frozen=True, slots=True)
class Measures:
    """What tracks are filtered and mixed by; None if unknown.

    Attributes:
        tempo: BPM; 0 if there is no beat.
        key: Pitch class, C = 0 … B = 11, or `UNKNOWN_KEY`.
        mode: 1 major, 0 minor, -1 unknown.
        energy: 0 to 100.
    """

    tempo: float | None
    key: int | None
    mode: int | None
    duration_s: float | None
    energy: int | None = None

    @property
    def camelot(self) -> str | None:
        """The key's name on the Camelot wheel."""
        if self.key is None or self.mode is None:
            return None
        return notes.camelot(self.key, self.mode) or None


def measures_of(track: LibraryTrack) -> Measures:
    """Return the measures of a track."""
    who = track.identity
    if track.analysis is None:
        return Measures(who.tempo, who.key, who.mode, who.duration_s)
    heard = track.analysis.features
    energy = round(100 * heard.energy)
    if who.is_verified and who.tempo is not None:
        return Measures(who.tempo, who.key, who.mode, heard.duration_s, energy)
    return Measures(heard.tempo, heard.key, heard.mode, heard.duration_s, energy)
