"""`afa keys`: issue, list, rotate and revoke API keys."""

from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Column, Table

from serve_app.cli.environment import console
from serve_app.cli.ledger_access import with_ledger
from serve_app.domain.keys import SCOPES

app = typer.Typer(help="API keys: create, list, rotate, revoke.", no_args_is_help=True)

Owner = Annotated[str, typer.Argument(help="Whom the key belongs to.")]
KeyId = Annotated[str, typer.Argument(help="Key id, as `afa keys list` shows it.")]


@app.command()
def create(
    owner: Owner,
    tier: Annotated[
        str | None,
        typer.Option(help="free, basic (starter), pro or scale: moves the owner there, all keys."),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="A test key: free, isolated.")] = False,
    scope: Annotated[
        list[str] | None, typer.Option(help="read, compute or assets; all when not given.")
    ] = None,
) -> None:
    """Issue a key; it is shown once. Without --tier an owner keeps its tier, a new one is free."""
    issued = with_ledger(
        lambda ledger: ledger.accounts.issue(owner, tier, test=test, scopes=scope or SCOPES)
    )
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command("list")
def list_command(owner: Owner) -> None:
    """List the keys of an owner."""
    table = Table(
        Column("key id", no_wrap=True), "kind", "scopes", "created", "expires", "state", box=SIMPLE
    )
    for info in with_ledger(lambda ledger: ledger.accounts.list(owner)):
        table.add_row(
            info.key_id,
            "test" if info.is_test else "live",
            " ".join(sorted(info.scopes)),
            f"{info.created_at:%Y-%m-%d %H:%M}",
            f"{info.expires_at:%Y-%m-%d %H:%M}" if info.expires_at else "never",
            "revoked" if info.revoked else "valid",
        )
    console.print(table, soft_wrap=False)


@app.command()
def rotate(
    key_id: KeyId,
    overlap_h: Annotated[
        float, typer.Option(min=0, max=168, help="Hours that the old key keeps working.")
    ] = 24,
) -> None:
    """Issue a successor; the old key keeps working for a while."""
    issued = with_ledger(lambda ledger: ledger.accounts.rotate(key_id, overlap_h * 3600))
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command()
def revoke(key_id: KeyId) -> None:
    """End a key at once."""
    with_ledger(lambda ledger: ledger.accounts.revoke(key_id))
    console.print("revoked")
