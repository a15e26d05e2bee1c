"""Why audio cannot be analysed, as returned by the deployment that found out."""

from dataclasses import dataclass
from typing import TypeVar

from serve_app.domain.errors import UnprocessableAudioError, UrlFetchError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Passed between processes as a value, not as an exception."""

    code: str
    message: str


def accept(found: T | Refusal) -> T:
    """Return the result unless it is a refusal.

    Raises:
        UnprocessableAudioError: It was refused.
        UrlFetchError: Its URL returned no audio.
    """
    if isinstance(found, Refusal):
        if found.code == UrlFetchError.code:
            raise UrlFetchError(found.message)
        raise UnprocessableAudioError(found.message, found.code)
    return found
