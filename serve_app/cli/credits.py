"""`afa credits`: show, grant, top up and audit credits."""

import os
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from serve_app.cli.environment import console, named_user
from serve_app.cli.ledger_access import LedgerAccess, with_account, with_ledger
from serve_app.domain.credits import MOST_CREDITS, AuditReport, Balance
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.keys import TEST_NAMESPACE
from serve_app.domain.payments import TopupSettings, TopupStatus
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.ledger import Ledger

app = typer.Typer(
    help="Credits: show, grant, topup, autotopup, adjust, audit.", no_args_is_help=True
)

autotopup = typer.Typer(help="Automatic top-up: set, show, off.", no_args_is_help=True)
app.add_typer(autotopup, name="autotopup")

Account = Annotated[str, typer.Argument(help="The owner's name; `test~NAME` for test keys.")]
Amount = Annotated[int, typer.Argument(min=1, max=MOST_CREDITS, help="Number of credits.")]
Once = Annotated[
    str | None,
    typer.Option("--id", help="Id of the change: repeating a command with it changes nothing."),
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
    console.print(table, soft_wrap=False)


def show_topup(status: TopupStatus | None) -> None:
    """Print automatic top-up: settings, this month's charges, why it is off."""
    if status is None:
        console.print("automatic top-up: never set up")
        return
    terms = status.settings
    table = Table(title="automatic top-up", title_justify="left", show_header=False)
    rows = {
        "state": "on" if status.is_enabled else f"off: {status.off_reason}",
        "below": f"{terms.threshold} credits",
        "buys": f"{terms.pack_credits} credits for {terms.price_minor} (minor units)",
        "charged this month": f"{status.spent_minor} of at most {terms.cap_minor}",
        "open charge": status.open_intent or "none",
        "declined in a row": status.failures,
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    console.print(table, soft_wrap=False)


@app.command()
def show(
    account: Annotated[
        str | None,
        typer.Argument(help="The owner's name; `test~NAME` for test keys; all if not given."),
    ] = None,
) -> None:
    """Show an account's balance by bucket and its automatic top-up, or a line for each account."""
    if account is None:
        show_all()
        return

    async def run(access: LedgerAccess) -> tuple[Balance, TopupStatus | None]:
        tier = await access.accounts.tier_of(account.removeprefix(TEST_NAMESPACE))
        balance = await access.ledger.balance(account, tier)
        return balance, await access.topups.status(account)

    balance, topup_status = with_account(account, run)
    show_balance(balance)
    show_topup(topup_status)


def show_all() -> None:
    """Print a line for the account of every owner's live keys."""

    async def run(access: LedgerAccess) -> list[tuple[str, Balance]]:
        tiers = {
            owner: await access.accounts.tier_of(owner) for owner in await access.accounts.owners()
        }
        return [
            (tier or "", await access.ledger.balance(owner, tier)) for owner, tier in tiers.items()
        ]

    table = Table("owner", "tier", "remaining", "grant", "packs", "debt", "held", box=SIMPLE)
    for tier, balance in with_ledger(run):
        values = (balance.remaining, balance.grant, balance.packs, balance.debt, balance.held)
        table.add_row(balance.account, tier, *map(str, values))
    console.print(table, soft_wrap=False)


def book(
    account: str, once: str | None, change: Callable[[Ledger, str], Awaitable[Balance]]
) -> None:
    """Make a change under an id, new unless one is given, and print the account."""
    entry = once or f"cli-{new_ulid()}"

    async def run(access: LedgerAccess) -> Balance:
        try:
            return await change(access.ledger, entry)
        except ServiceUnavailableError as error:
            raise ServiceUnavailableError(
                f"{error.message}; it may be booked all the same: repeat it with --id {entry}"
            ) from error.__cause__

    show_balance(with_account(account, run))


@app.command()
def grant(account: Account, credits: Amount, once: Once = None) -> None:
    """Add credits to this month's grant, which ends with the month."""
    book(account, once, lambda ledger, entry: ledger.grant(account, entry, credits))


@app.command()
def topup(account: Account, credits: Amount, once: Once = None) -> None:
    """Add a prepaid pack, which never expires."""
    book(account, once, lambda ledger, entry: ledger.topup(account, entry, credits))


@app.command()
def adjust(
    account: Account,
    credits: Annotated[
        int,
        typer.Argument(max=MOST_CREDITS, help="Credits to add; put `--` before a negative number."),
    ],
    reason: Annotated[str, typer.Option(help="Reason, for the journal.")],
    once: Once = None,
) -> None:
    """Correct an account by hand; the journal keeps who did it and why."""
    operator = named_user(os.getuid())
    book(
        *(account, once),
        lambda ledger, entry: ledger.adjust(account, entry, credits, operator, reason),
    )


@autotopup.command("set")
def set_topup(
    account: Account,
    threshold: Annotated[
        int, typer.Option(min=0, max=MOST_CREDITS, help="Buy a pack when fewer credits are left.")
    ],
    pack: Annotated[int, typer.Option(min=1, max=MOST_CREDITS, help="Credits in the pack.")],
    price: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_CREDITS, help="Price of the pack in the currency's minor unit."
        ),
    ],
    cap: Annotated[
        int,
        typer.Option(min=1, max=MOST_CREDITS, help="Most to charge in a month, in the same unit."),
    ],
) -> None:
    """Switch on automatic top-up, or change its settings."""
    settings = TopupSettings(threshold, pack, price, cap)

    async def run(access: LedgerAccess) -> TopupStatus | None:
        await access.topups.enable(account, settings)
        return await access.topups.status(account)

    show_topup(with_account(account, run))


@autotopup.command("show")
def print_topup(account: Account) -> None:
    """Show the settings of automatic top-up and this month's charges."""
    show_topup(with_account(account, lambda access: access.topups.status(account)))


@autotopup.command("off")
def switch_topup_off(account: Account) -> None:
    """Switch off automatic top-up; an open charge is still completed."""

    async def run(access: LedgerAccess) -> TopupStatus | None:
        if await access.topups.status(account) is not None:
            await access.topups.disable(account, "switched off by an operator")
        return await access.topups.status(account)

    show_topup(with_account(account, run))


@app.command()
def audit(
    account: Annotated[str | None, typer.Argument(help="One account; all if not given.")] = None,
) -> None:
    """Recompute balances from the journal and check every invariant."""

    async def run(access: LedgerAccess) -> AuditReport:
        return await access.journal.audit(account)

    report = with_ledger(run) if account is None else with_account(account, run)
    console.print(
        f"{report.accounts} accounts, {report.entries} entries, {report.open_holds} open holds"
    )
    for mismatch in report.mismatches:
        console.print(f"{mismatch.account}: {mismatch.rule}: {mismatch.detail}", style="red")
    if not report.is_clean:
        raise typer.Exit(1)
    console.print("journal = balance, all invariants hold", style="green")
