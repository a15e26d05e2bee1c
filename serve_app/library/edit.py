"""One change to one track, as it is applied to whatever the track is by then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipelines.analysis.records import TrackFeatures
from serve_app.library.track import Analysis, LibraryTrack

Change = Callable[[LibraryTrack | None], LibraryTrack | None]
"""Gives the track as it shall be, from the track as it is (None: it is not there). None removes it,
or leaves it away. It may be called again, with a later state."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an analysis gave.

    Attributes:
        features: With segments, sections and embedding.
        made_by: Name of the checkpoint set, see `serve_app.checkpoints.choice.models_name`.
    """

    features: TrackFeatures
    made_by: str

    @property
    def model(self) -> str | None:
        """The model of the embedding; None where there is none, as of silence."""
        return self.features.models.get("embedding") if any(self.features.embedding) else None


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of norm 1 that a further model made of a track, beside that of its analysis."""

    model: str
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change to one track; ``heard`` becomes its analysis and vector, ``embedded`` one more."""

    track_id: str
    change: Change
    heard: Heard | None = None
    embedded: Embedded | None = None

    def apply(self, track: LibraryTrack | None) -> LibraryTrack | None:
        """Return the track after the change."""
        changed = self.change(track)
        if changed is not None and self.embedded is not None:
            changed = with_model(changed, self.embedded.model)
        if changed is None or self.heard is None:
            return changed
        features = self.heard.features.outline()
        if self.heard.model is not None:
            changed = with_model(changed, self.heard.model)
        return replace(changed, analysis=Analysis(features, self.heard.made_by, datetime.now(UTC)))


@dataclass(frozen=True, slots=True)
class Entry:
    """A change to a track that is yet to be looked up, and is new where there is none.

    Attributes:
        owner: Whose track.
        terms: What it goes by (`serve_app.library.rows`). What is entered under one of them at the
            same time is looked up after it.
        edit: Looks the track up and gives the change.
    """

    owner: str
    terms: Sequence[str]
    edit: Callable[[], Edit]

    @property
    def names(self) -> set[tuple[str, str]]:
        """The terms, of this owner's tracks."""
        return {(self.owner, term) for term in self.terms}


def with_model(track: LibraryTrack, model: str) -> LibraryTrack:
    """Note that there is a vector of a model."""
    return replace(track, embeddings=tuple(dict.fromkeys([*track.embeddings, model])))


def added(track: LibraryTrack) -> Change:
    """Add a track, or replace it whole."""
    return lambda _known: track


def removed(_known: LibraryTrack | None) -> None:
    """Remove a track."""


def kept(track: LibraryTrack) -> LibraryTrack:
    """Leave a track as it is, but for what was heard."""
    return track


def where_there(change: Callable[[LibraryTrack], LibraryTrack]) -> Change:
    """Change a track, unless it was removed meanwhile."""
    return lambda known: None if known is None else change(known)
