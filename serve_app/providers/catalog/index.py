"""The catalog's full-text index: its fields, and its documents from and to identities.

One tantivy index serves every look-up: an identifier or an exact spelling is one term, a misspelt
name is a conjunction of edit-distance-one terms. It is memory-mapped, so replicas share its pages.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import tantivy

from serve_app.domain.identity import TrackIdentity, from_json, to_json
from serve_app.library.spelling import normalise_artist, normalise_title, text_key

CURRENT, VERSIONS, META = "current", "versions", "catalog.json"
INDEX_FORMAT = 2
"""Increased when the fields or the normalisation change, so that an old index is not misread."""

ROW_BYTES = 8
"""Each stored record begins with its row number: reading a column of numbers would cost more than
the whole look-up."""

IDS, SPELLING, ARTIST, TITLE, ROW, RECORD = "ids", "spelling", "artist", "title", "row", "record"


@cache
def build_schema() -> tantivy.Schema:
    """Return the index's schema."""
    builder = tantivy.SchemaBuilder()
    for name in (IDS, SPELLING):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    for name in (ARTIST, TITLE):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="basic")
    builder.add_integer_field(ROW, fast=True, indexed=False)
    builder.add_bytes_field(RECORD, stored=True, indexed=False)
    return builder.build()


def document_of(identity: TrackIdentity, row: int) -> tantivy.Document:
    """Return the index document of an identity; ``row`` is its position in the import."""
    document = tantivy.Document()
    for track_id in identity.ids():
        document.add_text(IDS, str(track_id))
    if identity.artist and identity.title:
        document.add_text(SPELLING, text_key(identity.artist, identity.title))
        document.add_text(ARTIST, normalise_artist(identity.artist))
        document.add_text(TITLE, normalise_title(identity.title))
    document.add_integer(ROW, row)
    document.add_bytes(RECORD, row.to_bytes(ROW_BYTES, "big") + to_json(identity))
    return document


def identities_at(
    searcher: tantivy.Searcher, addresses: Sequence[tantivy.DocAddress]
) -> list[TrackIdentity]:
    """Return the identities of some documents, in import order."""
    # The row number is big-endian and comes first, so records sort as rows do.
    records = sorted(bytes(searcher.doc(address)[RECORD][0]) for address in addresses)
    return [from_json(record[ROW_BYTES:]) for record in records]


def identities_in_order(version: Path, n_rows: int) -> Iterator[list[TrackIdentity]]:
    """Yield every identity of an index in import order, ``n_rows`` at a time."""
    searcher = tantivy.Index.open(str(version)).searcher()
    for start in range(0, searcher.num_docs, n_rows):
        yield identities_between(searcher, start, start + n_rows - 1)


def identities_between(searcher: tantivy.Searcher, first: int, last: int) -> list[TrackIdentity]:
    """Return the identities of the rows from ``first`` to ``last``, inclusive."""
    within = tantivy.Query.range_query(build_schema(), ROW, tantivy.FieldType.Integer, first, last)
    hits = searcher.search(within, last - first + 1, count=False).hits
    return identities_at(searcher, [address for _, address in hits])
