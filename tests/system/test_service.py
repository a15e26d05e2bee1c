"""The service as a customer meets it: submit audio, poll, read features."""

import json
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve_app.local import own_ray
from serve_app.local.embedded_redis import is_alive
from tests.data.audio_files import click_track, encode, silent_flac, write_wav
from tests.system.conftest import AFA, REPOSITORY, Service

pytestmark = [pytest.mark.ray, pytest.mark.redis]

DEMO = REPOSITORY / "serve_app" / "data" / "demo.mp3"
SPOTIFY_FIELDS = {
    *("id", "type", "uri", "track_href", "analysis_url", "key", "mode", "tempo", "loudness"),
    *("time_signature", "duration_ms", "energy", "danceability", "valence", "acousticness"),
    *("instrumentalness", "speechiness", "liveness"),
}


def submit(client: httpx.Client, audio: bytes, content_type: str, **params: Any) -> httpx.Response:
    return client.post(
        "/v1/audio-features/upload",
        content=audio,
        headers={"Content-Type": content_type},
        params=params,
    )


def poll(client: httpx.Client, job_id: str, **params: Any) -> Any:
    """Read a job; after 429 (one poll a second is allowed) or 503, wait as Retry-After says."""
    deadline = time.monotonic() + 240
    while (answer := client.get(f"/v1/jobs/{job_id}", params=params)).status_code in (429, 503):
        assert time.monotonic() < deadline, answer.text
        time.sleep(int(answer.headers["Retry-After"]))
    assert answer.status_code == 200, answer.text
    return answer.json()


def finish(client: httpx.Client, job_id: str, limit_s: float = 600, **params: Any) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        envelope = poll(client, job_id, wait=5, **params)
        if envelope["status"] in ("complete", "failed"):
            return envelope
    raise AssertionError(f"not finished: {envelope}")


def analyse(client: httpx.Client, audio: bytes, content_type: str, **params: Any) -> Any:
    deadline = time.monotonic() + 240
    while (answer := submit(client, audio, content_type, **params)).status_code == 503:
        assert time.monotonic() < deadline, answer.text
        time.sleep(int(answer.headers["Retry-After"]))
    assert answer.status_code == 202, answer.text
    return finish(client, answer.json()["job_id"])


@pytest.fixture(scope="module")
def demo_envelope(service: Service) -> Any:
    with service.client() as client:
        envelope = analyse(client, DEMO.read_bytes(), "audio/mpeg", include_embedding="true")
    assert envelope["status"] == "complete", envelope
    return envelope


def test_up_prints_a_table_a_key_and_the_curl_line(service: Service) -> None:
    output = service.up_output
    assert "tempo" in output
    assert "curl" in output
    assert service.url in output
    local_key = json.loads((service.data_dir / "session.json").read_text())["local_key"]
    assert f"{service.url}/#key={local_key}" in output.replace("\n", "")


def test_the_local_key_opens_the_page_and_has_no_limits(service: Service) -> None:
    local_key = json.loads((service.data_dir / "session.json").read_text())["local_key"]
    page = httpx.get(service.url, timeout=60)
    assert page.status_code == 200
    assert "playground" in page.text
    headers = {"Authorization": f"Bearer {local_key}"}
    account = httpx.get(f"{service.url}/v1/account", headers=headers, timeout=60).json()
    assert account["tier"] == "local"
    forwarded = headers | {"X-Forwarded-For": "203.0.113.5"}
    foreign = httpx.get(f"{service.url}/v1/account", headers=forwarded, timeout=60)
    assert foreign.status_code == 401


