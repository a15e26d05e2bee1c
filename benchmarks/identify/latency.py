"""How long an identification takes: matched locally, by a paid service, and with one that hangs.

From the decoded waveform to the outcome. The service is a stand-in on loopback that answers after
`SERVICE_S`, the time that AudD and ACRCloud typically take; the hanging one never answers.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import torch

from benchmarks.report import Options, Result, Target
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.domain.identification import Recogniser
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.recognisers.acrcloud import AcrCloud
from serve_app.providers.recognisers.audd import Audd
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.own_index import LocalRecogniser
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.services.identify.cascade import TOTAL_BUDGET_S, IdentifyCascade

NAME = "identify_latency"
SERVICE_S = 0.5
N_CALLS = 20
N_HANGING = 4
"""One less than the number of failures that opens the circuit, after which nobody waits."""
ORDER = ("local", "audd", "acrcloud")
FOUND = {"status": "success", "result": {"artist": "A", "title": "T"}}
FOUND_ACR = {"status": {"code": 0}, "metadata": {"music": [{"title": "T", "score": 90}]}}


def run(options: Options) -> Result:
    """Measure; about half a minute."""
    torch.set_num_threads(1)
    return asyncio.run(_run(4 if options.is_quick else N_CALLS))


async def _run(n_calls: int) -> Result:
    fingerprinter = Fingerprinter()
    known, unknown = _music(1), _music(2)
    rows = []
    async with _service() as url:
        with tempfile.TemporaryDirectory() as folder:
            with FingerprintIndexBuilder(Path(folder)) as builder:
                builder.build([("known", fingerprinter.make_fingerprints([known])[0])])
            local = LocalRecogniser(Path(folder), lambda _: None)
            cases: list[tuple[str, Waveform, Sequence[str], int]] = [
                ("matched locally", known, (), n_calls),
                ("matched by the next service", unknown, ("audd",), n_calls),
                ("one hangs, the next matches", unknown, ("hanging", "acrcloud"), N_HANGING),
            ]
            for name, waveform, services, n in cases:
                recognisers: list[Recogniser] = [local]
                recognisers += [_recogniser(one, url) for one in services]
                spent = await _time(fingerprinter, recognisers, waveform, n)
                p50, p95 = np.percentile(spent, [50, 95])
                rows.append((name, float(p50), float(p95), n))
    slowest = max(row[2] for row in rows)
    return Result(
        NAME,
        values={"seconds": {row[0]: {"p50": row[1], "p95": row[2]} for row in rows}},
        columns=("case", "p50 s", "p95 s", "n"),
        rows=rows,
        targets=[Target("slowest p95, s", slowest, TOTAL_BUDGET_S, at_least=False)],
    )


async def _time(
    fingerprinter: Fingerprinter, recognisers: list[Recogniser], waveform: Waveform, n: int
) -> list[float]:
    cascade = IdentifyCascade(recognisers, ORDER)
    spent = []
    for _ in range(n):
        start = time.perf_counter()
        clip = await asyncio.to_thread(fingerprinter.make_clip, waveform)
        outcome = await cascade.identify(clip)
        spent.append(time.perf_counter() - start)
        if not outcome.matched:
            raise RuntimeError(f"no match: {outcome.services_tried}")
    return spent


def _recogniser(name: str, url: str) -> Recogniser:
    limiter, cap = LocalRateLimiter(), MonthlyCap(1000)
    if name == "acrcloud":
        return AcrCloud(url, "key", "secret", limiter, cap)
    return Audd(f"{url}/{name}", "token", limiter, cap)


def _music(seed: int, seconds: float = 60.0, rate: int = 44_100) -> Waveform:
    """Decaying notes, in which landmarks can be found."""
    rng = np.random.default_rng(seed)
    audio = np.zeros(int(seconds * rate))
    t = np.arange(rate) / rate
    for start in rng.integers(0, len(audio) - rate, int(seconds * 8)):
        note = np.sin(2 * np.pi * rng.uniform(220, 3500) * t)
        audio[start : start + rate] += rng.uniform(0.2, 1) * np.exp(-t * 6) * note
    return Waveform((audio / np.abs(audio).max()).astype(np.float32)[None])


@asynccontextmanager
async def _service() -> AsyncIterator[str]:
    """Serve AudD's and ACRCloud's responses, and never answer below ``/hanging``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(
            line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
        )
        await reader.readexactly(int(fields.get("content-length", "0")))
        path = head.split(" ", 2)[1]
        if path.startswith("/hanging"):
            await reader.read()  # until the caller gives up
            writer.close()
            return
        await asyncio.sleep(SERVICE_S)
        body = json.dumps(FOUND_ACR if path == "/v1/identify" else FOUND).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
