"""MusicBrainz JSON dump → catalog Parquet.

The dump is ``recording.tar.xz`` (or any other tar compression), whose member ``mbdump/recording``
holds one recording per line in the web service's JSON form. A recording with several ISRCs or
several addresses on one platform becomes several rows of the same MBID, so that each is found.

References:
    https://musicbrainz.org/doc/Development/JSON_Data_Dumps. Core data is CC0.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.build import write_parquet
from serve_app.providers.dumps.files import DumpFormatError, DumpReport, open_members
from serve_app.providers.identities.musicbrainz import Recording, identities_of

MEMBER = "mbdump/recording"


def import_recordings(dump: Path, parquet: Path) -> DumpReport:
    """Convert a recording dump.

    Raises:
        DumpFormatError: Not a dump of recordings; nothing is written.
    """
    report = DumpReport()
    write_parquet(_identities(dump, report), parquet)
    return report


def _identities(dump: Path, report: DumpReport) -> Iterator[TrackIdentity]:
    for name, file in open_members(dump):
        if name == MEMBER:
            yield from _recordings(dump, file, report)
            return
    raise DumpFormatError(f"{dump}: has no {MEMBER}")


def _recordings(dump: Path, file: IO[bytes], report: DumpReport) -> Iterator[TrackIdentity]:
    for line in file:
        report.n_items += 1
        try:
            recording = Recording.model_validate_json(line)
        except ValueError:
            report.reject(dump, "not a recording in the web service's form")
            continue
        report.n_used += 1
        yield from identities_of(recording)