def test_keys_are_made_with_its_pepper_alone(service: Service, tmp_path: Path) -> None:
    url = (service.data_dir / "redis.url").read_text()
    environment = service.environment | {"AFA_REDIS_URL": url, "AFA_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [*AFA, "keys", "create", "stranger"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the service would refuse this key" in done.stderr


def test_the_session_file_is_private_and_complete(service: Service) -> None:
    path = service.data_dir / "session.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    session = json.loads(path.read_text())
    assert set(session) == {"folder", "url", "metrics", "keys", "local_key", "pids", "births"}
    assert set(session["keys"]) == {"free", "basic", "pro", "scale"}


def test_what_nobody_uses_takes_nothing(service: Service) -> None:
    alive = {name: pid for name, pid in service.pids.items() if is_alive(pid)}  # some have ended
    running = {name: psutil.Process(pid) for name, pid in alive.items()}
    commands = [" ".join(process.cmdline()) for process in running.values()]
    for idle in ("dashboard/dashboard.py", "log_monitor.py", "_private/monitor.py"):
        assert not [command for command in commands if idle in command]
    assert not [one for one in running["service"].memory_maps() if "torch" in one.path]
    for kind in ("gcs", "raylet", "ray::ServeReplica"):
        told = [name for name in running if name.startswith(kind)]
        assert told, kind  # other tests kill replicas
        for name in told:
            assert running[name].environ().items() >= own_ray.QUIET.items(), name


def test_the_features_of_the_demo_track_are_right(demo_envelope: Any) -> None:
    result = demo_envelope["result"]
    assert result["tempo"] == pytest.approx(124, rel=0.01)
    assert (result["key"], result["mode"], result["camelot"]) == ("A", "minor", "8A")
    assert result["time_signature"] == 4
    assert -30 < result["loudness"] < -5
    assert 25_000 < result["duration_ms"] < 40_000
    assert len(result["embedding"]) == 768
    assert np.linalg.norm(result["embedding"]) == pytest.approx(1, abs=1e-4)
    assert len(result["mood_tags"]) > 3
    spacing = np.diff(result["beats"])
    assert np.median(spacing) == pytest.approx(60 / 124, abs=0.005)
    assert set(result["downbeats"]) <= set(result["beats"])
    for name in ("energy", "danceability", "happiness", "acousticness", "instrumentalness"):
        assert 0 <= result[name] <= 100
    assert {"beats", "key", "attributes", "tags", "embedding"} <= set(result["models"])


def test_the_spotify_shape_on_poll(service: Service, demo_envelope: Any) -> None:
    job_id = demo_envelope["job_id"]
    with service.client() as client:
        result = finish(client, job_id, format="spotify")["result"]
    assert set(result) >= SPOTIFY_FIELDS
    assert result["id"] == job_id
    assert result["uri"] == f"afa:track:{job_id}"
    assert (result["key"], result["mode"]) == (9, 0)
    assert 0 <= result["valence"] <= 1


def test_the_meta_of_a_finished_job(demo_envelope: Any) -> None:
    meta = demo_envelope["_meta"]
    assert meta["credits_used"] == 10
    assert meta["progress"] == 1
    assert len(meta["trace_id"]) == 32


@pytest.mark.parametrize(
    ("container", "codec", "sample_format", "content_type"),
    [
        ("mp3", "libmp3lame", "fltp", "audio/mpeg"),
        ("wav", "pcm_s16le", "s16", "audio/wav"),
        ("flac", "flac", "s16", "audio/flac"),
        ("ogg", "vorbis", "fltp", "audio/ogg"),
        ("ipod", "aac", "fltp", "audio/mp4"),
    ],
)
def test_every_format_is_analysed(
    service: Service,
    tmp_path: Path,
    container: str,
    codec: str,
    sample_format: str,
    content_type: str,
) -> None:
    path = encode(
        tmp_path / "a", click_track(120, 12), container, codec, sample_format=sample_format
    )
    with service.client() as client:
        envelope = analyse(client, path.read_bytes(), content_type)
    assert envelope["status"] == "complete", envelope
    assert envelope["result"]["tempo"] == pytest.approx(120, rel=0.02)
    assert envelope["result"]["embedding"] is None


def test_silence_has_neither_beat_nor_key(service: Service, tmp_path: Path) -> None:
    path = silent_flac(tmp_path / "silence.flac", 5)
    with service.client() as client:
        result = analyse(client, path.read_bytes(), "audio/flac")["result"]
    assert (result["tempo"], result["key"], result["mode"], result["camelot"]) == (
        0,
        None,
        None,
        None,
    )
    assert result["loudness"] == -70


@pytest.mark.parametrize(("channels", "rate"), [(8, 44_100), (2, 192_000)])
def test_odd_formats_are_analysed(
    service: Service, tmp_path: Path, channels: int, rate: int
) -> None:
    samples = click_track(100, 8, channels, rate)
    path = write_wav(tmp_path / "a", samples, rate)
    with service.client() as client:
        envelope = analyse(client, path.read_bytes(), "audio/wav")
    assert envelope["status"] == "complete", envelope
    assert envelope["result"]["duration_ms"] == pytest.approx(8000, abs=60)


CONCAT = b"ffconcat version 1.0\nfile '/etc/passwd'\n"
PLAYLIST = b"#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:1/a.ts\n#EXT-X-ENDLIST\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"this is no audio at all" * 100, "unprocessable_audio"),
        (CONCAT, "unprocessable_audio"),
        (PLAYLIST, "unprocessable_audio"),
    ],
)
def test_what_is_not_audio_fails_with_a_message_and_no_charge(
    service: Service, body: bytes, code: str
) -> None:
    with service.client() as client:
        envelope = analyse(client, body, "audio/mpeg")
    assert envelope["status"] == "failed"
    assert envelope["error"]["error"] == code
    assert len(envelope["error"]["message"]) > 20
    assert envelope["_meta"]["credits_used"] == 0


