"""An account's tracks as a file for DJ programs and tables: of its library and of its jobs.

Invariant: only callers on the operator's own machine learn where the operator's files are stored.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import BytesIO, StringIO
from pathlib import PureWindowsPath
from typing import Literal

from serve_app.domain.errors import BadRequestError, TrackNotFoundError
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import LOCAL
from serve_app.library.track import LibraryTrack, Place, TrackFile
from serve_app.services.export import rekordbox, tables
from serve_app.services.export.key_names import KeyFormat
from serve_app.services.export.tracks import ExportTrack, files_of
from serve_app.services.jobs.heard import heard_track
from serve_app.services.jobs.submit import AnalysisService
from serve_app.services.library import LibraryService

Format = Literal["csv", "rekordbox"]
"""Formats over HTTP; `afa export` has more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A track to export.

    Attributes:
        track: A track's id in the library, or the id of a job of the caller.
        location: Path of its file on the machine where the export will be used.
    """

    track: str
    location: str | None = None


class ExportService:
    """Writes files for one caller at a time."""

    def __init__(self, library: LibraryService) -> None:
        self._library = library

    async def export(
        self,
        caller: Caller,
        analysis: AnalysisService,
        wanted: Sequence[Wanted],
        form: Format,
        keys: KeyFormat,
    ) -> bytes:
        """Write tracks, in their order.

        Raises:
            TrackNotFoundError: The caller may not see a track, or it has no analysis.
            JobNotFoundError: Likewise for a job.
            BadRequestError: rekordbox finds tracks by their files, and one's path is unknown.
        """
        # One after another, so that one caller does not take a whole pool of connections.
        known = {one: await self._track(caller, analysis, one) for one in dict.fromkeys(wanted)}
        tracks = list(map(known.__getitem__, wanted))
        if form == "csv":
            return await asyncio.to_thread(_csv, tracks)
        for one in tracks:
            if not one.file.location:
                raise BadRequestError(
                    f"tracks: say in `location` where the file of {one.track.track_id} lies; "
                    "rekordbox finds tracks by their files"
                )
        return await asyncio.to_thread(_rekordbox, tracks, keys)

    async def _track(self, caller: Caller, analysis: AnalysisService, one: Wanted) -> ExportTrack:
        if one.track.startswith("job_"):
            track = await _analysed(caller, analysis, one)
        else:
            track = self._library.get(caller, one.track)
        if track.analysis is None:
            raise TrackNotFoundError(f"{one.track} has no analysis yet")
        known = files_of(track) if caller.tier == LOCAL else []
        if one.location is None and known:
            return known[0]
        file = TrackFile(Place.PATH, one.location or "")
        return ExportTrack(track, file, track.analysis.features)


async def _analysed(caller: Caller, analysis: AnalysisService, one: Wanted) -> LibraryTrack:
    job = await analysis.get_job(caller, one.track)
    features = analysis.features_of(job)
    if features is None:
        raise TrackNotFoundError(f"{one.track} is {job.state.value}; wait for its end")
    track = heard_track(job.job_id, features, job.finished_at or job.created_at)
    title = features.title or PureWindowsPath(one.location or "").stem
    return replace(track, identity=replace(track.identity, title=title), added_at=job.created_at)


def _csv(tracks: Sequence[ExportTrack]) -> bytes:
    table = StringIO(newline="")
    tables.write_csv(tracks, table)
    return table.getvalue().encode()


def _rekordbox(tracks: Sequence[ExportTrack], keys: KeyFormat) -> bytes:
    file = BytesIO()
    tree = rekordbox.collection(tracks, version("afa"), keys)
    tree.write(file, encoding="UTF-8", xml_declaration=True)
    return file.getvalue()
