"""MusicBrainz JSON dump → catalog Parquet.

The dump is ``recording.tar.xz`` (or any other tar compression), whose member ``mbdump/recording``
holds one recording per line in the web service's JSON form. A recording with several ISRCs or
several addresses on one platform becomes several rows with one MBID, so that each is found.

References:
    https://musicbrainz.org/doc/Development/JSON_Data_Dumps. Core data is CC0.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.build import write_parquet
from serve_app.providers.dumps.files import DumpFormatError, DumpReport, open_members
from serve_app.providers.identities.musicbrainz import Recording, identities_of

MEMBER = "mbdump/recording"


def import_recordings(dump: Path, parquet: Path) -> DumpReport:
    """Convert a recording dump.

    Raises:
        DumpFormatError: It is not a dump of recordings; nothing is written.
    """
    report = DumpReport()
    lines = (line for line, _ in recordings(dump))
    write_parquet(identities_in(lines, dump, report), parquet)
    return report


def recordings(dump: Path) -> Iterator[tuple[bytes, float]]:
    """Yield the recordings of a dump unchanged, one line each.

    Yields:
        The line, and the share of the dump read so far.

    Raises:
        DumpFormatError: It is not a dump of recordings, or is cut off.
    """
    n_read = 0
    for name, n_bytes, file in open_members(dump):
        if name == MEMBER and n_bytes:
            for line in file:
                n_read += len(line)
                yield line, n_read / n_bytes
            return
    raise DumpFormatError(f"{dump}: has no {MEMBER}, or an empty one")


def identities_in(
    lines: Iterable[bytes], dump: Path, report: DumpReport
) -> Iterator[TrackIdentity]:
    """Yield the rows of recordings, and count them in the report.

    Raises:
        DumpFormatError: Raised at the end, if the report has no recording.
    """
    for line in lines:
        report.n_items += 1
        try:
            recording = Recording.model_validate_json(line)
        except ValueError:
            report.reject(dump, "not a recording in the web service's form")
            continue
        report.n_used += 1
        yield from identities_of(recording)
    if not report.n_used:
        raise DumpFormatError(f"{dump}: none of its {report.n_items} entries is a recording")
