"""What AudioMuse-AI's plugins for media servers send and read; ids are the media server's."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from serve_app.api.wire.bodies import RequestModel, WireModel
from serve_app.api.wire.forms import PLAIN
from serve_app.library.spelling import normalise
from serve_app.library.track import LibraryTrack
from serve_app.services.media_servers import items_of
from serve_app.services.similar.search import Similar

UNKNOWN_ALBUM = "unknown"
"""What AudioMuse-AI writes if there is no album."""

MAX_ITEMS = 500
MAX_ARTISTS = 100

ItemId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=500,
        description="Id of a track at the media server.",
        examples=["2kLbZ9c0vXyQ4mTqA1nR7d"],
    ),
]
N = Annotated[
    int, Field(ge=1, description=f"How many tracks; at most {MAX_ITEMS} are returned."), PLAIN
]


class Item(WireModel):
    """A track as the media server names it."""

    item_id: str = Field(description="Id at the media server.")
    title: str = Field(description="Title.")
    author: str = Field(description="Artist.")
    album: str = Field(description="Album or single it is on; `unknown` if not known.")


class SimilarItem(Item):
    """A track that sounds similar."""

    distance: float = Field(ge=0, le=2, description="Cosine distance: 0 sounds the same.")


class ItemPath(WireModel):
    """A path from one track to another."""

    path: list[SimilarItem] = Field(description="The tracks, each compared with the one before.")
    total_distance: float = Field(ge=0, description="Sum of the distances.")


class Ingredient(RequestModel):
    """A track that the results should sound like, or unlike."""

    id: ItemId
    op: Literal["ADD", "SUBTRACT"] = Field(
        description="`ADD`: sound like it; `SUBTRACT`: sound unlike it."
    )
    type: Literal["song"] = Field("song", description="Only songs; artists are not kept here.")


class AlchemyRequest(RequestModel):
    """Tracks that the results should sound like and unlike."""

    items: list[Ingredient] = Field(
        min_length=1,
        max_length=40,
        description="At most 20 of each `op`, and at least one `ADD`.",
        examples=[[{"id": "2kLbZ9c0vXyQ4mTqA1nR7d", "op": "ADD"}]],
    )
    n: N = 25


class ItemResults(WireModel):
    """The tracks found."""

    results: list[SimilarItem] = Field(description="The tracks, nearest first.")


class ArtistSong(WireModel):
    """A song that represents its artist."""

    item_id: str = Field(description="Id at the media server.")
    title: str = Field(description="Title.")


class ComponentMatch(WireModel):
    """Why two artists are similar."""

    artist1_representative_songs: list[ArtistSong] = Field(
        description="Songs of the artist asked for; at most 20."
    )
    artist2_representative_songs: list[ArtistSong] = Field(
        description="Songs of the similar artist, nearest first."
    )


class SimilarArtist(WireModel):
    """An artist that sounds similar."""

    artist: str = Field(description="Name of the artist.")
    artist_id: str | None = Field(
        description="Id at the media server; null if it gives none, and before `afa link`."
    )
    divergence: float = Field(
        ge=0, le=2, description="Cosine distance of the nearest track: 0 sounds the same."
    )
    component_matches: list[ComponentMatch] = Field(
        description="The similar songs; empty unless `include_component_matches` is set."
    )


def item_body(track: LibraryTrack, server: str) -> Item | None:
    """Describe a track to a media server; None if that server does not have it."""
    known = items_of(track, server)
    who = track.identity
    return (
        Item(
            item_id=known[0].item_id,
            title=who.title,
            author=who.artist,
            album=who.album or UNKNOWN_ALBUM,
        )
        if known
        else None
    )


def similar_items(found: Iterable[Similar], server: str) -> list[SimilarItem]:
    """Describe those tracks that a media server has."""
    described = [(item_body(one.track, server), one.distance) for one in found]
    return [
        SimilarItem(**item.model_dump(), distance=min(2.0, round(distance, 6)))
        for item, distance in described
        if item is not None
    ]


def similar_artists(
    found: Iterable[Similar], own: Sequence[LibraryTrack], server: str, *, with_songs: bool
) -> list[SimilarArtist]:
    """Group those tracks that a media server has by artist, the nearest first.

    Args:
        found: Tracks that are similar to those of an artist, nearest first.
        own: The artist's own tracks, which represent the artist.
        server: The media server's name.
        with_songs: Whether to name the songs that are alike.
    """
    mine = {artist_key(track, server) for track in own}
    of_artist = defaultdict[str, list[Similar]](list)
    for one in found:
        if items_of(one.track, server) and one.track.identity.artist:
            of_artist[artist_key(one.track, server)].append(one)
    return [
        SimilarArtist(
            artist=tracks[0].track.identity.artist,
            artist_id=items_of(tracks[0].track, server)[0].artist_id,
            divergence=min(2.0, round(tracks[0].distance, 6)),
            component_matches=[
                ComponentMatch(
                    artist1_representative_songs=artist_songs(own, server),
                    artist2_representative_songs=artist_songs(
                        [one.track for one in tracks], server
                    ),
                )
            ]
            if with_songs
            else [],
        )
        for key, tracks in of_artist.items()
        if key not in mine
    ]


def artist_key(track: LibraryTrack, server: str) -> str:
    """Return what a media server identifies an artist by: its id, otherwise the name."""
    return items_of(track, server)[0].artist_id or normalise(track.identity.artist)


def artist_songs(tracks: Iterable[LibraryTrack], server: str) -> list[ArtistSong]:
    """Describe tracks as songs that represent an artist."""
    return [
        ArtistSong(item_id=items_of(track, server)[0].item_id, title=track.identity.title)
        for track in tracks
    ]
