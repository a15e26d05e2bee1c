"""Tracks for tests of the library, and what a second process does to a library."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from serve_app.domain.identity import TrackIdentity
from serve_app.library.dataset import SMALL_FRAGMENTS, Dataset
from serve_app.library.edit import Edit, Heard, added, where_there
from serve_app.library.library import Library
from serve_app.library.place import LibraryPlace
from serve_app.library.rows import SCHEMA
from serve_app.library.track import OPERATOR, LibraryTrack, new_track_id
from serve_app.services.simulation.features import simulated_features

MODEL_SET = "0123456789ab"


def track(title: str = "A Forest", *, owner: str = OPERATOR, **fields: object) -> LibraryTrack:
    """A track that is not stored yet; ``fields`` are those of its identity."""
    who = TrackIdentity(artist="The Cure", title=title, source="library")
    return LibraryTrack(new_track_id(), replace(who, **fields), owner)  # type: ignore[arg-type]


def adding(one: LibraryTrack, heard: Heard | None = None) -> Edit:
    """The edit that adds a track."""
    return Edit(one.track_id, added(one), heard)


def heard(seed: str, *, model: str | None = None) -> Heard:
    """A possible result of an analysis; the same seed gives the same result."""
    features = simulated_features(seed)
    if model is not None:
        features = replace(features, models=features.models | {"embedding": model})
    return Heard(features, MODEL_SET)


def refuse_writes(dataset: Path) -> None:
    """Let every write to a dataset fail from now on, as on a full disk."""
    shutil.rmtree(dataset / "_transactions")
    (dataset / "_transactions").touch()


def scatter(data_dir: Path) -> None:
    """Write tracks one by one, each a separate part until the keeper of the library joins them."""
    library = Library((data_dir / "library").as_uri(), data_dir / "library-view")
    for n in range(SMALL_FRAGMENTS):
        library.write([adding(track(f"{n}"))])
    library.close()


def is_scattered(data_dir: Path) -> bool:
    """Whether the tracks are still in as many parts."""
    place = LibraryPlace.parse((data_dir / "library").as_uri())
    return len(Dataset(place, "tracks", SCHEMA).latest().get_fragments()) >= SMALL_FRAGMENTS


def tagged(tag: str) -> Edit:
    """The change that adds a tag to the track of the process's second argument."""
    return Edit(sys.argv[2], where_there(lambda known: replace(known, tags=(*known.tags, tag))))


def main() -> None:
    """Add tracks or tags, one commit each, and print what is stored: ``URL ID|- N VIEW``."""
    url, track_id, n, view = sys.argv[1:]
    library = Library(url, Path(view))
    for number in range(int(n)):
        if track_id == "-":
            one = track(f"Song {number}")
            library.write([adding(one, heard(one.track_id))])
            print(one.track_id, flush=True)  # noqa: T201
        else:
            library.write([tagged(f"{os.getpid()} {number}")])
    library.close()


if __name__ == "__main__":
    main()