def test_audio_of_a_fifth_of_a_second_is_too_short(service: Service, tmp_path: Path) -> None:
    path = encode(tmp_path / "a", click_track(120, 0.2), "wav", "pcm_s16le", sample_format="s16")
    with service.client() as client:
        envelope = analyse(client, path.read_bytes(), "audio/wav")
    assert (envelope["status"], envelope["error"]["error"]) == ("failed", "audio_too_short")


@pytest.mark.slow
def test_ten_hours_of_silence_are_too_long(service: Service, tmp_path: Path) -> None:
    path = silent_flac(tmp_path / "long.flac", 36_000)
    with service.client() as client:
        envelope = analyse(client, path.read_bytes(), "audio/flac")
    assert (envelope["status"], envelope["error"]["error"]) == ("failed", "audio_too_long")


def test_a_truncated_file_ends_one_way_or_the_other(service: Service) -> None:
    with service.client() as client:
        envelope = analyse(client, DEMO.read_bytes()[:60_000], "audio/mpeg")
    assert envelope["status"] == "complete"
    assert envelope["result"]["duration_ms"] < 6_000


def test_refusals_at_the_door(service: Service) -> None:
    with service.client() as client:
        assert submit(client, b"", "audio/mpeg").status_code == 400
        assert submit(client, b"x", "text/plain").status_code == 415
        too_large = submit(client, bytes(52_428_801), "audio/mpeg")
        assert (too_large.status_code, too_large.json()["error"]) == (413, "payload_too_large")
    with service.client("basic") as client:
        chunks = (bytes(1_048_576) for _ in range(16))
        chunked = client.post(
            "/v1/audio-features/upload", content=chunks, headers={"Content-Type": "audio/mpeg"}
        )
        assert chunked.status_code == 413
        wants_embedding = submit(client, b"x", "audio/mpeg", include_embedding="true")
        assert (wants_embedding.status_code, wants_embedding.json()["error"]) == (
            402,
            "tier_required",
        )
    with service.client("free") as client:
        assert submit(client, b"x", "audio/mpeg").json()["error"] == "tier_required"
    upload = f"{service.url}/v1/audio-features/upload"
    anonymous = httpx.post(upload, content=b"x", timeout=60)
    assert (anonymous.status_code, anonymous.json()["error"]) == (401, "unauthorized")
    wrong = {"Authorization": "Bearer afa_live_wrong"}
    unknown = httpx.get(f"{service.url}/v1/jobs/job_x", headers=wrong, timeout=60)
    assert unknown.status_code == 401
    no_text = httpx.get(f"{service.url}/healthz", headers={"X-Request-ID": b"\xe9"}, timeout=60)
    assert (no_text.status_code, no_text.json()["error"]) == (400, "bad_request")


def test_a_client_that_hangs_up_is_no_fault_of_the_service(service: Service) -> None:
    head = f"POST /v1/bpm HTTP/1.1\r\nHost: afa\r\nAuthorization: Bearer {service.keys['pro']}\r\n"
    address = service.url.removeprefix("http://").split(":")
    for _ in range(40):  # Serve forgets some before the Api has heard of them
        with socket.create_connection((address[0], int(address[1]))) as connection:
            connection.sendall(f"{head}Content-Length: 90000\r\n\r\nRIFF".encode())
            time.sleep(0.2)
    url = json.loads((service.data_dir / "session.json").read_text())["metrics"]
    found: dict[str, float] = {}
    deadline = time.monotonic() + 240  # Ray collects them every ten seconds
    while sum(found.values()) < 20:
        assert time.monotonic() < deadline, found
        time.sleep(1)
        page = httpx.get(url, timeout=60)
        if page.status_code == 502:
            continue  # Ray's own page was slow
        found = {
            sample.labels["status"]: sample.value
            for family in text_string_to_metric_families(page.text)
            for sample in family.samples
            if sample.name == "ray_afa_requests_total" and sample.labels["route"] == "/v1/bpm"
        }
    assert "500" not in found


