"""Post webhook messages to addresses that customers registered, through the guarded connector."""

from collections.abc import Mapping

import httpcore

from serve_app.providers.web.url_guard import (
    CONNECT_S,
    GuardedConnector,
    UrlError,
    UrlGuard,
    public_message,
)

ANSWER_S = 15.0


class WebhookSender:
    """Sends one message per call; redirects are not followed."""

    def __init__(self, guard: UrlGuard) -> None:
        self._guard = guard
        self._connector = GuardedConnector(guard)

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Post ``body`` and return the status of the answer.

        Raises:
            ConnectionError: The address is not permitted, or does not answer.
        """
        try:
            target = self._guard.parse(url)
            async with (
                await self._connector.pool(target) as pool,
                # Only the status counts: the body, which may never end, is not read.
                pool.stream(
                    "POST",
                    target.url,
                    headers=[
                        ("Host", target.host_header),
                        ("User-Agent", "afa"),
                        ("Content-Length", str(len(body))),
                        *headers.items(),
                    ],
                    content=body,
                    extensions={"timeout": {"connect": CONNECT_S, "read": ANSWER_S}},
                ) as response,
            ):
                return response.status
        except UrlError as error:
            raise ConnectionError(str(error)) from error
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise ConnectionError(public_message(error)) from error
