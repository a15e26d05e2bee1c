"""Restore: a ledger from an archive of ten million entries, into an empty Redis.

The archive is written to the documented schema, without the exporter, whose speed is a separate
matter: three months of charged holds, two journal entries per call, a hundred calls per segment,
1,000 accounts. ``verify`` and ``restore`` run in their own process, so that the peak memory is
theirs.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import Options, Result, Target
from serve_app.ledger.archive.segments import FORMAT, Segment
from serve_app.ledger.journal import PAGE
from serve_app.ledger.packed import AccountState
from serve_app.local import embedded_redis
from serve_app.store.keys import Keyspace

NAME = "restore"
ENTRIES = 10_000_000
QUICK_ENTRIES = 20_000
ACCOUNTS = 1_000
GRANT = 10**9
BEGAN_MS, SPAN_MS, ENDS_MS = 1_785_974_400_000, 90 * 24 * 3_600_000, 1_796_083_200_000
TTL_MS = 300_000
TARGET_ENTRIES_PER_CPU_S = 10_000
MEASURE = """
import asyncio, json, resource, sys, time
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.archive.restore import restore, verify
from serve_app.store.client import connect

async def main(archive, url):
    store, times = connect(url, timeout_s=60), {}
    for name, work in (("verify", verify(archive)), ("restore", restore(store, archive))):
        began, cpu_s = time.perf_counter(), time.process_time()
        done = await work
        times[name] = time.perf_counter() - began
        times[f"{name}_cpu"] = time.process_time() - cpu_s
        assert getattr(done, "problems", []) == [], done.problems[:3]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**times, "entries": done.entries, "peak_mib": peak / 1024}))

asyncio.run(main(Archive(sys.argv[1]), sys.argv[2]))
"""


def accounts_by_shard() -> dict[str, list[str]]:
    """Return account names by shard."""
    keys, found = Keyspace(), dict[str, list[str]]()
    for number in range(ACCOUNTS):
        name = f"owner{number:05d}"
        found.setdefault(keys.tag(name)[1:-1], []).append(name)
    return found


def calls(names: list[str], n_calls: int) -> Iterator[tuple[str, str]]:
    """Yield the id and line of each of a shard's calls, which charge a hold and begin the next."""
    for number in range(n_calls):
        account, turn = names[number % len(names)], number // len(names)
        at_ms = BEGAN_MS + number * SPAN_MS // n_calls
        length = max(1, 2 * turn)
        state = AccountState(
            *(GRANT - turn, 0, 0, 0, 202611, ENDS_MS, GRANT, GRANT, length, 0, int(turn > 0)),
            *(0, 0, -1, 1),
        )
        entries, holds, deadlines = [entry(account, 1, "grant", "202611", GRANT)], "", ""
        if turn:
            entries = [entry(account, length, "reserve", f"req:{turn:026d}", -1)]
            holds = hold(account, turn, "held", 0)
            deadlines = f', "deadlines": {{"{account}\\u001freq:{turn:026d}": {at_ms + TTL_MS}}}'
        if turn > 1:
            done = turn - 1
            entries.insert(0, entry(account, length - 1, "commit", f"req:{done:026d}", 0))
            holds = f"{hold(account, done, 'committed', 1)}, {holds}"
        yield (
            f"{at_ms}-{number}",
            f'{{"call": "{at_ms}-{number}", "entries": [{", ".join(entries)}], '
            f'"accounts": {{"{account}": {list(state)}}}, "holds": {{{holds}}}{deadlines}}}\n',
        )


def entry(account: str, number: int, kind: str, entry_id: str, grant: int) -> str:
    """Format a journal entry."""
    return (
        f'{{"account": "{account}", "number": {number}, "kind": "{kind}", '
        f'"entry_id": "{entry_id}", "grant": {grant}, "packs": 0, "debt": 0, "note": ""}}'
    )


def hold(account: str, turn: int, state: str, final: int) -> str:
    """Format a hold of one credit."""
    name = f"{account}\\u001freq:{turn:026d}"
    return f'"{name}": ["{state}", 1, {final}, 1, 0, 0, 0, ""]'


def write_archive(folder: Path, n_entries: int) -> int:
    """Write the segments; return the number of bytes."""
    shards, size = accounts_by_shard(), 0
    for shard, names in shards.items():
        n_calls = n_entries * len(names) // (2 * ACCOUNTS)
        (folder / shard).mkdir(parents=True)
        previous, page = "", list[tuple[str, str]]()
        for number, call in enumerate(calls(names, n_calls), 1):
            page.append(call)
            if len(page) < PAGE and number < n_calls:
                continue
            place = -(-number // PAGE)
            head = {"format": FORMAT, "shard": shard, "segment": place}
            head |= {"first": page[0][0], "last": page[-1][0], "previous": previous}
            text = f"{json.dumps(head)}\n{''.join(line for _, line in page)}".encode()
            segment = Segment(shard, place, page[0][0], page[-1][0])
            (folder / segment.key).write_bytes(text)
            previous, page, size = hashlib.sha256(text).hexdigest(), [], size + len(text)
    return size


def run(options: Options) -> Result:
    """Write an archive, verify it, restore it.

    References:
        ``docs/operating/ledger-archive.md``.
    """
    n_entries = QUICK_ENTRIES if options.is_quick else ENTRIES
    with tempfile.TemporaryDirectory(prefix="afa-") as text:
        folder = Path(text)
        size = write_archive(folder / "archive", n_entries)
        server = embedded_redis.start(folder / "redis")
        try:
            url = (folder / "archive").as_uri()
            command = [sys.executable, "-c", MEASURE, url, server.url]
            done = subprocess.run(command, check=True, capture_output=True)  # noqa: S603  our own text
            told = json.loads(done.stdout)
        finally:
            server.stop()
    rate = told["entries"] / told["restore_cpu"]
    values = {**told, "archive_bytes": size, "entries_per_cpu_s": rate}
    rows = [
        (
            name,
            f"{told[name]:,.0f}",
            f"{told[f'{name}_cpu']:,.0f}",
            f"{told['entries'] / told[f'{name}_cpu']:,.0f}",
        )
        for name in ("verify", "restore")
    ]
    return Result(
        name=NAME,
        values=values,
        columns=("command", "seconds", "CPU seconds", "entries per CPU s"),
        rows=[*rows, ("peak memory, MiB", f"{told['peak_mib']:,.0f}", "", "")],
        targets=[
            Target(
                "entries that are restored per second of processor", rate, TARGET_ENTRIES_PER_CPU_S
            )
        ],
    )
