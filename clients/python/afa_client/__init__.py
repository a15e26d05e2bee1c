"""Client of afa, the audio-intelligence service."""

from afa_client.async_client import AsyncClient
from afa_client.client import Client
from afa_client.errors import (
    AfaError,
    BadRequestError,
    JobFailedError,
    JobUnfinishedError,
    NoAnswerError,
    NotFoundError,
    PaymentRequiredError,
    RateLimitedError,
    ServerError,
    SignatureError,
    StatusError,
    UnauthorizedError,
)
from afa_client.retries import Retries
from afa_client.webhooks import WebhookMessage, verify_webhook

__all__ = [
    "AfaError",
    "AsyncClient",
    "BadRequestError",
    "Client",
    "JobFailedError",
    "JobUnfinishedError",
    "NoAnswerError",
    "NotFoundError",
    "PaymentRequiredError",
    "RateLimitedError",
    "Retries",
    "ServerError",
    "SignatureError",
    "StatusError",
    "UnauthorizedError",
    "WebhookMessage",
    "verify_webhook",
]
__version__ = "0.1.0"
