"""Break the Lua scripts in every small way, and see whether the directed cases notice.

``python -m tests.ledger.lua_mutants [file …]`` lists each mutant and what killed it.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serve_app.ledger.jobs.records import JobPolicy
from serve_app.local import embedded_redis
from serve_app.store.lua import lua_files, lua_source
from tests.ledger.export_cases import EXPORT_CASES
from tests.ledger.jobs.jobs_cases import CAPPED_CASES, JOBS_CASES
from tests.ledger.ledger_cases import LEDGER_CASES
from tests.ledger.plan_cases import PLAN_CASES
from tests.ledger.race_cases import RACE_CASES
from tests.ledger.restore_cases import RESTORE_CASES
from tests.ledger.topup_cases import TOPUP_CASES
from tests.store.setting import Setting, open_setting
from tests.store.spend_cases import SPEND_CASES
from tests.store.traffic_cases import TRAFFIC_CASES

CASE_LIMIT_S = 20.0
ELSEWHERE = frozenset({"asset_delete", "asset_put", "asset_usage", "lib/clock", "lib/quota"})
SWAPS = (
    (" >= ", " > "),
    (" > ", " >= "),
    (" <= ", " < "),
    (" < ", " <= "),
    (" == ", " ~= "),
    (" ~= ", " == "),
    (" + ", " - "),
    (" - ", " + "),
    (" and ", " or "),
    (" or ", " and "),
    ("math.min", "math.max"),
    ("math.max", "math.min"),
    ("math.floor", "math.ceil"),
    ("math.ceil", "math.floor"),
    ("if not ", "if "),
)
# Mutants that no test can distinguish from the original, and why.
EQUIVALENT = {
    "credit:24: <=": "no caller passes 0 credits",
    "lib/ledger:100: +": "puts the last key of a part again with the next one",
    "lib/jobs:30: >=": "a final cost equal to the hold is the hold",
    "key_end:12: >=": "writes the same time again",
    "lane_claim:21: -": "turns through the lanes the other way round",
    "webhook_after:4: <=": "no retry comes after 0 s",
    "lib/calendar:7: math.ceil": "counts 28 February as day -1 of the next March",
}
STATEMENT = re.compile(
    r"^\s*(redis\.call|A\.\w+(, A\.\w+)* =|\w+\(|\w+\[[^]]+\](, \w+\[[^]]+\])* =)"
)

Case = Callable[[Setting], Awaitable[None]]
CAPPED = frozenset(CAPPED_CASES)
ALL_CASES: tuple[Case, ...] = (
    *LEDGER_CASES,
    *PLAN_CASES,
    *JOBS_CASES,
    *CAPPED_CASES,
    *TOPUP_CASES,
    *TRAFFIC_CASES,
    *SPEND_CASES,
    *EXPORT_CASES,
    *RESTORE_CASES,
    *RACE_CASES,
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One file with one line changed."""

    file: str
    line: int
    before: str
    after: str
    change: str

    @property
    def name(self) -> str:
        """File, line and what was put in: the key in ``EQUIVALENT``."""
        return f"{self.file}:{self.line}: {self.change.strip()}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before.strip()}  =>  {self.after.strip()}"

    def source(self, name: str) -> str:
        """Return a file's text, with the change if it is the changed file."""
        text = lua_source(name)
        if name != self.file:
            return text
        lines = text.split("\n")
        lines[self.line - 1] = self.after
        return "\n".join(lines)


def files() -> list[str]:
    """Return every script and library but the clock, which tests replace."""
    return sorted(set(lua_files()) - ELSEWHERE)


def mutants(file: str) -> Iterator[Mutant]:
    """Change one place of one file at a time."""
    for number, line in enumerate(lua_source(file).split("\n"), 1):
        code = line.partition("--")[0]
        for old, new in SWAPS:
            for match in re.finditer(re.escape(old), code):
                after = code[: match.start()] + new + code[match.end() :]
                yield Mutant(file, number, line, after, new)
        is_whole = code.count("(") == code.count(")") and not code.rstrip().endswith(",")
        if STATEMENT.match(code) and is_whole:
            yield Mutant(file, number, line, "", "dropped")


async def run_case(case: Case, url: str, mutant: Mutant) -> None:
    policy = JobPolicy(owner_in_flight=2) if case in CAPPED else None
    async with open_setting(url, source=mutant.source, policy=policy) as setting:
        await case(setting)


async def killer_of(mutant: Mutant, url: str, cases: tuple[Case, ...]) -> str | None:
    """Return the name of the first case that fails or hangs on a mutant; None if it survives."""
    for case in cases:
        task = asyncio.create_task(run_case(case, url, mutant))
        await asyncio.wait([task], timeout=CASE_LIMIT_S)
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.1)
        if task.cancelled() or task.exception() is not None:
            return case.__name__
    return None


def relevant_cases(file: str) -> tuple[Case, ...]:
    """Put first the cases that are likely to use a file."""
    first: tuple[Case, ...] = ()
    if file.startswith(("job", "lane", "lib/job", "lib/lane")):
        first = (*JOBS_CASES, *CAPPED_CASES)
    elif "topup" in file:
        first = TOPUP_CASES
    elif file in {"tier_set", "period_repair"}:
        first = PLAN_CASES
    elif file == "recover":
        first = RESTORE_CASES
    elif file in {"forget", "snapshot"}:
        first = EXPORT_CASES
    elif file in {"journal_claim", "journal_trim"}:
        first = (*RACE_CASES, *EXPORT_CASES)
    elif file in {"turn", "spend"}:
        first = SPEND_CASES
    elif file in {
        "ask",
        "gcra",
        "slot",
        "unlock",
        "prolong",
        "idem_begin",
        "idem_finish",
        "idem_hold",
        "key_get",
        "key_end",
    } or file.startswith("webhook"):
        first = TRAFFIC_CASES
    return first + tuple(case for case in ALL_CASES if case not in first)


async def survivors(url: str, wanted: Iterable[Mutant]) -> list[Mutant]:
    """Run mutants, print their fates, and return those that survive without being equivalent."""
    alive = []
    for mutant in wanted:
        killer = await killer_of(mutant, url, relevant_cases(mutant.file))
        fate = killer or EQUIVALENT.get(mutant.name, "SURVIVED")
        if fate == "SURVIVED":
            alive.append(mutant)
        sys.stdout.write(f"{fate} | {mutant}\n")
        sys.stdout.flush()
    return alive


async def main(wanted: list[str]) -> int:
    """Run all mutants of the files; return the number of survivors."""
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        server = embedded_redis.start(Path(folder), extra=("--appendonly", "no"))
        try:
            every = (mutant for file in wanted or files() for mutant in mutants(file))
            return len(await survivors(server.url, every))
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(main(sys.argv[1:]))))
