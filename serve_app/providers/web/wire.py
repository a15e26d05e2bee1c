"""How provider bodies become typed values: every field optional, unknown ones ignored."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from serve_app.domain.providers import ProviderUnavailableError
from serve_app.domain.track_ids import InvalidTrackIdError, Platform, track_id_of
from serve_app.providers.web.http_client import Reply

Model = TypeVar("Model", bound=BaseModel)


class Wire(BaseModel):
    """Base of all provider shapes. Providers add and drop fields; only what we read is checked."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, populate_by_name=True, coerce_numbers_to_str=True
    )


def parse(model: type[Model], reply: Reply) -> Model:
    """Parse a reply's JSON body.

    Raises:
        ProviderUnavailableError: The body is not JSON, or has another shape; it is not quoted.
    """
    return shape(model, reply.json(), reply.provider)


def shape(model: type[Model], value: object, provider: str) -> Model:
    """Parse a JSON value.

    Raises:
        ProviderUnavailableError: The value has another shape.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ProviderUnavailableError(provider, f"an unexpected shape at {where!r}") from error


def known_id(platform: Platform, value: str | int | None) -> str | None:
    """Return an identifier in canonical form; None if the provider's is missing or malformed."""
    if value is None or value == "":
        return None
    try:
        return track_id_of(platform, str(value)).value
    except InvalidTrackIdError:
        return None


def year_of(date: str | None) -> int | None:
    """Return the year at the start of a date; None for "", "None", "0000-00-00" and the like."""
    digits = (date or "")[:4]
    return int(digits) if len(digits) == 4 and digits.isdecimal() and int(digits) > 0 else None


def seconds(milliseconds: float | None) -> float | None:
    """Convert milliseconds to seconds; None for 0, which for several providers means unknown."""
    return milliseconds / 1000 if milliseconds else None
