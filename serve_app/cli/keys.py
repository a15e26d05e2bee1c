"""`afa keys`: issue, list, rotate and revoke API keys."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.table import Table

from configs.settings import Settings
from configs.tables import load_table
from serve_app.cli.environment import console, fail, told
from serve_app.domain.errors import AfaError
from serve_app.domain.tiers import Tiers
from serve_app.local_files import LocalFiles, NotRunningError
from serve_app.store.accounts import Accounts
from serve_app.store.client import connect

app = typer.Typer(help="API keys: create, list, rotate, revoke.", no_args_is_help=True)
T = TypeVar("T")

Owner = Annotated[str, typer.Argument(help="Whom the key belongs to.")]
KeyId = Annotated[str, typer.Argument(help="Key id, as `afa keys list` shows it.")]


def with_accounts(work: Callable[[Accounts], Awaitable[T]]) -> T:
    """Run ``work`` on the accounts of the installation that the environment names."""

    async def run() -> T:
        settings = Settings()
        files = LocalFiles(settings.data_dir)
        store = connect(files.ledger_url(settings))
        try:
            accounts = Accounts(store, files.key_pepper(settings), Tiers(load_table("tiers")))
            return await work(accounts)
        finally:
            await store.close()

    with told(NotRunningError, AfaError, ValueError, KeyError):
        return asyncio.run(run())


@app.command()
def create(
    owner: Owner,
    tier: Annotated[str, typer.Option(help="free, basic (starter), pro or scale.")] = "free",
    test: Annotated[bool, typer.Option("--test", help="A test key: free, isolated.")] = False,
) -> None:
    """Issue a key; it is shown once."""
    issued = with_accounts(lambda accounts: accounts.issue(owner, tier, test=test))
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command("list")
def list_command(owner: Owner) -> None:
    """List the keys of an owner."""
    table = Table("key id", "kind", "created", "expires", "state")
    for info in with_accounts(lambda accounts: accounts.list(owner)):
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
    issued = with_accounts(lambda accounts: accounts.rotate(key_id))
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command()
def revoke(key_id: KeyId) -> None:
    """End a key at once."""
    if not with_accounts(lambda accounts: accounts.revoke(key_id)):
        fail(f"no key has the id {key_id}")
    console.print("revoked")
