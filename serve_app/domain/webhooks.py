"""Webhooks according to the Standard Webhooks specification: secrets, signatures, retries.

References:
    github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

SECRET_PREFIX = "whsec_"  # noqa: S105 - the specification's prefix, not a secret
SALT_BYTES = 16
# The specification's own example of a schedule; the last attempt is about 28 hours after the first.
RETRY_DELAYS_S = (5, 300, 1800, 7200, 18000, 36000, 36000)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where an account's messages are posted, and what they are signed with."""

    url: str
    secret: str


def new_salt() -> str:
    """Make the salt that makes an account's signing secrets differ; it need not be secret."""
    return secrets.token_hex(SALT_BYTES)


def secret_of(pepper: str, account: str, salt: str) -> str:
    """Derive a signing secret; the store without the pepper reveals nothing about it."""
    derived = hmac.new(pepper.encode(), f"webhook\0{account}\0{salt}".encode(), hashlib.sha256)
    return SECRET_PREFIX + base64.b64encode(derived.digest()).decode()


def sign(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the value of the ``webhook-signature`` header.

    Raises:
        ValueError: The secret is not one of ours.
    """
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a webhook secret starts with whsec_")
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
