"""`afa keys`: issue, list, rotate and revoke API keys."""

from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Column, Table

from configs.settings import Settings
from serve_app.cli.environment import console, fail
from serve_app.cli.ledger_access import LedgerAccess, with_ledger
from serve_app.composition.files import LocalFiles
from serve_app.domain.keys import SCOPES, IssuedKey, KeyInfo
from serve_app.domain.tiers import LOCAL

app = typer.Typer(help="API keys: local, create, list, rotate, revoke.", no_args_is_help=True)

OF_THIS_MACHINE = (
    f"the tier {LOCAL} is for this machine's own key alone: `afa keys local` prints it"
)

Owner = Annotated[str, typer.Argument(help="Who the key belongs to.")]
KeyId = Annotated[str, typer.Argument(help="Key id, as `afa keys list` shows it.")]


@app.command()
def create(
    owner: Owner,
    tier: Annotated[
        str | None,
        typer.Option(help="free, basic (starter), pro or scale; all keys of the owner move to it."),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="A test key: free, isolated.")] = False,
    scope: Annotated[
        list[str] | None, typer.Option(help="read, compute or assets; all if not given.")
    ] = None,
) -> None:
    """Issue a key, shown only once. Without --tier, owners keep their tier; new ones get free."""
    if tier == LOCAL:
        fail(OF_THIS_MACHINE)

    async def run(ledger: LedgerAccess) -> IssuedKey:
        if tier is None and await ledger.accounts.tier_of(owner) == LOCAL:
            raise ValueError(OF_THIS_MACHINE)
        return await ledger.accounts.issue(owner, tier, test=test, scopes=scope or SCOPES)

    issued = with_ledger(run)
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command()
def local() -> None:
    """Print the unlimited key of this machine's service: `export KEY=$(afa keys local)`."""
    files = LocalFiles(Settings().data_dir.absolute())
    session = files.read_session()
    if session is None:
        fail("no service runs here; start it with `afa up`")
    typer.echo(session["local_key"])


@app.command("list")
def list_command(
    owner: Annotated[
        str | None, typer.Argument(help="Owner of the keys; all owners if not given.")
    ] = None,
) -> None:
    """List the keys of one owner, or all keys."""

    async def run(ledger: LedgerAccess) -> list[KeyInfo]:
        if owner is not None:
            await ledger.accounts.require(owner)
        owners = await ledger.accounts.owners() if owner is None else [owner]
        return [info for one in owners for info in await ledger.accounts.list(one)]

    columns = ("kind", "scopes", "created", "expires", "state")
    table = Table("owner", Column("key id", no_wrap=True), *columns, box=SIMPLE)
    for info in with_ledger(run):
        table.add_row(
            info.owner,
            info.key_id,
            "test" if info.is_test else "live",
            " ".join(sorted(info.scopes)),
            f"{info.created_at:%Y-%m-%d %H:%MZ}",
            f"{info.expires_at:%Y-%m-%d %H:%MZ}" if info.expires_at else "never",
            info.state,
        )
    console.print(table, soft_wrap=False)


@app.command()
def rotate(
    key_id: KeyId,
    overlap_h: Annotated[
        float, typer.Option(min=0, max=168, help="Hours that the old key keeps working.")
    ] = 24,
) -> None:
    """Replace a key with a new one; the old one keeps working for a while."""
    issued = with_ledger(lambda ledger: ledger.accounts.rotate(key_id, overlap_h * 3600))
    console.print(f"{issued.key}\nkey id {issued.key_id}", highlight=False)


@app.command()
def revoke(key_id: KeyId) -> None:
    """Revoke a key at once."""
    with_ledger(lambda ledger: ledger.accounts.revoke(key_id))
    console.print("revoked")
