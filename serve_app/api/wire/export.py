"""Which tracks to export, on the wire."""

from typing import Annotated, Literal

from pydantic import Field

from serve_app.api.wire.bodies import RequestModel
from serve_app.api.wire.forms import Form
from serve_app.services.export.export import Wanted
from serve_app.services.export.key_names import KeyFormat

MAX_TRACKS = 500


class ExportItem(RequestModel):
    """A track to export."""

    id: Annotated[
        str,
        Form(
            "^(trk|job)_[0-9a-z]{26}$",
            "should be the id of a track of the library, trk_…, or of an own analysis, job_…",
        ),
    ] = Field(
        description="Id of a track of the library, or of one of your analyses.",
        examples=["job_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    location: (
        Annotated[
            str,
            Field(max_length=4096),
            Form(
                r"^(/|[A-Za-z]:[/\\])[^\x00-\x1f]*$",
                "should be the whole path, from / or a drive such as C:\\ on, in one line",
            ),
        ]
        | None
    ) = Field(
        None,
        description="Path of its file on the machine where the export will be used. For tracks of "
        "the library it is known if the service runs on that machine.",
        examples=["/Users/ada/Music/demo.mp3"],
    )

    def wanted(self) -> Wanted:
        """Return the request in the form that the service takes."""
        return Wanted(self.id, self.location)


class ExportRequest(RequestModel):
    """What to write, and for which tracks."""

    format: Literal["csv", "rekordbox"] = Field(
        description="`csv` for spreadsheets; `rekordbox` for an XML collection with beat grids, "
        "which rekordbox imports.",
        examples=["csv"],
    )
    tracks: list[ExportItem] = Field(
        min_length=1,
        max_length=MAX_TRACKS,
        description="The tracks, in the order to write them.",
        examples=[[{"id": "job_01jb3q8k6ya7rj1v6fwb2q4m9d"}]],
    )
    key_format: KeyFormat = Field(
        KeyFormat.CLASSIC, description="How rekordbox shows keys: Am, 8A or 1m."
    )
