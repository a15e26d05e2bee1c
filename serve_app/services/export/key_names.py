"""A key in the notations that DJ programs and taggers know."""

from enum import StrEnum

from pipelines.analysis.tonality.notes import camelot

_FLATS = ("C", "Db", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
"""Pitch classes as taggers spell them: flats, but F sharp."""


class KeyFormat(StrEnum):
    """How a key is written: Am, 8A or 1m."""

    CLASSIC = "classic"
    CAMELOT = "camelot"
    OPENKEY = "openkey"


def key_name(key: int, mode: int, form: KeyFormat) -> str:
    """Return the name of a key, "" if key or mode is unknown.

    Args:
        key: Pitch class, C = 0 … B = 11.
        mode: 1 major, 0 minor.
        form: The notation.
    """
    on_wheel = camelot(key, mode)
    if not on_wheel or form is KeyFormat.CAMELOT:
        return on_wheel
    if form is KeyFormat.CLASSIC:
        return _FLATS[key] + ("" if mode else "m")
    # Open Key counts the same wheel, beginning at C major and A minor.
    number = (int(on_wheel[:-1]) - 8) % 12 + 1
    return f"{number}{'d' if mode else 'm'}"
