"""A process that exports again and again, until it is killed."""

import asyncio
import sys

from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.segments import Archive
from serve_app.store.client import connect


async def main(url: str, archive: str) -> None:
    """Export without a pause."""
    exporter = Exporter(connect(url, timeout_s=30, shards=2), Archive(archive))
    while True:
        await exporter.export()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
