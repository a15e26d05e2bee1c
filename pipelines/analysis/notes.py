"""Names of keys: pitch classes, modes, and the Camelot wheel, by which DJs mix."""

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
MODES = ("minor", "major")

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
    """Give the name of a pitch class, C = 0 … B = 11, in sharps; None when it is unknown."""
    return PITCH_CLASSES[key] if 0 <= key <= 11 else None


def mode_name(mode: int) -> str | None:
    """Give ``major`` for 1 and ``minor`` for 0; None when it is unknown."""
    return MODES[mode] if mode in (0, 1) else None


def camelot(key: int, mode: int) -> str:
    """Give the Camelot name of a key, or "" when key or mode is unknown.

    Args:
        key: Pitch class, C = 0 … B = 11.
        mode: 1 major, 0 minor.
    """
    if 0 <= key <= 11 and mode in (0, 1):
        return CAMELOT[key][mode]
    return ""
