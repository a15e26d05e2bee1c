"""What HTTP clients expect of every path: HEAD with GET, and no effect of a final slash."""

import re
from collections.abc import Iterable
from http import HTTPStatus

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PLAIN_PATH = re.compile(rb"/[\w-][^\\]*")
"""Paths allowed in a Location: a browser cannot take them for another host."""


class HeadMiddleware:
    """Answers HEAD as GET without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app({**scope, "method": "GET"}, receive, send_head)


class SlashMiddleware:
    """Redirects a path with a final slash to the path that is meant."""

    def __init__(self, app: ASGIApp, slashed: frozenset[str]) -> None:
        """Leave the paths ``slashed`` as they are."""
        self.app = app
        self._slashed = slashed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not self._is_redirected(scope):
            await self.app(scope, receive, send)
            return
        path = scope["raw_path"].rstrip(b"/").decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        response = RedirectResponse(
            f"{path}?{query}" if query else path, HTTPStatus.PERMANENT_REDIRECT
        )
        await response(scope, receive, send)

    def _is_redirected(self, scope: Scope) -> bool:
        return (
            scope["raw_path"].endswith(b"/")  # an encoded one belongs to an id
            and scope["path"] not in self._slashed
            and PLAIN_PATH.fullmatch(scope["raw_path"].rstrip(b"/")) is not None
        )


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> str:
    """Return the methods that a path accepts, from the routes that match it most exactly."""
    matching = [
        route
        for route in routes
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
    ]
    fewest = min(len(route.param_convertors) for route in matching)
    exact = (route for route in matching if len(route.param_convertors) == fewest)
    methods = {method for route in exact for method in route.methods or ()}
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))
