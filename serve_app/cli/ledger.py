"""`afa ledger`: compare the ledger with the archive of its journal, and repair it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from serve_app.cli.environment import console, fail, replaceable, told
from serve_app.cli.ledger_access import with_account, with_ledger
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.archive.opening import begin_archive
from serve_app.ledger.archive.parquet import write_parquet
from serve_app.ledger.archive.reconcile import Reconciled
from serve_app.ledger.archive.restore import restore, verify
from serve_app.ledger.archive.segments import Archive, SegmentError

app = typer.Typer(
    help="The ledger and its archive: reconcile, restore, verify, export, begin-archive, "
    "repair-period.",
    no_args_is_help=True,
)


@app.command()
def reconcile(
    trial: Annotated[bool, typer.Option("--trial", help="Only show what is missing.")] = False,
) -> None:
    """After a failover, bring back what was exported and is missing from the new primary.

    Until then, the keeper exports nothing more from the shards that lack entries.
    """
    found = with_ledger(lambda access: access.reconciler.reconcile(is_trial=trial))
    if not found:
        console.print("the ledger has everything that was exported", style="green")
        return
    show_reconciled(found)


def show_reconciled(found: list[Reconciled]) -> None:
    """Print the outcome for each account; status 1 if something is left to the operator."""
    table = Table("account", "lost entries", "their sum", "change", "outcome", "why")
    for one in found:
        numbers = (str(one.n_entries), str(one.lost), str(one.change))
        table.add_row(one.account, *numbers, one.outcome, one.why)
    console.print(table, soft_wrap=False)
    if any(one.outcome == "refused" for one in found):
        console.print("correct these by hand: `afa credits adjust`", style="red")
        raise typer.Exit(1)


Place = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="Folder of the archive, or s3://bucket/prefix.")
]


def open_archive(place: str) -> Archive:
    """Open the archive that the operator names."""
    if "://" not in place and not Path(place).is_dir():
        raise typer.BadParameter(f"there is no folder {place}")
    return Archive(place if "://" in place else Path(place).resolve().as_uri())


@app.command("restore")
def restore_archive(place: Place) -> None:
    """Rebuild the whole ledger from an archive, in an empty Redis that nothing else may use.

    Balances, open holds, months, allowances and top-ups are restored. Jobs are not: the credits
    they held are given back. API keys and tiers are not in the archive.
    """
    archive = open_archive(place)
    done = with_ledger(
        lambda access: restore(access.reconciler.store, archive), claims_shards=False
    )
    console.print(
        f"restored {done.accounts} accounts from {done.entries} entries, "
        f"{done.open_holds} open holds",
        style="green",
    )


@app.command("begin-archive")
def begin(place: Place) -> None:
    """Begin an archive in an empty place, if the old one is lost for good.

    First set AFA_JOURNAL_STORE to that place and restart the service. The archive begins with what
    every account has now. If the command is interrupted, run it again.
    """
    archive = open_archive(place)
    done = with_ledger(lambda access: begin_archive(access.reconciler.store, archive))
    console.print(f"{done.shards} shards begin here; new ones follow by themselves", style="green")
    if done.calls_kept:
        console.print(
            f"{done.calls_kept} calls that had been in no archive are kept in SHARD/before_*.json"
        )
    console.print("take a backup now: `afa backup`")


@app.command("verify")
def verify_archive(place: Place) -> None:
    """Check an archive without a ledger: its chain, its numbers, its sums against its states."""
    archive = open_archive(place)
    with told(ServiceUnavailableError, SegmentError):
        seen = asyncio.run(verify(archive))
    console.print(
        f"{seen.shards} shards, {seen.segments} segments, {seen.accounts} accounts, "
        f"{seen.entries} entries"
    )
    for problem in seen.problems:
        console.print(problem, style="red")
    if seen.problems:
        raise typer.Exit(1)
    if not seen.has_head and seen.segments:
        console.print(
            "it has no head.json, which the next export writes: compare the numbers above with "
            "what they were, since nothing tells that a shard's end is missing, or all of it",
            style="yellow",
        )
    if not seen.segments:
        fail(f"nothing is archived at {place}")
    console.print("the chain is whole, and its sums are its states", style="green")


@app.command("export")
def export_archive(
    place: Place,
    parquet: Annotated[
        Path, typer.Option("--parquet", callback=replaceable, help="File to write.")
    ],
) -> None:
    """Write the entries of an archive as one Parquet file, with the same sums."""
    archive = open_archive(place)
    with told(ServiceUnavailableError, ValueError):
        n_rows = asyncio.run(write_parquet(archive, parquet))
    console.print(f"wrote {n_rows} entries to {parquet}", style="green")


@app.command("repair-period")
def repair_period(
    account: Annotated[str, typer.Argument(help="The owner's name; `test~NAME` for test keys.")],
) -> None:
    """Bring an account back from a month that has not begun.

    A server whose clock ran ahead moved it there; correct the clock first. What was granted for
    that month counts as this month's.
    """
    if with_account(account, lambda access: access.ledger.repair_period(account)):
        console.print(f"{account} is in this month again", style="green")
    else:
        console.print(f"{account} is in no month ahead; nothing was changed")
