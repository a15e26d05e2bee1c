"""Messages that the service posts to you, signed according to Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from afa_client.errors import SignatureError

SECRET_PREFIX = "whsec_"  # noqa: S105  the standard's prefix, not a secret
TOLERANCE_S = 300.0


class JobEnd(BaseModel):
    """Which job ended, and how; `Client.job` returns its result."""

    job_id: str
    status: Literal["complete", "failed"]
    error: str | None = None


class WebhookMessage(BaseModel):
    """A posted message: ``type`` is ``job.complete`` or ``job.failed``."""

    type: str
    timestamp: datetime
    data: JobEnd


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, tolerance_s: float = TOLERANCE_S
) -> WebhookMessage:
    """Read a message that was posted to your webhook, if the service signed it.

    A message may arrive twice; its ``headers["webhook-id"]`` is then the same.

    Args:
        secret: The secret that `Client.set_webhook` returned.
        headers: The request's headers; names in any case.
        body: The request's body, byte for byte.
        tolerance_s: How far the message's time may differ from this machine's.

    Raises:
        SignatureError: The message is too old, from the future, or not the service's.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, sent, signatures = (
            named[f"webhook-{part}"] for part in ("id", "timestamp", "signature")
        )
        age_s = time.time() - int(sent)
    except (KeyError, ValueError) as fault:
        raise SignatureError("the headers of a webhook message are missing or malformed") from fault
    if abs(age_s) > tolerance_s:
        raise SignatureError(f"the message is {age_s:.0f} s old; {tolerance_s:.0f} s are allowed")
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{sent}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    offered = (signature.removeprefix("v1,") for signature in signatures.split())
    if not any(hmac.compare_digest(expected.encode(), one.encode()) for one in offered):
        raise SignatureError("the message was not signed with this secret")
    return WebhookMessage.model_validate_json(body)
