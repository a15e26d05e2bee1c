"""`afa credits`: see, grant, top up and audit."""

import getpass
from typing import Annotated

import typer
from rich.table import Table

from serve_app.cli.environment import console
from serve_app.cli.ledger import LedgerAccess, with_ledger
from serve_app.domain.credits import AuditReport, Balance
from serve_app.domain.ulid import new_ulid

app = typer.Typer(help="Credits: show, grant, topup, adjust, audit.", no_args_is_help=True)

Account = Annotated[str, typer.Argument(help="The owner's name; `test~NAME` for test keys.")]
Amount = Annotated[int, typer.Argument(min=1, help="Credits.")]
Once = Annotated[
    str | None,
    typer.Option("--id", help="Names the change: repeating a command with it changes nothing."),
]


def show_balance(balance: Balance) -> None:
    """Print an account."""
    table = Table(title=balance.account, title_justify="left", show_header=False)
    rows = {
        "remaining": balance.remaining,
        "monthly grant": f"{balance.grant} of {balance.granted}",
        "period ends": f"{balance.period_ends:%Y-%m-%d %H:%M} UTC",
        "packs": balance.packs,
        "debt": balance.debt,
        "held": balance.held,
        "cache look-ups": balance.lookups_used,
        "open jobs": balance.open_jobs,
        "journal entries": balance.journal_length,
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    console.print(table)


@app.command()
def show(account: Account) -> None:
    """Show an account's balance by bucket."""
    show_balance(with_ledger(lambda access: access.ledger.balance(account)))


@app.command()
def grant(account: Account, credits: Amount, once: Once = None) -> None:
    """Add to this month's grant; it ends with the month."""
    entry = once or f"cli-{new_ulid()}"
    show_balance(with_ledger(lambda access: access.ledger.grant(account, entry, credits)))


@app.command()
def topup(account: Account, credits: Amount, once: Once = None) -> None:
    """Add a prepaid pack; it never expires."""
    entry = once or f"cli-{new_ulid()}"
    show_balance(with_ledger(lambda access: access.ledger.topup(account, entry, credits)))


@app.command()
def adjust(
    account: Account,
    credits: Annotated[int, typer.Argument(help="Credits, up or down; down needs `--` before it.")],
    reason: Annotated[str, typer.Option(help="Stands in the journal.")],
    once: Once = None,
) -> None:
    """Correct an account by hand; who and why stand in the journal."""
    entry = once or f"cli-{new_ulid()}"
    operator = getpass.getuser()
    show_balance(
        with_ledger(lambda access: access.ledger.adjust(account, entry, credits, operator, reason))
    )


@app.command()
def audit(
    account: Annotated[str | None, typer.Argument(help="One account; all when not given.")] = None,
) -> None:
    """Recompute balances from the journal and check every invariant."""

    async def run(access: LedgerAccess) -> AuditReport:
        return await access.journal.audit(account)

    report = with_ledger(run)
    console.print(
        f"{report.accounts} accounts, {report.entries} entries, {report.open_holds} open holds"
    )
    for mismatch in report.mismatches:
        console.print(f"{mismatch.account}: {mismatch.rule}: {mismatch.detail}", style="red")
    if not report.is_clean:
        raise typer.Exit(1)
    console.print("journal = balance, all invariants hold", style="green")
