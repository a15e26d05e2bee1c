"""What a start waits for, and what it leaves behind where it does not come to its end."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from configs.settings import Settings
from serve_app.local import service
from serve_app.local.service import CONFIG, LocalService


@pytest.fixture
def states() -> list[list[str]]:
    """What is away, from one look to the next."""
    return []


@pytest.fixture
def started(states: list[list[str]], tmp_path: Path) -> Iterator[LocalService]:
    class Readyz(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            degraded = states.pop(0) if len(states) > 1 else states[0]
            self.wfile.write(json.dumps({"degraded": degraded}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Readyz)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield LocalService(Settings(data_dir=tmp_path), "127.0.0.1", server.server_port, CONFIG)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_start_waits_for_every_part_but_not_for_an_audit(
    started: LocalService, states: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    states[:] = [["ledger", "audit"], ["mood"], []]
    started._wait_ready()
    assert states == [[]]
    assert capsys.readouterr().out == ""
    states[:] = [["mood", "audit"], ["audit"]]
    started._wait_ready()
    told = capsys.readouterr().out
    assert "the ledger's audit found a broken rule" in told
    assert "`afa credits audit`" in told


def test_a_start_ends_where_a_part_stays_away(
    started: LocalService, states: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READY_LIMIT_S", 0.5)
    states[:] = [["mood", "audit"]]
    with pytest.raises(RuntimeError, match=r"not ready after .*mood"):
        started._wait_ready()
