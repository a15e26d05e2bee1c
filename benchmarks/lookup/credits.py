"""Credits: hold + commit against an empty script with the same keys, per second of Redis CPU.

The ledger is driven as by the service: by several callers in one process, whose operations share a
call while they wait; one caller alone shows a call with a single operation. The empty scripts, one
call per operation, come from as many connections as there are callers. ``bare`` are scripts that
make only the writes that a durable hold needs (balance, hold, deadline, journal), without any
logic: the best that one call per operation could reach.

All run on their own ledger (append-only file always forced to disk), which is kept saturated. The
CPU time is Redis's own account of its main thread (INFO), which excludes the client but includes
forcing the file to disk. The wall-clock figures next to it include the client and the disk.
"""

import asyncio
import select
import socket
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.report import Options, Result, Target, interleave, median_ratio
from configs.tables import load_table
from serve_app.domain.credits import AccountPayer
from serve_app.domain.tiers import Tiers
from serve_app.ledger.ledger import Ledger
from serve_app.local import embedded_redis
from serve_app.store.client import connect
from serve_app.store.keys import Keyspace

NAME = "credits"
TARGET_RATIO = 0.7
PAIRS = 16_000
QUICK_PAIRS = 2_000
MOST_CALLERS = 256
CALLERS = (MOST_CALLERS, 128, 32, 1)
ACCOUNTS = 32
MONTHLY, FLOOR, TTL_MS = 10**9, 10_000, 300_000
EMPTY = b"return {'OK'}"
BARE_RESERVE = b"""
redis.call('MGET', KEYS[1], KEYS[2])
redis.call('XADD', KEYS[4], '*', 'e', ARGV[1] .. ' reserve ' .. ARGV[2], 'v', string.rep('x', 32))
redis.call('MSET', KEYS[1], string.rep('x', 112), KEYS[2], string.rep('x', 46))
redis.call('ZADD', KEYS[3], redis.call('TIME')[1], ARGV[1] .. '\\31' .. ARGV[2])
return {'OK', string.rep('x', 112)}
"""
BARE_COMMIT = b"""
redis.call('MGET', KEYS[1], KEYS[2])
redis.call('XADD', KEYS[4], '*', 'e', ARGV[1] .. ' commit ' .. ARGV[2], 'v', string.rep('x', 32))
redis.call('MSET', KEYS[1], string.rep('x', 112), KEYS[2], string.rep('x', 46))
redis.call('ZREM', KEYS[3], ARGV[1] .. '\\31' .. ARGV[2])
return {'OK', string.rep('x', 112)}
"""

Pair = tuple[bytes, bytes]


def encode(*parts: str | int | bytes) -> bytes:
    """Encode one command in Redis's protocol."""
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(t), t) for t in texts)


def ask(peer: socket.socket, *parts: str | int | bytes) -> bytes:
    """Send one command and return its short answer."""
    peer.sendall(encode(*parts))
    return peer.recv(1 << 16)


def main_thread_cpu_s(peer: socket.socket) -> float:
    """Return the CPU seconds that the server's main thread has used."""
    lines = [line.split(":") for line in ask(peer, "INFO", "cpu").decode().split() if ":" in line]
    info = dict(lines)
    return float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"])


def drive(path: str, pairs: Sequence[Pair]) -> None:
    """Send every pair as fast as possible, its second command after the answer to its first.

    Raises:
        RuntimeError: A script did not do what it should.
    """
    waiting = iter(pairs)
    peers: dict[int, socket.socket] = {}
    following: dict[int, Iterator[bytes]] = {}
    poll = select.epoll()
    for _ in range(min(MOST_CALLERS, len(pairs))):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(path)
        peers[peer.fileno()] = peer
        following[peer.fileno()] = iter(next(waiting))
        poll.register(peer.fileno(), select.EPOLLIN)
        peer.sendall(next(following[peer.fileno()]))
    open_peers = len(peers)
    while open_peers:
        for descriptor, _ in poll.poll():
            peer = peers[descriptor]
            answer = peer.recv(4096)
            if b"OK" not in answer:
                raise RuntimeError(f"unexpected answer {answer!r}")
            command = next(following[descriptor], None)
            if command is None:
                following[descriptor] = iter(next(waiting, ()))
                command = next(following[descriptor], None)
            if command is None:
                poll.unregister(descriptor)
                open_peers -= 1
            else:
                peer.sendall(command)
    for peer in peers.values():
        peer.close()


