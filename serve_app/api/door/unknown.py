"""Reports what a route does not read in an address, a JSON body or a form; it is never refused.

Programs send what other versions, or another service with the same shape, would read.
"""

from collections.abc import Iterable, Iterator
from typing import get_args
from urllib.parse import quote

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

HEADER = "X-Unknown-Parameters"
FIELDS = "X-Unknown-Fields"
MOST, LONGEST = 5, 60
"""Maximum number of reported names, and of characters of each."""


def _names(route: APIRoute) -> Iterator[str]:
    for parameter in get_flat_params(route.dependant):  # including those of the path and headers
        yield parameter.alias
        yield from _others(parameter.field_info)


def _others(field: FieldInfo) -> Iterator[str]:
    other = field.validation_alias
    if isinstance(other, AliasChoices):
        yield from (choice for choice in other.choices if isinstance(choice, str))


def unknown_parameters(request: Request) -> str:
    """Return the query parameters that the route does not read, encoded for a header."""
    known: dict[str, frozenset[str]] = request.app.state.parameters
    route: APIRoute = request.scope["route"]
    if route.unique_id not in known:
        known[route.unique_id] = frozenset(_names(route))
    return _told(name for name in request.query_params if name not in known[route.unique_id])


def _told(names: Iterable[str]) -> str:
    named = [name for name in names if name]
    return ", ".join(quote(name[:LONGEST], safe="", errors="replace") for name in named[:MOST])


def tell_unknown(request: Request) -> None:
    """Have the answer name the unknown parameters."""
    if request.scope["query_string"] and (names := unknown_parameters(request)):
        request.state.headers[HEADER] = names


def tell_unknown_fields(request: Request, model: type[BaseModel], sent: object) -> None:
    """Have the answer name a JSON body's fields that its model lacks, nested as `seeds.wieght`."""
    tell_unread(request, _unread(model, sent))


def tell_unread(request: Request, fields: Iterable[str]) -> None:
    """Have the answer name fields of a body that are not read."""
    if names := _told(dict.fromkeys(fields)):
        request.state.headers[FIELDS] = names


def _unread(model: type[BaseModel], sent: object, place: str = "") -> Iterator[str]:
    if isinstance(sent, list):
        for item in sent:
            yield from _unread(model, item, place)
    if not isinstance(sent, dict):
        return
    fields = model.model_fields
    known = fields | {name: field for field in fields.values() for name in _others(field)}
    for name, value in sent.items():
        if name not in known:
            yield name and place + name
        elif inner := _model_in(known[name].annotation):
            yield from _unread(inner, value, f"{place}{name}.")


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model of a field's objects, or of those in its list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
