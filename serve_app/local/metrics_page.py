"""Serves Ray's page of metrics where Prometheus looks for it.

Ray itself serves it on a port that it chooses and, as in all of a local service, only on loopback.
"""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import httpx

LIMIT_S = 5.0
PATH = "/metrics"


class MetricsPage:
    """Serves the contents of another page at an address; its thread ends with the process.

    It answers one scrape at a time, so that many clients cannot take the service's threads.
    """

    def __init__(self, source: str, address: str) -> None:
        """Claim the address.

        Args:
            source: Ray's page.
            address: ``host:port``.
        """
        host, _, port = address.rpartition(":")

        class Handler(BaseHTTPRequestHandler):
            """Reads the source for each request."""

            timeout = LIMIT_S

            def do_GET(self) -> None:
                """Answer a scrape."""
                if urlsplit(self.path).path != PATH:
                    self.send_error(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}")
                    return
                try:
                    page = httpx.get(source, timeout=LIMIT_S, trust_env=False)
                except httpx.HTTPError:
                    self.send_error(HTTPStatus.BAD_GATEWAY, "Ray shows no metrics")
                    return
                self.send_response(page.status_code)
                self.send_header("Content-Type", page.headers["Content-Type"])
                self.send_header("Content-Length", str(len(page.content)))
                self.end_headers()
                self.wfile.write(page.content)

            def log_message(self, format: str, *_: object) -> None:
                """Keep scrapes out of the log."""

        self._server = Server((host, int(port)), Handler)
        self.url = f"http://{host}:{self._server.server_port}{PATH}"

    def start(self) -> None:
        """Start answering."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


class Server(HTTPServer):
    """Keeps clients that disconnect out of the log."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error and go on with the next request."""
