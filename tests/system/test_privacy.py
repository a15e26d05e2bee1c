"""What other users of the machine, and its neighbours, can reach of a local service."""

import os
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from serve_app.local.embedded_redis import read_pid_file
from serve_app.local.processes import descendants, listeners
from tests.system.conftest import Service

pytestmark = [pytest.mark.ray, pytest.mark.redis]


def test_everything_listens_on_loopback_only(service: Service) -> None:
    own = service.pids["service"]
    found = listeners([own, *descendants(own).values()])
    assert len(found) > 10  # including Ray's and Serve's
    assert [one for one in found if one.is_open] == []


def test_the_data_folder_is_closed(service: Service) -> None:
    assert stat.S_IMODE(service.data_dir.stat().st_mode) == 0o700
    modes = dict[str, int]()
    for folder, folders, files in os.walk(service.data_dir):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # the service may delete files meanwhile
                mode = (Path(folder) / name).lstat().st_mode
                if not (stat.S_ISSOCK(mode) or stat.S_ISLNK(mode)):
                    modes[name] = stat.S_IMODE(mode) & 0o077
    assert len(modes) > 10
    assert {name: oct(mode) for name, mode in modes.items() if mode} == {}


def test_nobody_else_reaches_the_sockets_of_its_ray(service: Service) -> None:
    (raylet,) = (pid for name, pid in service.pids.items() if name.startswith("raylet"))
    option, words = "--raylet_socket_name=", psutil.Process(raylet).cmdline()
    (socket,) = (Path(word.removeprefix(option)) for word in words if word.startswith(option))
    assert stat.S_IMODE(socket.parents[3].stat().st_mode) == 0o700


def test_a_webhook_secret_is_not_in_the_files(service: Service) -> None:
    with service.client("scale") as client:
        answer = client.put("/v1/account/webhook", json={"url": "https://example.org/private"})
        assert answer.status_code == 200, answer.text
        client.delete("/v1/account/webhook")
    secret = answer.json()["secret"].removeprefix("whsec_").encode()
    log = b"".join(p.read_bytes() for p in (service.data_dir / "redis-ledger").rglob("*.aof*"))
    assert b"https://example.org/private" in log
    assert secret not in log


def test_while_it_starts_the_service_says_so(service: Service) -> None:
    answers = service.answers_while_starting
    assert answers  # from the proxy if it was up before the Api, otherwise only from the Api
    for answer in (one for one in answers if one.status_code == 503):
        assert answer.json()["error"] == "service_unavailable"
        assert int(answer.headers["Retry-After"]) >= 1
    others = [answer for answer in answers if answer.status_code != 503]
    assert {(answer.status_code, answer.json()["error"]) for answer in others} <= {
        (404, "not_found")
    }


def test_a_forwarded_address_of_a_stranger_does_not_count(service: Service) -> None:
    def ask(n: int) -> int:
        headers = {"X-Forwarded-For": f"198.51.100.{n}"}
        return httpx.get(f"{service.url}/v1/account", headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(16) as at_once:  # faster than the limit refills
        assert 429 in set(at_once.map(ask, range(90)))
    socket = service.data_dir / "redis-cache" / "redis.sock"
    with Redis.from_url(f"unix://{socket}") as cache:  # other tests fail to authenticate, too
        assert cache.delete(*cache.scan_iter("*rl:auth:*")) == 1


def test_a_killed_ledger_comes_back(service: Service) -> None:
    folder = service.data_dir / "redis-ledger"
    before = read_pid_file(folder)
    assert before is not None
    os.kill(before[0], signal.SIGKILL)
    deadline = time.monotonic() + 240
    while True:
        after = read_pid_file(folder)
        with service.client(is_patient=False) as client:
            answer = client.get("/v1/account")
        if after != before and answer.is_success:
            break
        assert answer.status_code in (200, 503), answer.text
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert after is not None
    assert after[1] == before[1]
    assert httpx.get(f"{service.url}/readyz", timeout=60).status_code in (200, 503)
