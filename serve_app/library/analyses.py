"""The tracks' analyses: the record with segments and sections, without the embedding."""

import zlib
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from pipelines.analysis.features import RecordFormatError, from_json, to_json
from pipelines.analysis.records import TrackFeatures
from serve_app.library.dataset import KEY, Dataset
from serve_app.library.place import LibraryPlace

SCHEMA = pa.schema([pa.field(KEY, pa.string(), nullable=False), ("record", pa.binary())])


class Analyses:
    """The records of all tracks."""

    def __init__(self, place: LibraryPlace) -> None:
        self.rows = Dataset(place, "analyses", SCHEMA)

    def put(self, heard: Mapping[str, TrackFeatures]) -> None:
        """Store records by track id."""
        records = [
            zlib.compress(to_json(replace(features, embedding=[]))) for features in heard.values()
        ]
        self.rows.upsert(pa.table([list(heard), records], schema=self.rows.schema))

    def get(self, track_id: str) -> TrackFeatures | None:
        """Read a record; None if there is none of this version."""
        found = self.rows.of_tracks([track_id], ["record"])
        for record in found["record"].to_pylist():
            try:
                return from_json(zlib.decompress(record))
            except RecordFormatError:
                return None
        return None
