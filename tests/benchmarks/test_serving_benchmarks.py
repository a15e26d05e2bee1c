"""The load generators and the summaries of the serving benchmarks, on small servers."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from benchmarks.harness.api import serving
from benchmarks.harness.load import Load, Measured, request_text, run_load
from benchmarks.harness.scene import Scene, open_scene
from benchmarks.hop import hop
from benchmarks.hop.server import PATHS
from benchmarks.overload import overload
from benchmarks.overload.load import Arrivals, OpenLoad, apply_load, is_well_formed
from benchmarks.report import Options
from benchmarks.server_process import LOCAL, THROUGHPUT, UVICORN
from benchmarks.serving import upload

ERROR = {"error": "service_unavailable", "message": "full", "trace_id": "x"}


def test_the_echo_answers_on_every_path_and_times_itself() -> None:
    with hop.server(UVICORN) as port:
        for path in PATHS.values():
            assert run_load(Load(port, [request_text("GET", path, "")], 2, 60.0, 20)).n == 20
        inside = hop.ask_inside(port)
    assert inside["bare_ms"] > 0
    assert 0 < inside["hop_ms"] < 1_000  # a bare call, too


def test_hops_are_told_in_shares_of_uvicorn() -> None:
    def rounds(per_s: float) -> list[tuple[Measured, Measured]]:
        return [(Measured(per_s, 1.0, 2.0, 10), Measured(5.0, 0.5, 1.0, 10))]

    found = {
        profile: (
            {
                (who, path): rounds(100 if who == UVICORN else rate)
                for who in (UVICORN, profile)
                for path in PATHS
            },
            {"bare_ms": 0.001, "hop_ms": 2.0},
        )
        for profile, rate in ((LOCAL, 5.0), (THROUGHPUT, 20.0))
    }
    result = hop.summarise(found, Options())
    http = result.values["profiles"][THROUGHPUT]["http"]
    assert http[f"{THROUGHPUT}, echo"]["ratio_to_uvicorn"] == 0.2
    assert [target.is_met for target in result.targets] == [False, True]


@pytest.mark.parametrize(
    ("status", "headers", "body", "expected"),
    [
        ("503", {"retry-after": "5"}, json.dumps(ERROR).encode(), True),
        ("503", {}, json.dumps(ERROR).encode(), False),
        ("503", {"retry-after": "5"}, b"Service Unavailable", False),
        ("503", {"retry-after": "5"}, b"[]", False),
        ("500", {"retry-after": "5"}, json.dumps(ERROR).encode(), False),
    ],
)
def test_a_refusal_must_say_when_to_come_back(
    status: str, headers: dict[str, str], body: bytes, expected: bool
) -> None:
    assert is_well_formed(status, headers, body) is expected


async def test_open_load_does_not_wait_for_answers() -> None:
    n_inside, most_inside, n_seen = 0, 0, 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_inside, most_inside, n_seen
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(7) == bytes(7)
        n_inside, n_seen = n_inside + 1, n_seen + 1
        most_inside = max(most_inside, n_inside)
        await asyncio.sleep(0.2)
        n_inside -= 1
        status, body = ("503", json.dumps(ERROR).encode()) if n_seen % 4 else ("200", b"{}")
        writer.write(
            f"HTTP/1.1 {status} X\r\nRetry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n"
        found = await apply_load(OpenLoad(port, [head], 7, 100.0, 0.4, 1))
    assert (found.n, found.others) == (40, {})
    assert len(found.served_s) + len(found.refused_s) == 40
    assert found.served_s
    assert most_inside > 5
    assert min(found.served_s + found.refused_s) >= 0.2


def test_goodput_and_holds_are_told_per_profile() -> None:
    def rounds(n_served: int, n_refused: int) -> list[Arrivals]:
        return [Arrivals(100, [0.3] * n_served, [0.01] * n_refused, {}, 10.0)]

    books = overload.Books(committed=280, voided=3, open_holds=0, mismatches=0)
    measured = {1: rounds(100, 0), 2: rounds(95, 100), 4: rounds(85, 300)}
    result = overload.summarise({LOCAL: (measured, books)}, Options())
    profile = result.values["profiles"][LOCAL]
    assert (profile["goodput_2x"], profile["goodput_4x"]) == (0.95, 0.85)
    assert (profile["refused"], profile["refused_after_a_hold"]) == (400, 3)
    missed = [target.name for target in result.targets if not target.is_met]
    assert missed == [f"{LOCAL}: goodput at 4 x"]


def test_a_bare_copy_is_timed() -> None:
    with upload.sink() as port:
        assert upload.copy_rate(port, 3_000_000) > 1
        assert upload.copy_rate(port, 2_000_000) > 1


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with open_scene(n_tracks=100) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.redis
def test_uploads_are_weighed_and_too_much_is_refused(scene: Scene) -> None:
    with serving(UVICORN, scene.stores, scene.catalog_dir) as server:
        upload.upload(server.port, scene.keys[0], 1_000_000)
        rate, memory = upload.weigh(server, scene.keys[0], 5_000_000)
        assert rate > 0.1
        assert 0 <= memory < 20
        for is_chunked in (False, True):
            taken = upload.taken_before_413(server.port, scene.keys[0], is_chunked=is_chunked)
            assert is_chunked <= (taken > 0)  # an announced length may be refused from the headers
            assert taken < 4
        with pytest.raises(RuntimeError, match="401"):
            upload.upload(server.port, "no key", 10_000)
