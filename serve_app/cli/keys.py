"""`afa keys`: issue, list, rotate and revoke API keys."""

from typing import Annotated

import typer
from rich.table import Table

from serve_app.cli.environment import console, fail
from serve_app.cli.ledger import with_ledger

app = typer.Typer(help="API keys: create, list, rotate, revoke.", no_args_is_help=True)

Owner = Annotated[str, typer.Argument(help="Whom the key belongs to.")]
KeyId = Annotated[str, typer.Argument(help="Key id, as `afa keys list` shows it.")]


@app.command()
def create(
    owner: Owner,
    tier: Annotated[str, typer.Option(help="free, basic (starter), pro or scale.")] = "free",
    test: Annotated[bool, typer.Option("--test", help="A test key: free, isolated.")] = False,
) -> None:
    """Issue a key; it is shown once."""
    issued = with_ledger(lambda ledger: ledger.accounts.issue(owner, tier, test=test))
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command("list")
def list_command(owner: Owner) -> None:
    """List the keys of an owner."""
    table = Table("key id", "kind", "created", "expires", "state")
    for info in with_ledger(lambda ledger: ledger.accounts.list(owner)):
        table.add_row(
            info.key_id,
            "test" if info.is_test else "live",
            f"{info.created_at:%Y-%m-%d %H:%M}",
            f"{info.expires_at:%Y-%m-%d %H:%M}" if info.expires_at else "never",
            "revoked" if info.revoked else "valid",
        )
    console.print(table)


@app.command()
def rotate(key_id: KeyId) -> None:
    """Issue a successor; the old key keeps working for 24 hours."""
    issued = with_ledger(lambda ledger: ledger.accounts.rotate(key_id))
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command()
def revoke(key_id: KeyId) -> None:
    """End a key at once."""
    if not with_ledger(lambda ledger: ledger.accounts.revoke(key_id)):
        fail(f"no key has the id {key_id}")
    console.print("revoked")
