"""Query parameters that a route does not read, which is told and never refused.

Programs send what other versions, or another service of the same shape, read.
"""

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic import AliasChoices
from starlette.routing import BaseRoute

HEADER = "X-Unknown-Parameters"
MOST, LONGEST = 5, 60
"""Names that are told, and characters of each."""

Parameters = Mapping[str, frozenset[str]]


def parameters_of(routes: Iterable[BaseRoute]) -> Parameters:
    """Give the query parameters of each route, by its unique id."""
    return {
        route.unique_id: frozenset(_names(route)) for route in routes if isinstance(route, APIRoute)
    }


def _names(route: APIRoute) -> Iterator[str]:
    for parameter in get_flat_params(route.dependant):  # those of the path and headers, too
        yield parameter.alias
        other = parameter.field_info.validation_alias
        if isinstance(other, AliasChoices):
            yield from (choice for choice in other.choices if isinstance(choice, str))


def unknown_parameters(request: Request) -> str:
    """Name what the address has that its route does not read, as a header can hold it."""
    known: Parameters = request.app.state.parameters
    route: APIRoute = request.scope["route"]
    names = [name for name in request.query_params if name and name not in known[route.unique_id]]
    return ", ".join(quote(name[:LONGEST], safe="") for name in names[:MOST])


def tell_unknown(request: Request) -> None:
    """Have the answer name them."""
    if request.scope["query_string"] and (names := unknown_parameters(request)):
        request.state.headers[HEADER] = names
