"""`afa similar`: tracks of the library that sound like one of them, or like a file."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from configs.settings import Settings
from pipelines.audio.waveform import AudioError
from serve_app.api.wire.library import track_body
from serve_app.cli.analysis.loaded import LIMITS, load_analyzer
from serve_app.cli.environment import ConfigOption, console, fail, told
from serve_app.cli.library.opened import existing
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import AfaError
from serve_app.domain.track_ids import InvalidTrackIdError, TrackId, parse_track_id
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.services.export.tracks import track_at
from serve_app.services.jobs.heard import heard_track
from serve_app.services.scan.places import Trouble, absolute, listed
from serve_app.services.similar.neighbours import LibraryNeighbours
from serve_app.services.similar.search import Search, Similar
from serve_app.services.similar.wanted import Seed, Wanted

TO_KNOW = "bring your music in with `afa scan FOLDER` first"


def similar(
    what: Annotated[str, typer.Argument(help="Id of a track, or a file, in the library or not.")],
    n: Annotated[int, typer.Option("-n", min=1, max=100, help="How many tracks.")] = 10,
    mixes: Annotated[
        bool, typer.Option("--mixes", help="Only tracks whose key mixes with its key.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show which tracks of the library sound most like a track, and why.

    A file that is not in the library is analysed first, but not kept.
    """
    settings = Settings()
    library = existing(settings, LocalFiles(settings.data_dir.absolute()))
    if not library.count([OPERATOR]):
        fail(f"the library is empty; {TO_KNOW}")
    seed = seed_of(library, what, config)
    search = Search(LibraryNeighbours(library))
    with told(AfaError):
        _, found = search.similar(OPERATOR, Wanted(n, [Seed(what)], in_key=mixes), [seed], [])
    if as_json:
        typer.echo(json.dumps([record_of(one) for one in found]))
    elif found:
        console.print(table_of(found), soft_wrap=False)
    else:
        console.print(f"the library has nothing to compare with; {TO_KNOW}", highlight=False)


def seed_of(library: Library, what: str, config: Path | None) -> LibraryTrack:
    """Return the library's track with an id or file, otherwise the analysis of the file."""
    path = Path(what)
    if path.is_file():
        one = listed(path)
        if isinstance(one, Trouble):
            fail(f"{one.location}: {one.message}")
        known = track_at(library, str(absolute(path)))
        track = known.track if known else heard_in(path, config)
    else:
        track = named(library, what)
    if not track.embeddings:
        fail(f"{what} has no embedding: it is silent, or has not been analysed")
    return track


def heard_in(path: Path, config: Path | None) -> LibraryTrack:
    """Analyse a file."""
    with told(AudioError):
        features = load_analyzer(0, config).analyze(path, LIMITS)
    return heard_track(str(path), features, datetime.now(UTC))


def named(library: Library, what: str) -> LibraryTrack:
    """Return the library's track with an id."""
    hits = []
    with suppress(InvalidTrackIdError):
        track_id = parse_track_id(what)
        if isinstance(track_id, TrackId):
            hits = library.by_id(track_id, [OPERATOR])
    track = library.get(hits[0].track_id) if hits else None
    if track is None:
        fail(f"{what} is neither a file nor an id of the library; {TO_KNOW}")
    return track


def record_of(one: Similar) -> dict[str, Any]:
    """Return a track's record, as `GET /v1/similar/{id}` does."""
    return {
        "track": track_body(one.track).model_dump(mode="json"),
        "files": [file.location for file in one.track.files],
        "distance": round(one.distance, 6),
        "shared_tags": one.shared_tags,
        "key_relation": one.key_relation,
        "tempo_ratio": one.tempo_ratio and round(one.tempo_ratio, 4),
    }


def table_of(found: list[Similar]) -> Table:
    """Lay out the tracks and the reasons for them."""
    table = Table("track", "BPM", "key", "why", "distance")
    for one in found:
        body = track_body(one.track)
        name = " - ".join(filter(None, [body.artist, body.title])) or body.id
        tempo = f"{body.tempo:.1f}" if body.tempo else ""
        ratio = f"x{one.tempo_ratio:.2f}" if one.tempo_ratio else ""
        key = f"{one.key_relation} key" if one.key_relation in ("same", "distant") else None
        why = [key or one.key_relation, ratio, *one.shared_tags[:4]]
        table.add_row(
            name, tempo, body.camelot or "", ", ".join(filter(None, why)), f"{one.distance:.3f}"
        )
    return table
