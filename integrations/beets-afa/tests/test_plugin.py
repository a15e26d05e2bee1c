"""The plugin by itself: what it asks, what it keeps, and what it does when something is missing."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from beets import config
from beets.exceptions import UserError
from beets.library import Item, Library
from beetsplug.afa import PERCENTS, AfaPlugin

HEARD = {
    "artist": "", "title": "", "tempo": 123.97, "key": "A", "mode": "minor", "camelot": "8A",
    "mix_in": 0.0, "mix_out": 9.0, "loudness": -11.2, "time_signature": 4, "duration_ms": 9000,
    "loudness_range": 4.0, "true_peak": -0.5, "time_signature_confidence": 0.8,
    "tempo_confidence": 0.9, "tempo_alternatives": [], "key_confidence": 0.7, "models": {},
    "mood_tags": [
        {"tag": "techno", "kind": "genre", "score": 0.9},
        {"tag": "house", "kind": "genre", "score": 0.55},
    ],
    "beats": [], "downbeats": [], **dict.fromkeys(PERCENTS, 50), "danceability": 78,
    "attribute_confidence": {},
}  # fmt: skip
META = {"cache": "bypass", "latency_ms": 1, "credits_used": 0, "credits_remaining": 0}
COMPLETE = {
    "status": "complete", "job_id": "job_1", "error": None,
    "_meta": META | {"trace_id": "", "progress": 1.0, "stage": "complete"},
}  # fmt: skip


class Service(BaseHTTPRequestHandler):
    """Takes any file, and has heard the same in each; one that holds no audio is refused."""

    heard: dict[str, Any] = HEARD
    uploads: list[bytes] = []  # noqa: RUF012  each test has its own, see `service`

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if b"audio" not in body:
            error = {"error": "unprocessable_audio", "message": "no audio", "trace_id": ""}
            self.answer(400, error)
            return
        self.uploads.append(body)
        self.answer(202, COMPLETE | {"result": None})

    def do_GET(self) -> None:
        self.answer(200, COMPLETE | {"result": self.heard})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[type[Service]]:
    class Own(Service):
        uploads: list[bytes] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        config["afa"]["url"] = f"http://127.0.0.1:{server.server_port}"
        config["afa"]["key"] = "afa_test_key"
        yield Own
        server.shutdown()
        thread.join()
    config["afa"].set({})


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    library = Library(str(tmp_path / "library.db"))
    yield library
    library._close()


def add(library: Library, path: Path, content: bytes = b"audio", **fields: Any) -> Item:
    path.write_bytes(content)
    item = Item(path=bytes(path), title=path.stem, **fields)
    library.add(item)
    return item


def test_items_get_what_was_heard(service: type[Service], library: Library, tmp_path: Path) -> None:
    item = add(library, tmp_path / "a.mp3")
    AfaPlugin().describe([item], write=False)
    assert (item.bpm, item.initial_key, item.afa_camelot) == (124, "Am", "8A")
    assert (item.afa_tempo, item.afa_loudness, item.afa_tags) == (123.97, -11.2, "techno")
    assert (item.afa_danceability, item.afa_energy) == (78, 50)
    assert [one.bpm for one in library.items("afa_tags:techno")] == [124]
    assert service.uploads == [b"audio"]


def test_what_is_there_stays_unless_told_otherwise(
    service: type[Service], library: Library, tmp_path: Path
) -> None:
    item = add(library, tmp_path / "a.mp3", bpm=90, initial_key="C")
    AfaPlugin().describe([item], write=False)
    assert (item.bpm, item.initial_key, item.afa_tempo) == (90, "C", 123.97)
    config["afa"]["overwrite"] = True
    AfaPlugin().describe([item], write=False)
    assert (item.bpm, item.initial_key) == (124, "Am")


def test_silence_has_neither_tempo_nor_key(
    service: type[Service], library: Library, tmp_path: Path
) -> None:
    service.heard = HEARD | {"tempo": 0.0, "key": None, "mode": None, "camelot": None}
    item = add(library, tmp_path / "a.mp3")
    AfaPlugin().describe([item], write=False)
    assert (item.bpm, item.initial_key, item.afa_camelot) == (0, None, "")


def test_a_file_without_audio_holds_nobody_up(
    service: type[Service], library: Library, tmp_path: Path
) -> None:
    items = [
        add(library, tmp_path / "broken.mp3", b"?"),
        add(library, tmp_path / "gone.mp3"),
        add(library, tmp_path / "good.mp3"),
    ]
    (tmp_path / "gone.mp3").unlink()
    AfaPlugin().describe(items, write=False)
    assert ["afa_loudness" in item for item in items] == [False, False, True]


def test_the_command_sends_what_was_not_described_yet(
    service: type[Service], library: Library, tmp_path: Path
) -> None:
    add(library, tmp_path / "a.mp3")
    plugin = AfaPlugin()
    (command,) = plugin.commands()
    for arguments, n_sent in (([], 1), ([], 1), (["-f"], 2), (["-f", "title:other"], 2)):
        options, query = command.parser.parse_args(arguments)
        plugin.command(library, options, query)
        assert len(service.uploads) == n_sent, arguments


def test_an_import_goes_on_without_the_service(library: Library, tmp_path: Path) -> None:
    config["afa"].set({"url": "http://127.0.0.1:9", "key": ""})
    item = add(library, tmp_path / "a.mp3")

    class Task:
        def imported_items(self) -> list[Item]:
            return [item]

    plugin = AfaPlugin()
    plugin.imported(None, Task())
    with pytest.raises(UserError, match="set `key`"):
        plugin.describe([item], write=False)
    config["afa"].set({})


def test_ctrl_c_ends_it_after_the_files_at_work(
    service: type[Service],
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    items = [add(library, tmp_path / f"{n}.mp3") for n in range(100)]
    monkeypatch.setattr(AfaPlugin, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        AfaPlugin().describe(items, write=False)
    assert 0 < len(service.uploads) < 50
