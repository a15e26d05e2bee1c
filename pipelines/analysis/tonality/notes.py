"""Names of keys and chords: pitch classes, modes, and the Camelot wheel that DJs mix by."""

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
MODES = ("minor", "major")
QUALITIES = ("min", "maj")
"""Qualities of chords, as in Harte's notation."""
_DEGREES = ("1", "b2", "2", "b3", "3", "4", "b5", "5", "b6", "6", "b7", "7")

# By pitch class: (minor, major).
CAMELOT = (
    ("5A", "8B"),
    ("12A", "3B"),
    ("7A", "10B"),
    ("2A", "5B"),
    ("9A", "12B"),
    ("4A", "7B"),
    ("11A", "2B"),
    ("6A", "9B"),
    ("1A", "4B"),
    ("8A", "11B"),
    ("3A", "6B"),
    ("10A", "1B"),
)


def pitch_class(key: int) -> str | None:
    """Return the name of a pitch class, C = 0 … B = 11, in sharps; None when it is unknown."""
    return PITCH_CLASSES[key] if 0 <= key <= 11 else None


def mode_name(mode: int) -> str | None:
    """Return ``major`` for 1 and ``minor`` for 0; None when it is unknown."""
    return MODES[mode] if mode in (0, 1) else None


def camelot(key: int, mode: int) -> str:
    """Return the Camelot name of a key, or "" when key or mode is unknown.

    Args:
        key: Pitch class, C = 0 … B = 11.
        mode: 1 major, 0 minor.
    """
    if 0 <= key <= 11 and mode in (0, 1):
        return CAMELOT[key][mode]
    return ""


def quality(mode: int) -> str | None:
    """Return ``maj`` for 1 and ``min`` for 0; None when there is no chord."""
    return QUALITIES[mode] if mode in (0, 1) else None


def chord_name(root: int, mode: int, bass: int) -> str:
    """Name a chord in Harte's notation, as used by MIREX and mir_eval; ``N`` is no chord.

    Args:
        root: Pitch class, C = 0 … B = 11.
        mode: 1 major, 0 minor.
        bass: Pitch class; unless it is the root, it is written as a degree above it: ``C:min/5``.
    """
    name, kind = pitch_class(root), quality(mode)
    if name is None or kind is None:
        return "N"
    above = f"/{_DEGREES[(bass - root) % 12]}" if bass not in (root, -1) else ""
    return f"{name}:{kind}{above}"
