"""Assembles the commands."""

import typer

from serve_app.cli import (
    backup,
    bench,
    catalog,
    credits,
    doctor,
    identify,
    keys,
    ledger,
    models,
    service,
)
from serve_app.cli.analysis import analyze, embed
from serve_app.cli.library import backfill, export, link, scan, similar, tag
from serve_app.cli.mcp import command as mcp
from serve_app.cli.training import beats
from serve_app.domain.redaction import redact_logs

app = typer.Typer(
    name="afa",
    help="Audio intelligence: tempo, key, beats, mood, embeddings. `afa up` starts the service.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(service.up)
app.command()(service.down)
app.command()(service.status)
app.command()(doctor.doctor)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(analyze.analyze)
app.command("analyse", hidden=True)(analyze.analyze)
app.command()(embed.embed)
app.command()(scan.scan)
app.command()(backfill.backfill)
app.command()(link.link)
app.command()(export.export)
app.command()(tag.tag)
app.command()(similar.similar)
app.command()(identify.identify)
app.command()(mcp.mcp)
app.command(cls=bench.ListingCommand)(bench.bench)
catalog.app.command("fingerprint")(identify.fingerprint)
app.add_typer(keys.app, name="keys")
app.add_typer(credits.app, name="credits")
app.add_typer(ledger.app, name="ledger")
app.add_typer(catalog.app, name="catalog")
app.add_typer(models.app, name="models")
app.add_typer(beats.app, name="train")


def main() -> None:
    """Run the command line."""
    redact_logs()
    app()
