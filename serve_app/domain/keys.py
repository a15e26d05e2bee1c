"""API keys: their written form, and whom a valid one belongs to.

Invariant: a key whose checksum fails is never looked up, so garbage costs no round trip.
"""

import binascii
import re
import secrets
import string
from dataclasses import dataclass
from datetime import datetime

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_LENGTH = 30
CHECKSUM_LENGTH = 6
LIVE_PREFIX = "afa_live_"
TEST_PREFIX = "afa_test_"
KEY_PATTERN = re.compile(rf"afa_(?:live|test)_[0-9A-Za-z]{{{RANDOM_LENGTH + CHECKSUM_LENGTH}}}")
OWNER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}")
SCOPES = frozenset({"read", "compute", "assets"})
TEST_NAMESPACE = "test~"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a valid key belongs to.

    ``owner`` separates data, ``account`` money; both have their own namespace for test keys.
    """

    key_id: str
    owner: str
    account: str
    tier: str
    scopes: frozenset[str]
    is_test: bool


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key at the only moment its text is known."""

    key: str
    key_id: str


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What may be shown about a key afterwards."""

    key_id: str
    owner: str
    is_test: bool
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None
    is_revoked: bool
    is_expired: bool

    @property
    def state(self) -> str:
        """Whether the key works, in one word."""
        if self.is_revoked:
            return "revoked"
        return "expired" if self.is_expired else "valid"


def checksum(text: str) -> str:
    """Return the CRC-32 of ``text`` as six base62 digits.

    References:
        GitHub, "Behind GitHub's new authentication token formats" (2021).
    """
    number = binascii.crc32(text.encode())
    digits = ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def new_key(is_test: bool = False) -> str:
    """Make a key with 178 random bits."""
    body = "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_LENGTH))
    head = (TEST_PREFIX if is_test else LIVE_PREFIX) + body
    return head + checksum(head)


def is_well_formed(key: str) -> bool:
    """Return whether ``key`` has the written form of a key, checksum included."""
    if KEY_PATTERN.fullmatch(key) is None:
        return False
    return key[-CHECKSUM_LENGTH:] == checksum(key[:-CHECKSUM_LENGTH])


def check_owner(owner: str) -> str:
    """Return ``owner`` if it is a permitted name.

    Raises:
        ValueError: It is not; the test namespace cannot be written as an owner.
    """
    if OWNER_PATTERN.fullmatch(owner) is None:
        raise ValueError(f"owner must match {OWNER_PATTERN.pattern}, not {owner!r}")
    return owner
