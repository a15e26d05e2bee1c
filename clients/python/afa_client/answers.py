"""What comes from the service, and what only stands where it should be."""

from __future__ import annotations

from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from afa_client.errors import error_of

Shape = TypeVar("Shape", bound=BaseModel)


def read(shape: type[Shape], response: httpx.Response, body: bytes | None = None) -> Shape:
    """Read an answer, or the ``body`` that is a part of it.

    Raises:
        StatusError: It is not the service's, but a proxy's page or the like.
    """
    try:
        return shape.model_validate_json(response.content if body is None else body)
    except ValidationError as fault:
        raise error_of(response) from fault
