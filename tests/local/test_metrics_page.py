"""The metrics page is served where Prometheus looks for it, and nothing else is."""

import socket
import threading
import time
from collections.abc import Iterator
from http.server import HTTPServer

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import start_http_server

from serve_app.local.metrics_page import MetricsPage


@pytest.fixture
def source() -> Iterator[tuple[str, HTTPServer]]:
    """Publish a gauge in the format that Ray uses."""
    registry = CollectorRegistry()
    Gauge("ray_afa_test", "A gauge.", registry=registry).set(7)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}/metrics", server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_is_shown_at_another_address(
    source: tuple[str, HTTPServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, server = source
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    page = MetricsPage(url, "127.0.0.1:0")
    page.start()
    with httpx.Client(trust_env=False) as client:
        answer = client.get(f"{page.url}?format=text")
        assert answer.headers["Content-Type"] == client.get(url).headers["Content-Type"]
        assert "ray_afa_test 7.0" in answer.text
        assert client.get(page.url.removesuffix("/metrics")).status_code == 404
    server.server_close()
    stopping = threading.Thread(target=server.shutdown)
    stopping.start()
    stopping.join()
    assert httpx.get(page.url, trust_env=False).status_code == 502


def test_clients_that_say_nothing_take_no_threads(
    source: tuple[str, HTTPServer],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:  # only the page's clients; the source keeps its time
        patched.setattr("serve_app.local.metrics_page.LIMIT_S", 1.0)
        page = MetricsPage(source[0], "127.0.0.1:0")
    page.start()
    before = threading.active_count()
    address = ("127.0.0.1", httpx.URL(page.url).port or 0)
    idle = [socket.create_connection(address) for _ in range(4)]
    assert httpx.get(page.url, trust_env=False, timeout=30).status_code == 200
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)  # the thread of the source's answer may still be ending
    assert threading.active_count() <= before
    for one in idle:
        one.close()
    assert capfd.readouterr().err == ""