class AudioHost(BaseHTTPRequestHandler):
    """Serves the demo track, an HTML page, and a redirect to a private address."""

    def do_GET(self) -> None:
        if self.path == "/demo.mp3":
            body, content_type = DEMO.read_bytes(), "audio/mpeg"
        elif self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://10.0.0.1/secret")
            self.end_headers()
            return
        else:
            body, content_type = b"<html><body>hello</body></html>", "text/html"
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def audio_host(service: Service) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", service.audio_port), AudioHost)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def submit_url(client: httpx.Client, url: str) -> httpx.Response:
    return client.post("/v1/audio-features/url", json={"url": url})


def test_audio_at_a_url_is_analysed(service: Service, audio_host: str) -> None:
    with service.client() as client:
        answer = submit_url(client, f"{audio_host}/demo.mp3")
        assert answer.status_code == 202, answer.text
        envelope = finish(client, answer.json()["job_id"])
    assert envelope["status"] == "complete", envelope
    assert envelope["result"]["tempo"] == pytest.approx(124, rel=0.01)


@pytest.mark.parametrize("path", ["/page.html", "/away"])
def test_a_page_or_a_private_redirect_fails_the_job(
    service: Service, audio_host: str, path: str
) -> None:
    with service.client() as client:
        envelope = finish(client, submit_url(client, audio_host + path).json()["job_id"])
    assert (envelope["status"], envelope["error"]["error"]) == ("failed", "url_fetch_failed")
    assert envelope["_meta"]["credits_used"] == 0


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/a.mp3", "ftp://example.org/a.mp3", "no url", "http://[::1]/a", ""]
)
def test_a_forbidden_url_is_refused_at_once(service: Service, url: str) -> None:
    with service.client() as client:
        answer = submit_url(client, url)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def test_another_owners_job_is_as_absent_as_none(service: Service, demo_envelope: Any) -> None:
    with service.client("scale") as client:
        foreign = client.get(f"/v1/jobs/{demo_envelope['job_id']}")
        unknown = client.get("/v1/jobs/job_00000000000000000000000000")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.json()["error"] == unknown.json()["error"] == "job_not_found"
    assert foreign.json()["message"] == unknown.json()["message"]


def test_the_readiness_names_every_part(service: Service) -> None:
    deadline = time.monotonic() + 120
    checks = dict[str, str]()
    while set(checks.values()) != {"ok"}:  # a busy part may not answer in time
        assert time.monotonic() < deadline, checks
        checks = httpx.get(f"{service.url}/readyz", timeout=60).json()["checks"]
    parts = {
        "ledger",
        "objects",
        "worker",
        "keeper",
        "audit",
        "journal",
        "spectral",
        "mood",
        "embedding",
    }
    assert set(checks) >= parts


def afa(service: Service, *arguments: str) -> str:
    """Run the `afa` command against a running service; return its output."""
    done = subprocess.run(
        [*AFA, *arguments, "--data-dir", str(service.data_dir)],
        cwd=REPOSITORY,
        env=service.environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("demo_envelope")
def test_prometheus_finds_what_the_batchers_measure(service: Service) -> None:
    url = json.loads((service.data_dir / "session.json").read_text())["metrics"]
    assert url in afa(service, "status")
    deployments = {"Spectral", "Mood", "Embedding"}
    per_forward = {"windows", "device_seconds"}
    found: dict[tuple[str, str], float] = {}
    deadline = time.monotonic() + 240  # Ray collects them every ten seconds
    while {(d, f"ray_afa_batch_{n}_sum") for d in deployments for n in per_forward} - found.keys():
        assert time.monotonic() < deadline, found
        time.sleep(1)
        found.clear()
        page = httpx.get(url, timeout=60)
        if page.status_code == 502:
            continue  # Ray's own page was slow
        for family in text_string_to_metric_families(page.text):
            for sample in family.samples:
                if sample.name.startswith("ray_afa_batch"):
                    assert {"model", "replica", "application"} <= sample.labels.keys()
                    at = sample.labels["deployment"], sample.name
                    found[at] = found.get(at, 0.0) + sample.value
    # Ray keeps counts exactly, but computes sums from the middles of buckets.
    for deployment in deployments:
        for name in ("windows_count", "device_seconds_count", "queue_seconds_count"):
            assert found[deployment, f"ray_afa_batch_{name}"] >= 1
        assert 0 < found[deployment, "ray_afa_batch_device_seconds_sum"] < 600


def test_up_again_is_harmless(service: Service) -> None:
    port = service.url.rpartition(":")[2]
    assert "already running" in afa(service, "up", "--no-demo", "--port", port)
    assert json.loads((service.data_dir / "session.json").read_text())["keys"] == service.keys
