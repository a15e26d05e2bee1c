"""Credits: hold + commit against an empty script with the same keys, per second of Redis CPU.

Both run on a ledger of their own (append-only file forced to disk always), from concurrent
connections. The CPU time is Redis's own account of itself (INFO), so neither the client nor the
disk is measured; the wall-clock figures beside it include both.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.report import Options, Result, Target, median_ratio
from configs.tables import load_table
from serve_app.domain.credits import AccountPayer
from serve_app.domain.tiers import Tiers
from serve_app.store import local_redis
from serve_app.store.client import Store, connect
from serve_app.store.ledger import Ledger

NAME = "credits"
TARGET_RATIO = 0.7
PAIRS = 8_000
QUICK_PAIRS = 500
CONNECTIONS = 64
ACCOUNTS = 32
EMPTY = "return 1"

Figures = dict[str, float]


async def redis_cpu_s(store: Store) -> float:
    """Give the CPU seconds that the server's main thread has used."""
    info = await store.redis.info("cpu")
    return float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"])


async def measure(store: Store, pairs: int, work: Callable[[int], Awaitable[object]]) -> Figures:
    """Run ``work`` for every pair and give rates per wall and per CPU second."""
    numbers = iter(range(pairs))

    async def drain() -> None:
        for number in numbers:
            await work(number)

    cpu_s, began_s = await redis_cpu_s(store), time.perf_counter()
    await asyncio.gather(*(drain() for _ in range(CONNECTIONS)))
    cpu_s, wall_s = await redis_cpu_s(store) - cpu_s, time.perf_counter() - began_s
    return {
        "pairs_per_cpu_s": pairs / cpu_s,
        "cpu_us_per_call": cpu_s / pairs / 2 * 1e6,
        "pairs_per_wall_s": pairs / wall_s,
    }


async def rounds(url: str, options: Options) -> dict[str, list[Figures]]:
    """Measure both contenders in turn."""
    store = connect(url, timeout_s=30, max_connections=CONNECTIONS + 8)
    tiers = Tiers(load_table("tiers"))
    ledger, tier = Ledger(store, tiers), tiers["scale"]
    payers = [AccountPayer(f"owner{number}", "scale") for number in range(ACCOUNTS)]
    digest = await store.redis.script_load(EMPTY)
    pairs = QUICK_PAIRS if options.is_quick else PAIRS
    serial = 0

    async def pay(number: int) -> None:
        payer, hold_id = payers[number % ACCOUNTS], f"req:{serial}-{number}"
        await ledger.reserve(payer, hold_id, 1)
        await ledger.commit(payer.account, hold_id)

    async def nothing(number: int) -> None:
        account, hold_id = payers[number % ACCOUNTS].account, f"req:{serial}-{number}"
        keys = store.keys.money(account, hold_id)
        more = store.keys.funding(account)
        numbers = (1, 300_000, "", tier.monthly_credits, tier.grace_credits)
        await store.redis.evalsha(digest, 6, *keys, *more, account, hold_id, *numbers)
        await store.redis.evalsha(digest, 4, *keys, account, hold_id, -1)

    found: dict[str, list[Figures]] = {"credits": [], "empty": []}
    try:
        for payer in payers:
            await ledger.topup(payer.account, "bench", 10**9)
        for _ in range(options.rounds):
            serial += 1
            found["empty"].append(await measure(store, pairs, nothing))
            found["credits"].append(await measure(store, pairs, pay))
    finally:
        await store.close()
    return found


def run(options: Options) -> Result:
    """Measure on a Redis of our own.

    References:
        ``serve_app/store/lua/reserve.lua``, ``serve_app/store/lua/commit.lua``.
    """
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        server = local_redis.start(Path(folder))
        try:
            found = asyncio.run(rounds(server.url, options))
        finally:
            server.stop()
    rates = {name: [f["pairs_per_cpu_s"] for f in figures] for name, figures in found.items()}
    ratio = median_ratio(rates["credits"], rates["empty"])
    rows = [
        [
            name,
            *(
                f"{min(f[key] for f in figures):.1f} … {max(f[key] for f in figures):.1f}"
                for key in figures[0]
            ),
        ]
        for name, figures in found.items()
    ]
    return Result(
        name=NAME,
        values={"rounds": found, "ratio": ratio},
        columns=("contender", "pairs per CPU second", "CPU µs per call", "pairs per second"),
        rows=rows,
        targets=[Target("hold + commit per core, of an empty script's", ratio, TARGET_RATIO)],
    )
