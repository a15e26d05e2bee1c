"""A worker that runs jobs which do nothing, fails some, and sometimes dies at the worst moment.

``python -m tests.soak.job_worker URL`` forks a worker for every name that it reads from standard
input, and prints the worker's pid. A worker works until it is killed. Between storing a result and
reporting it, and between claim and start, it may kill itself with SIGKILL.
"""

import asyncio
import os
import random
import signal
import sys

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.records import JobPolicy
from serve_app.ledger.jobs.types import Claim, FileSource
from serve_app.store.client import connect
from tests.store.setting import rich_tiers

SHARDS = 4
AT_ONCE = 16
POLICY = JobPolicy(lease_s=1.5, max_wait_s=1e9, owner_in_flight=1000, first_backoff_ms=50)
CHANCE_OF_DEATH = 0.0005


def perhaps_die() -> None:
    if random.random() < CHANCE_OF_DEATH:
        os.kill(os.getpid(), signal.SIGKILL)


async def run_one(jobs: Jobs, claim: Claim) -> None:
    perhaps_die()
    assert isinstance(claim.work.source, FileSource)
    match claim.work.source.path:
        case "complete":
            await jobs.finish(claim, b"{}")
        case "cheaper":
            await jobs.finish(claim, b"{}", claim.cost // 2)
        case "fail":
            await jobs.fail(claim, "unprocessable_audio", "not audio")
        case "retry":
            await jobs.fail(claim, "url_fetch_failed", "no answer", retryable=True)
        case "recover":
            if claim.attempt == 1:
                await jobs.fail(claim, "url_fetch_failed", "no answer", retryable=True)
            else:
                await jobs.finish(claim, b"{}")
    perhaps_die()


async def loop(jobs: Jobs, name: str) -> None:
    while True:
        try:
            claim = await jobs.claim(name, wait_s=0.2)
            if claim is not None:
                await run_one(jobs, claim)
        except ServiceUnavailableError:
            await asyncio.sleep(0.05)


async def main(url: str, name: str) -> None:
    jobs = Jobs(connect(url, shards=SHARDS, timeout_s=5), rich_tiers(), POLICY)
    # The ticket is noted before the record is started, so die between the two as well.
    start = jobs._start

    async def start_or_die(*args: str) -> Claim | None:
        perhaps_die()
        return await start(*args)

    jobs._start = start_or_die  # type: ignore[method-assign]
    await asyncio.gather(*(loop(jobs, name) for _ in range(AT_ONCE)))


def serve(url: str) -> None:
    """Fork a worker for every line of input; that is much faster than starting an interpreter."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            random.seed()
            asyncio.run(main(url, line.strip()))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
