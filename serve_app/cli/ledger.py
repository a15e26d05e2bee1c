"""`afa ledger`: compare the ledger with the archive of its journal, and repair it."""

from typing import Annotated

import typer
from rich.table import Column, Table

from serve_app.cli.environment import console
from serve_app.cli.ledger_access import LedgerAccess, with_ledger
from serve_app.ledger.export import Replayed

app = typer.Typer(help="The ledger and its exported journal: reconcile.", no_args_is_help=True)


@app.command()
def reconcile(
    trial: Annotated[bool, typer.Option("--trial", help="Only tell what is missing.")] = False,
) -> None:
    """After a failover: do again what was exported and the new primary does not know.

    Until then the keeper exports nothing more of the shards that lack entries.
    """

    async def run(access: LedgerAccess) -> list[Replayed]:
        return await access.exporter.reconcile(access.ledger, is_trial=trial)

    found = with_ledger(run)
    table = Table(
        "account", "entry", Column("id", no_wrap=True), "grant", "packs", "debt", "outcome"
    )
    for entry, outcome in ((one.entry, one.outcome) for one in found):
        deltas = (str(entry.grant), str(entry.packs), str(entry.debt))
        table.add_row(entry.account, entry.kind, entry.entry_id, *deltas, outcome)
    if found:
        console.print(table, soft_wrap=False)
    else:
        console.print("the ledger has everything that was exported", style="green")
    if any(one.outcome == "impossible" for one in found):
        console.print("correct these by hand: `afa credits adjust`", style="red")
        raise typer.Exit(1)


@app.command("repair-period")
def repair_period(
    account: Annotated[str, typer.Argument(help="The owner's name; `test~NAME` for test keys.")],
) -> None:
    """Bring an account back from a month that has not begun.

    A server whose clock ran ahead took it there; set the clock first. What was granted for that
    month counts as this month's.
    """
    if with_ledger(lambda access: access.ledger.repair_period(account)):
        console.print(f"{account} is in this month again", style="green")
    else:
        console.print(f"{account} is in no month ahead; nothing was changed")
