"""Lower-case ULIDs: 26 characters of Crockford base32 that sort by creation time."""

import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
TIME_BITS = 48
RANDOM_BITS = 80
LENGTH = 26


def new_ulid(at_ms: int | None = None) -> str:
    """Make a ULID.

    Args:
        at_ms: Unix time in milliseconds; now when not given.

    References:
        github.com/ulid/spec
    """
    stamp = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    number = (stamp << RANDOM_BITS) | secrets.randbits(RANDOM_BITS)
    return "".join(ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(LENGTH)))


def ulid_time_ms(ulid: str) -> int:
    """Give the Unix time in milliseconds a ULID was made at.

    Raises:
        ValueError: Not a lower-case ULID.
    """
    if len(ulid) != LENGTH or any(character not in ALPHABET for character in ulid):
        raise ValueError(f"not a ULID: {ulid!r}")
    number = 0
    for character in ulid:
        number = number << 5 | ALPHABET.index(character)
    return number >> RANDOM_BITS