class Scripts:
    """A pair of scripts, one call each, measured on fresh hold ids each time."""

    def __init__(self, path: str, name: str, reserve: bytes, commit: bytes, n_pairs: int) -> None:
        self._path = path
        self._name = name
        self._peer = socket.socket(socket.AF_UNIX)
        self._peer.connect(path)
        self._digests = [
            ask(self._peer, "SCRIPT", "LOAD", text).split()[1] for text in (reserve, commit)
        ]
        self._n_pairs = n_pairs
        self._round = 0
        self.pairs_per_wall_s: list[float] = []

    def pairs(self) -> list[Pair]:
        """Encode all commands of one round."""
        keys, (reserve, commit) = Keyspace(), self._digests
        found = []
        for number in range(self._n_pairs):
            # Separate accounts, since the bare scripts leave no readable balance.
            account = f"{self._name}{number % ACCOUNTS}"
            hold_id = f"req:{self._round}{number:030x}"
            names = keys.money(account, hold_id)
            tail = (account, hold_id, 1, TTL_MS, "", MONTHLY, FLOOR)
            first = encode("EVALSHA", reserve, 6, *names, *keys.funding(account), *tail)
            found.append((first, encode("EVALSHA", commit, 4, *names, account, hold_id, -1)))
        return found

    def measure(self) -> float:
        """Return pairs per second of Redis CPU."""
        self._round += 1
        pairs = self.pairs()
        cpu_s, began_s = main_thread_cpu_s(self._peer), perf_counter()
        drive(self._path, pairs)
        self.pairs_per_wall_s.append(len(pairs) / (perf_counter() - began_s))
        return len(pairs) / (main_thread_cpu_s(self._peer) - cpu_s)

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


class Service:
    """The ledger with a number of callers, measured on fresh hold ids each time."""

    def __init__(self, url: str, n_callers: int, n_pairs: int) -> None:
        self._url = url
        self._n_callers = n_callers
        # A single caller waits for the disk each time.
        self._n_pairs = max(100, n_pairs * min(n_callers, 32) // 32)
        self._round = 0
        self.pairs_per_wall_s: list[float] = []

    def measure(self) -> float:
        """Return pairs per second of Redis CPU."""
        self._round += 1
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self._url.removeprefix("unix://"))
            cpu_s, began_s = main_thread_cpu_s(peer), perf_counter()
            asyncio.run(self._drive())
            self.pairs_per_wall_s.append(self._n_pairs / (perf_counter() - began_s))
            return self._n_pairs / (main_thread_cpu_s(peer) - cpu_s)

    async def _drive(self) -> None:
        store = connect(self._url, timeout_s=30)
        ledger = Ledger(store, rich_tiers())
        numbers = iter(range(self._n_pairs))

        async def call() -> None:
            for number in numbers:
                payer = AccountPayer(f"service{number % ACCOUNTS}", "pro")
                hold_id = f"req:{self._round}-{self._n_callers}-{number:024x}"
                await ledger.reserve(payer, hold_id, 1)
                await ledger.commit(payer.account, hold_id)

        await asyncio.gather(*(call() for _ in range(self._n_callers)))
        await store.close()


def rich_tiers() -> Tiers:
    """Return tiers with a grant that does not run out."""
    table = load_table("tiers")
    table["pro"].update(monthly_credits=MONTHLY)
    return Tiers(table)


def run(options: Options) -> Result:
    """Measure on a separate Redis.

    References:
        ``serve_app/ledger/lua/hold_operations.lua``, ``serve_app/ledger/hold_operations.py``.
    """
    n_pairs = QUICK_PAIRS if options.is_quick else PAIRS
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        server = embedded_redis.start(Path(folder))
        try:
            path = server.url.removeprefix("unix://")
            scripts = (
                Scripts(path, "empty", EMPTY, EMPTY, n_pairs),
                Scripts(path, "bare", BARE_RESERVE, BARE_COMMIT, n_pairs),
            )
            # Compared measurements are adjacent: a busy machine's noise comes and goes.
            contenders: dict[str, Scripts | Service] = {"empty": scripts[0]}
            for n_callers in CALLERS:
                name = f"credits, callers: {n_callers}"
                contenders[name] = Service(server.url, n_callers, n_pairs)
            contenders["bare"] = scripts[1]
            found = interleave({n: c.measure for n, c in contenders.items()}, options.rounds)
            for contender in scripts:
                contender.close()
        finally:
            server.stop()
    ratios = {name: median_ratio(found[name], found["empty"]) for name in found}
    rows = [
        (
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} … {max(rates):,.0f}",
            f"{1e6 / 2 / statistics.median(rates):.1f}",
            f"{ratios[name]:.2f}",
            f"{statistics.median(contenders[name].pairs_per_wall_s):,.0f}",
        )
        for name, rates in found.items()
    ]
    ratio = ratios[f"credits, callers: {MOST_CALLERS}"]
    return Result(
        name=NAME,
        values={
            "pairs_per_cpu_s": found,
            "cpu_us_per_operation": {n: 5e5 / statistics.median(r) for n, r in found.items()},
            "ratio_to_empty": ratios,
        },
        columns=(
            "calls",
            "pairs per CPU s",
            "range",
            "CPU µs per operation",
            "ratio",
            "pairs per s",
        ),
        rows=rows,
        targets=[
            Target(
                f"hold + commit per core with {MOST_CALLERS} callers, of an empty script's",
                ratio,
                TARGET_RATIO,
            )
        ],
    )
