"""What AudioMuse-AI's plugins for media servers ask and read; the ids are the media server's."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from serve_app.api.wire.bodies import WireModel
from serve_app.library.track import LibraryTrack
from serve_app.services.media_servers import items_of
from serve_app.services.similar.search import Similar

UNKNOWN_ALBUM = "unknown"
"""What AudioMuse-AI writes where there is none."""

MAX_ITEMS = 500

ItemId = Annotated[
    str,
    Field(min_length=1, max_length=500, description="The media server's id of a track."),
]
N = Annotated[int, Field(ge=1, description=f"How many tracks; at most {MAX_ITEMS} are given.")]


class Item(WireModel):
    """A track by its name at the media server."""

    item_id: str = Field(description="The media server's id.")
    title: str = Field(description="Title.")
    author: str = Field(description="Artist.")
    album: str = Field(description="Album or single it is on; `unknown` where nothing is known.")


class SimilarItem(Item):
    """A track that sounds alike."""

    distance: float = Field(ge=0, le=2, description="Cosine distance: 0 sounds the same.")


class ItemPath(WireModel):
    """A way from one track to another."""

    path: list[SimilarItem] = Field(description="The tracks, each compared with the one before.")
    total_distance: float = Field(ge=0, description="Sum of the distances.")


class Ingredient(WireModel):
    """A track that the answer shall sound like, or not."""

    id: ItemId
    op: Literal["ADD", "SUBTRACT"] = Field(description="Like it, or unlike it.")
    type: Literal["song"] = Field("song", description="Songs alone; artists are not kept here.")


class AlchemyRequest(WireModel):
    """Tracks to be like and unlike."""

    items: list[Ingredient] = Field(
        min_length=1, max_length=40, description="At most 20 of each `op`, and one `ADD` at least."
    )
    n: N = 25


class ItemResults(WireModel):
    """The tracks that were found."""

    results: list[SimilarItem] = Field(description="The tracks, nearest first.")


def item_body(track: LibraryTrack, server: str) -> Item | None:
    """Describe a track to a media server; None where that server has it not."""
    known = items_of(track, server)
    who = track.identity
    return (
        Item(
            item_id=known[0],
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
