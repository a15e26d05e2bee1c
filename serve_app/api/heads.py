"""Limits on the length and time of a request's head, which uvicorn does not have.

What uvicorn refuses as not HTTP gets the body of all errors. A request that offers another protocol
is read as one that offers none (RFC 9110, section 7.8): Java's client always offers HTTP/2. That
includes WebSocket: uvicorn would wait for ever for the opening of one that has a body.

A header that arrives in pieces is put together again with each of them, which takes time that grows
with the square of its length, before any key is checked. Serve starts uvicorn itself; `bound_heads`
tells uvicorn which class reads requests.
"""

import asyncio

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from serve_app.api.errors import error_answer
from serve_app.api.tracing import TRACE_HEADER, trace_id_of
from serve_app.domain.errors import BadRequestError

LONGEST_HEAD = 1 << 20
LONGEST_HEAD_S = 30.0

UNREADABLE = (
    "this is no HTTP request that can be read; in an address percent-encode spaces and letters "
    "beyond ASCII (ü is %C3%BC), and keep it under 64 KiB"
)


class BoundedHeads(HttpToolsProtocol):
    """Reads the requests of one connection; closes it if a head is too long or too slow.

    The trailer after a chunked body has the same limits as a head.
    """

    _is_read = False
    _n_unread = 0
    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop expecting a head."""
        self._have_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; count the bytes that complete neither a head nor a part of a body."""
        if self.timeout_keep_alive_task is not None:  # it ends here, whatever arrives
            self._expect_head()
        self._is_read = False
        self._feed(data)
        self._n_unread = 0 if self._is_read else self._n_unread + len(data)
        if self._n_unread > LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("the head of the request is too long")

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be read, and close the connection."""
        trace_id = trace_id_of("")
        answer = error_answer("/", BadRequestError(msg), trace_id)
        answer.headers.update({TRACE_HEADER.decode(): trace_id, "connection": "close"})
        headers = (*self.server_state.default_headers, *answer.raw_headers)
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[400], *lines, b"\r\n", answer.body]))
        self.transport.close()

    def on_message_begin(self) -> None:
        """Expect the rest of the head that begins."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        self._is_read = True
        self._have_head()
        if not self._is_declined():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        if not self._is_declined():
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        """Note that a part of a body has arrived."""
        self._is_read = True
        super().on_body(body)

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except HttpParserError:
                self.send_400_response(UNREADABLE)
            except HttpParserUpgrade as end_of_head:
                if self._is_declined():
                    data = self._head_without_offer() + data[end_of_head.args[0] :]
                    self._renew_parser()
                    continue
            break

    def _is_declined(self) -> bool:
        """Return whether the request offers another protocol; its body was not read."""
        return self.parser.should_upgrade() and b"upgrade" in dict(self.headers)

    def _should_upgrade(self) -> bool:
        return False

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        start = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
        return b"".join([start, *lines, b"\r\n"])

    def _renew_parser(self) -> None:
        # The one before reads nothing more if the request says that it is the connection's last.
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's

    def _expect_head(self) -> None:
        self._have_head()
        self._head_due = self.loop.call_later(LONGEST_HEAD_S, self._close_or_expect)

    def _have_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _close_or_expect(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # an earlier request on this connection is being answered
            self._expect_head()


def bound_heads() -> None:
    """Make every server that uvicorn starts in this process from now on apply the limits."""
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{BoundedHeads.__name__}"
