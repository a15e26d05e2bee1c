"""The entries of an archive as one Parquet file, for use with other tools.

Invariant: each entry of a complete archive is exactly one row; a file that was not written to its
end does not exist.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serve_app.ledger.archive.fold import read_chain
from serve_app.ledger.archive.segments import Archive, cut_off, parse_call_id

ROWS_AT_ONCE = 50_000
SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("segment", pa.int64()),
        ("call", pa.string()),
        ("at", pa.timestamp("ms", tz="UTC")),
        ("account", pa.string()),
        ("number", pa.int64()),
        ("kind", pa.string()),
        ("id", pa.string()),
        ("grant", pa.int64()),
        ("packs", pa.int64()),
        ("debt", pa.int64()),
        ("note", pa.string()),
    ]
)


async def write_parquet(archive: Archive, path: Path) -> int:
    """Write every entry and return how many there were.

    Raises:
        ValueError: The archive is incomplete.
    """
    head, segments = await archive.head(), await archive.segments()
    problems = cut_off(head, segments)
    n_rows, rows = 0, []
    aside = path.with_name(f"{path.name}.part")
    with pq.ParquetWriter(aside, SCHEMA) as writer:
        for listed in segments.values():
            async for segment, call in read_chain(archive, listed, problems):
                at_ms = parse_call_id(call.call_id)[0]
                for e in call.entries:
                    place = (segment.shard, segment.number, call.call_id, at_ms)
                    credits = (e.grant, e.packs, e.debt)
                    rows.append((*place, e.account, e.number, e.kind, e.entry_id, *credits, e.note))
                if len(rows) >= ROWS_AT_ONCE:
                    writer.write_table(_table(rows))
                    n_rows, rows = n_rows + len(rows), []
        if rows:
            writer.write_table(_table(rows))
    if problems:
        aside.unlink()
        raise ValueError("; ".join(problems))
    aside.replace(path)
    return n_rows + len(rows)


def _table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
