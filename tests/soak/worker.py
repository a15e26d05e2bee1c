"""A service that moves credits and logs the answers; it is meant to be killed.

``python -m tests.soak.worker URL LOG NAME LUA`` works until the file ``LOG.stop`` exists and every
flow that it began has ended. A flow is ``reserve`` and then ``commit`` or ``void``, or a ``topup``.
What it does follows from its id alone, so a successor continues where a killed worker stopped, and
repeats the step in flight.
"""

import asyncio
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

from serve_app.domain.credits import AccountPayer, HoldClosedError, HoldMismatchError
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.ledger import Ledger
from serve_app.store.client import connect
from tests.store.setting import rich_tiers

FLOWS_AT_ONCE = 48
ACCOUNTS = 20
SHARDS = 4
PAUSE_S = 0.02


@dataclass(frozen=True)
class Plan:
    """What one flow does."""

    flow_id: str
    account: str
    steps: tuple[str, ...]
    cost: int
    final: int

    @classmethod
    def of(cls, flow_id: str) -> "Plan":
        chance = random.Random(flow_id)
        account = f"owner{chance.randrange(ACCOUNTS)}"
        cost = chance.randint(1, 100)
        kind = chance.choices(("commit", "part", "void", "topup"), (5, 2, 2, 1))[0]
        if kind == "topup":
            return cls(flow_id, account, ("topup",), cost, cost)
        final = {"commit": cost, "part": chance.randint(0, cost), "void": 0}[kind]
        return cls(
            flow_id, account, ("reserve", "void" if kind == "void" else "commit"), cost, final
        )


@dataclass
class Log:
    """Lines ``begin <flow>`` and ``<step> <flow> <answer>``, in the page cache after a kill."""

    path: Path
    done: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                word, flow_id = line.split(" ")[:2]
                if word == "begin":
                    self.begun.add(flow_id)
                else:
                    self.done[flow_id] = self.done.get(flow_id, 0) + 1
        self.descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *words: str) -> None:
        os.write(self.descriptor, (" ".join(words) + "\n").encode())


async def take_step(ledger: Ledger, plan: Plan, step: str) -> str:
    """Repeat one step until there is a definite answer."""
    payer = AccountPayer(plan.account, "pro")
    while True:
        try:
            match step:
                case "reserve":
                    await ledger.reserve(payer, plan.flow_id, plan.cost, ttl_s=36_000)
                case "commit":
                    await ledger.commit(plan.account, plan.flow_id, plan.final)
                case "void":
                    await ledger.void(plan.account, plan.flow_id)
                case "topup":
                    await ledger.topup(plan.account, plan.flow_id, plan.cost)
        except ServiceUnavailableError:
            await asyncio.sleep(PAUSE_S)
        except (HoldClosedError, HoldMismatchError) as error:
            return f"wrong:{getattr(error, 'state', 'mismatch')}"
        else:
            return "ok"


async def run_flow(ledger: Ledger, log: Log, plan: Plan, first: int) -> None:
    for step in plan.steps[first:]:
        log.write(step, plan.flow_id, await take_step(ledger, plan, step))


async def work(url: str, log_path: Path, name: str, lua: Path | None) -> None:
    def read(script: str) -> str:
        assert lua is not None
        return (lua / f"{script}.lua").read_text(encoding="utf-8")

    options = {} if lua is None else {"source": read}
    store = connect(url, shards=SHARDS, timeout_s=2, **options)
    ledger = Ledger(store, rich_tiers())
    log = Log(log_path)
    unfinished = [Plan.of(flow_id) for flow_id in log.begun]
    queue = [plan for plan in unfinished if log.done.get(plan.flow_id, 0) < len(plan.steps)]
    serial = len(log.begun)
    stop = log_path.with_suffix(".stop")

    async def loop() -> None:
        nonlocal serial
        while queue or not stop.exists():
            if queue:
                plan = queue.pop()
            else:
                serial += 1
                plan = Plan.of(f"{name}-{serial}")
                log.write("begin", plan.flow_id)
            await run_flow(ledger, log, plan, log.done.get(plan.flow_id, 0))

    await asyncio.gather(*(loop() for _ in range(FLOWS_AT_ONCE)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(
        work(
            sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]) if sys.argv[4:] else None
        )
    )
