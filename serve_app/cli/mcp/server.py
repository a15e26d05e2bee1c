"""The tools of `afa mcp`, whoever answers them."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Protocol

from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from pydantic import Field

from serve_app.api.wire.features import ExtendedFeatures, Features
from serve_app.api.wire.library import CamelotKey, LibraryTrackBody
from serve_app.api.wire.similar import Filters, SimilarTrack
from serve_app.cli.mcp import answers
from serve_app.library.query import TrackQuery

INSTRUCTIONS = (
    "afa hears music: tempo, key, mood and likeness of files and of the tracks in its library. "
    "Find tracks with library_search; their ids go into look_up, similar and find_mixable."
)
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)

PITCH_RANGE = 0.06
"""Of tempo: what the pitch faders of decks have at their usual setting."""

AudioPath = Annotated[str, Field(description="Absolute path of an audio file on this machine.")]
TrackName = Annotated[
    str,
    Field(
        description="An id of the library (trk_…), an ISRC, MusicBrainz, Spotify, Apple Music, "
        "Deezer or YouTube id."
    ),
]
Count = Annotated[int, Field(ge=1, le=100, description="How many tracks at most.")]


class Backend(Protocol):
    """Who answers: the service that runs here, or this process."""

    async def analyse(self, path: Path) -> ExtendedFeatures:
        """Analyse a file."""
        ...

    async def look_up(self, track_id: str) -> Features:
        """Give the features of a track by its id."""
        ...

    async def look_up_name(self, artist: str, title: str) -> Features:
        """Give the features of a track by its names."""
        ...

    async def similar(self, track_id: str, filters: Filters) -> list[SimilarTrack]:
        """Find tracks that sound like one."""
        ...

    async def identify(self, path: Path) -> answers.Identified:
        """Tell who a recording is."""
        ...

    async def search(self, query: TrackQuery, limit: int) -> list[LibraryTrackBody]:
        """Find tracks of the library."""
        ...


def build(backend: Backend) -> MCPServer:
    """Make the server of six tools."""
    server = MCPServer("afa", version=version("afa"), instructions=INSTRUCTIONS)

    @server.tool(annotations=READS)
    async def analyse_file(path: AudioPath) -> answers.Analysed:
        """Hear an audio file: tempo, key, loudness, mood, tags, mix points. Takes some seconds."""
        return answers.analysed(await backend.analyse(file_at(path)))

    @server.tool(annotations=READS)
    async def look_up(
        track: Annotated[TrackName, Field()] = "",
        artist: Annotated[str, Field(description="With `title`, in the place of `track`.")] = "",
        title: Annotated[str, Field(description="With `artist`, in the place of `track`.")] = "",
    ) -> answers.LookedUp:
        """Tell tempo, key and mood of a track that is known, by its id or by artist and title."""
        if track:
            return answers.looked_up(await backend.look_up(track))
        if artist and title:
            return answers.looked_up(await backend.look_up_name(artist, title))
        raise ValueError("give track, or artist and title")

    @server.tool(annotations=READS)
    async def similar(track: TrackName, n: Count = 10) -> answers.Neighbours:
        """Find tracks of the library that sound like one of them."""
        found = await backend.similar(track, Filters(n=n))
        return answers.Neighbours(tracks=[answers.neighbour(one) for one in found])

    @server.tool(annotations=READS)
    async def find_mixable(track: TrackName, n: Count = 10) -> answers.Neighbours:
        """Find similar tracks that a DJ can mix with one: tempo within 6 %, a key that goes along.

        Half and double tempo count too. Where the track has no beat or no key, that is not asked.
        """
        seed = await backend.look_up(track)
        filters = Filters(n=n, compatible=seed.camelot is not None)
        if seed.tempo:
            low, high = seed.tempo * (1 - PITCH_RANGE), seed.tempo * (1 + PITCH_RANGE)
            filters = filters.model_copy(
                update={"tempo_min": low, "tempo_max": high, "tempo_octaves": True}
            )
        found = await backend.similar(track, filters)
        return answers.Neighbours(tracks=[answers.neighbour(one) for one in found])

    @server.tool(annotations=READS)
    async def identify(path: AudioPath) -> answers.Identified:
        """Tell which track a recording is, from three seconds of it or more."""
        return await backend.identify(file_at(path))

    @server.tool(annotations=READS)
    async def library_search(
        text: Annotated[
            str, Field(description="Words of artist, title, album or tags; all must match.")
        ] = "",
        tempo_min: Annotated[float | None, Field(ge=0, description="BPM.")] = None,
        tempo_max: Annotated[float | None, Field(ge=0, description="BPM.")] = None,
        keys: Annotated[list[CamelotKey] | None, Field(description="Camelot names; any.")] = None,
        tags: Annotated[list[str] | None, Field(description="All of them.")] = None,
        limit: Count = 20,
    ) -> answers.Tracks:
        """Find tracks of the library by words, tempo, key and tags; without any, the newest."""
        query = TrackQuery(tempo_min, tempo_max, keys=keys or (), tags=tags or (), text=text)
        found = await backend.search(query, limit)
        return answers.Tracks(tracks=[answers.track(one) for one in found])

    return server


def file_at(path: str) -> Path:
    """Give the file of a path.

    Raises:
        ValueError: There is none.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"no such file: {path}; give the absolute path of an audio file")
    return file
