"""What `afa status` says about checkpoints (from a page as Ray serves it) and outside services."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from configs.settings import Settings
from serve_app.cli.main import app
from serve_app.cli.service import running_session
from serve_app.cli.status import loaded, providers_table, published, samples_at
from serve_app.composition.files import LocalFiles
from serve_app.providers.identities.registry import ProviderSettings
from serve_app.providers.recognisers.registry import RecogniserSettings

PAGE = """\
# TYPE ray_afa_device_info gauge
ray_afa_device_info{model="skey",device="cpu float32",ReplicaId="a"} 1.0
ray_afa_device_info{model="skey",device="cpu float32",ReplicaId="b"} 1.0
ray_afa_device_info{model="ast-audioset",device="NVIDIA H200 bfloat16",ReplicaId="c"} 1.0
ray_afa_device_info{model="gone",device="cpu float32",ReplicaId="c"} 0.0
# TYPE ray_afa_published_info gauge
ray_afa_published_info{what="catalog",generation="7",ReplicaId="a"} 1.0
ray_afa_published_info{what="catalog",generation="6",ReplicaId="a"} 0.0
# TYPE ray_afa_warm_up_seconds gauge
ray_afa_warm_up_seconds{model="skey",ReplicaId="a"} 2.0
ray_afa_warm_up_seconds{model="skey",ReplicaId="b"} 3.46
ray_afa_warm_up_seconds{model="gone",ReplicaId="c"} 9.0
"""


@contextmanager
def page_of(text: str) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


@pytest.fixture
def metrics_url() -> Iterator[str]:
    with page_of(PAGE) as url:
        yield url


def test_each_checkpoint_has_a_line_with_the_longest_warm_up_of_its_replicas(
    metrics_url: str,
) -> None:
    samples = samples_at(metrics_url)
    assert published(samples) == ["catalog: generation 7"]
    assert loaded(samples) == [
        "ast-audioset on NVIDIA H200 bfloat16",
        "skey on cpu float32, warm after 3.5 s",
    ]


def test_a_proxy_is_not_asked_for_the_service_of_this_machine(
    metrics_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = {"url": metrics_url.removesuffix("/metrics"), "pids": {"service": os.getpid()}}
    files = LocalFiles(tmp_path)
    files.session_path.write_text(json.dumps(session), encoding="utf-8")
    for proxy in ("http://127.0.0.1:9", "socks5://127.0.0.1:9"):  # httpx alone has no SOCKS
        monkeypatch.setenv("http_proxy", proxy)
        assert running_session(files) == session
        assert samples_at(metrics_url)


@pytest.mark.parametrize("answer", ['{"error": "service_unavailable"}', "<html>"])
def test_a_service_none_of_whose_parts_answers_is_told(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    with page_of(answer) as url:
        session = {"url": url.removesuffix("/metrics"), "pids": {"service": os.getpid()}}
        LocalFiles(tmp_path).session_path.write_text(json.dumps(session), encoding="utf-8")
        told = CliRunner().invoke(app, ["status"])
    assert told.exit_code == 1
    assert f"afa: no part of the service answers at {session['url']}; see" in told.stderr


def test_without_a_page_nothing_is_said() -> None:
    assert samples_at(None) == []
    assert samples_at("http://127.0.0.1:9/metrics") == []


def test_what_turns_a_service_on_is_told_by_its_settings_names() -> None:
    known = {
        field.name for kind in (ProviderSettings, RecogniserSettings) for field in fields(kind)
    }
    names, _, by = (list(map(str, column.cells)) for column in providers_table(Settings()).columns)
    told = dict(zip(names, by, strict=True))
    assert told.pop("catalog") == "audio_url in the catalog"
    assert told.pop("identify: local") == "afa catalog fingerprint"
    assert {name: by for name, by in told.items() if by.partition(",")[0] not in known} == {}
