"""The tools of `afa mcp`, for any backend."""

import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field

from afa.errors import AfaError as LibraryAfaError
from pipelines.audio.decode import DecoderUnavailableError
from pipelines.audio.waveform import AudioError
from serve_app.api.wire.features import ExtendedFeatures, Features
from serve_app.api.wire.library import CamelotKey, LibraryTrackBody
from serve_app.api.wire.similar import Filters, SimilarTrack
from serve_app.cli.mcp import answers
from serve_app.domain.errors import AfaError
from serve_app.domain.track_ids import InvalidTrackIdError
from serve_app.library.query import TrackQuery
from serve_app.providers.fingerprints.manifest import FingerprintIndexError
from serve_app.services.failure import reason_of

INSTRUCTIONS = (
    "afa analyses music: tempo, key, mood and similarity of files and of tracks in its library. "
    "Find tracks with library_search; pass their ids to look_up, similar and find_mixable."
)
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)

PITCH_RANGE = 0.06
"""Part of the tempo that decks' pitch faders cover at their usual setting."""

EXPECTED = (
    *(AfaError, LibraryAfaError, AudioError, DecoderUnavailableError),
    *(FingerprintIndexError, InvalidTrackIdError, answers.UnansweredError),
)
"""Errors whose texts say what to do."""

P = ParamSpec("P")
T = TypeVar("T")

AudioPath = Annotated[str, Field(description="Absolute path of an audio file on this machine.")]
TrackName = Annotated[
    str,
    Field(
        description="An id of the library (trk_…), an ISRC, MusicBrainz, Spotify, Apple Music, "
        "Deezer or YouTube id."
    ),
]
SeedName = Annotated[TrackName, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=100, description="How many tracks at most.")]


class Backend(Protocol):
    """What answers: the service that runs here, or this process."""

    async def analyse(self, path: Path) -> ExtendedFeatures:
        """Analyse a file."""
        ...

    async def look_up(self, track_id: str) -> Features:
        """Return the features of a track by its id."""
        ...

    async def look_up_name(self, artist: str, title: str) -> Features:
        """Return the features of a track by its names."""
        ...

    async def similar(self, track_id: str, filters: Filters) -> list[SimilarTrack]:
        """Find tracks that sound like one."""
        ...

    async def identify(self, path: Path) -> answers.Identified:
        """Return which track a recording is."""
        ...

    async def search(self, query: TrackQuery, limit: int) -> list[LibraryTrackBody]:
        """Find tracks of the library."""
        ...


class Tools:
    """The tools; an agent reads their names, their docstrings and what their arguments say."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def analyse_file(self, path: AudioPath) -> answers.Analysed:
        """Analyse a file: tempo, key, loudness, mood, tags, mix points. Takes some seconds."""
        return answers.analysed(await self._backend.analyse(file_at(path)))

    async def look_up(
        self,
        track: TrackName = "",
        artist: Annotated[str, Field(description="With `title`, instead of `track`.")] = "",
        title: Annotated[str, Field(description="With `artist`, instead of `track`.")] = "",
    ) -> answers.LookedUp:
        """Return tempo, key and mood of a known track, by its id or by artist and title."""
        if track:
            return answers.looked_up(await self._backend.look_up(track))
        if artist and title:
            return answers.looked_up(await self._backend.look_up_name(artist, title))
        raise answers.UnansweredError("give track, or artist and title")

    async def similar(self, track: SeedName, n: Count = 10) -> answers.Neighbours:
        """Find tracks of the library that sound like one of them."""
        found = await self._backend.similar(track, Filters(n=n))
        return answers.Neighbours(tracks=[answers.neighbour(one) for one in found])

    async def find_mixable(self, track: SeedName, n: Count = 10) -> answers.Neighbours:
        """Find similar tracks that a DJ can mix with one: tempo within 6 %, a key that fits.

        Half and double tempo count too. If the track has no beat or no key, that is not required.
        """
        seed = await self._backend.look_up(track)
        filters = Filters(n=n, compatible=seed.camelot is not None)
        if seed.tempo:
            low, high = seed.tempo * (1 - PITCH_RANGE), seed.tempo * (1 + PITCH_RANGE)
            filters = filters.model_copy(
                update={"tempo_min": low, "tempo_max": high, "tempo_octaves": True}
            )
        found = await self._backend.similar(track, filters)
        return answers.Neighbours(tracks=[answers.neighbour(one) for one in found])

    async def identify(self, path: AudioPath) -> answers.Identified:
        """Tell which track a recording is, from three seconds of it or more."""
        return await self._backend.identify(file_at(path))

    async def library_search(
        self,
        text: Annotated[
            str, Field(description="Words of artist, title, album or tags; all must match.")
        ] = "",
        tempo_min: Annotated[float | None, Field(ge=0, description="BPM.")] = None,
        tempo_max: Annotated[float | None, Field(ge=0, description="BPM.")] = None,
        keys: Annotated[
            list[CamelotKey] | None, Field(description="Camelot names; any of them.")
        ] = None,
        tags: Annotated[list[str] | None, Field(description="All of them.")] = None,
        limit: Count = 20,
    ) -> answers.Tracks:
        """Find tracks of the library by words, tempo, key and tags; without any, the newest."""
        query = TrackQuery(tempo_min, tempo_max, keys=keys or (), tags=tags or (), text=text)
        found = await self._backend.search(query, limit)
        return answers.Tracks(tracks=[answers.track(one) for one in found])


class StrictServer(MCPServer):
    """A server that refuses arguments that a tool does not have; the SDK's server ignores them."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        """See `MCPServer`.

        Raises:
            ToolError: Also if an argument is not one of the tool's.
        """
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
        taken = schemas.get(name, {}).get("properties", arguments)
        if unknown := [argument for argument in arguments if argument not in taken]:
            raise ToolError(f"{name} takes no {', '.join(unknown)}; it takes {', '.join(taken)}")
        return await super().call_tool(name, arguments, context)


def build(backend: Backend) -> MCPServer:
    """Make the server of all tools."""
    server = StrictServer(
        "afa", version=version("afa"), instructions=INSTRUCTIONS, log_level="WARNING"
    )
    tools = Tools(backend)
    offer = server.tool(annotations=READS)
    for tool in (tools.analyse_file, tools.look_up, tools.similar, tools.find_mixable):
        offer(saying(tool))
    offer(saying(tools.identify))
    offer(saying(tools.library_search))
    return server


def saying(answer: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Let a tool report only its expected errors to the agent."""

    @wraps(answer)
    async def answer_or_say(*said: P.args, **named: P.kwargs) -> T:
        try:
            return await answer(*said, **named)
        except EXPECTED as error:
            raise ToolError(str(error)) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise ToolError(where + reason_of(error)) from error

    return answer_or_say


def file_at(path: str) -> Path:
    """Return the file at a path.

    Raises:
        UnansweredError: There is no file.
        OSError: It cannot be accessed.
    """
    file = Path(path)
    with suppress(RuntimeError):  # the user has no home
        file = file.expanduser()
    is_file = False
    with suppress(FileNotFoundError, NotADirectoryError):
        is_file = stat.S_ISREG(file.stat().st_mode)
    if not is_file:
        raise answers.UnansweredError(
            f"{path}: no such file; give the absolute path of an audio file"
        )
    return file
