"""The page of metrics is shown where Prometheus looks, and nothing else is."""

import threading
from collections.abc import Iterator
from http.server import HTTPServer

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import start_http_server

from serve_app.local.metrics_page import MetricsPage


@pytest.fixture
def source() -> Iterator[tuple[str, HTTPServer]]:
    """Show a gauge as Ray shows its own."""
    registry = CollectorRegistry()
    Gauge("ray_afa_test", "A gauge.", registry=registry).set(7)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}/metrics", server
    server.shutdown()
    thread.join()


def test_a_page_is_shown_at_another_address(source: tuple[str, HTTPServer]) -> None:
    url, server = source
    page = MetricsPage(url, "127.0.0.1:0")
    page.start()
    answer = httpx.get(page.url)
    assert answer.headers["Content-Type"] == httpx.get(url).headers["Content-Type"]
    assert "ray_afa_test 7.0" in answer.text
    assert httpx.get(page.url.removesuffix("/metrics")).status_code == 404
    server.server_close()
    stopping = threading.Thread(target=server.shutdown)
    stopping.start()
    stopping.join()
    assert httpx.get(page.url).status_code == 502
