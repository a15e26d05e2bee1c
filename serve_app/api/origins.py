"""What web pages of other origins may request; a refused preflight has the body of an error."""

from functools import partial
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.api.errors import error_response
from serve_app.domain.errors import BadRequestError

ASKED = {
    "origin": "origin",
    "method": "access-control-request-method",
}
"""Headers in which a browser names what may be refused."""

LONGEST_SEEN = 100


class OriginsMiddleware(CORSMiddleware):
    """Answers the preflight of browsers before they let a page of another origin call."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        try:
            await super().__call__(scope, receive, send)
        except BadRequestError as error:
            send_to_page = partial(self.send, send=send, request_headers=Headers(scope=scope))
            await error_response(Request(scope), error)(scope, receive, send_to_page)

    def preflight_response(self, request_headers: Headers) -> Response:
        """Say what may be sent.

        Raises:
            BadRequestError: The page's origin, or its method, is not allowed.
        """
        answer = super().preflight_response(request_headers)
        if answer.status_code != HTTPStatus.OK:
            seen = bytes(answer.body).decode().removeprefix("Disallowed CORS ").split(", ")
            named = [f"the {part} {request_headers[ASKED[part]][:LONGEST_SEEN]}" for part in seen]
            raise BadRequestError(
                f"web pages may not call with {', '.join(named)}; AFA_CORS_ORIGINS names origins "
                f"that may, methods are {', '.join(self.allow_methods)}"
            )
        return answer
