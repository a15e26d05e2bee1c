"""Reads the service's answers, and recognises those that something else gave."""

from __future__ import annotations

from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from afa_client.errors import error_of

Shape = TypeVar("Shape", bound=BaseModel)


def read(shape: type[Shape], response: httpx.Response, body: bytes | None = None) -> Shape:
    """Read an answer, or ``body``, a part of it.

    Raises:
        StatusError: The answer is not the service's, but a proxy's page or the like.
    """
    try:
        return shape.model_validate_json(response.content if body is None else body)
    except ValidationError as fault:
        raise error_of(response) from fault
