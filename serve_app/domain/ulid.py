"""Lower-case ULIDs: 26 characters of Crockford base32 that sort by creation time."""

import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
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
