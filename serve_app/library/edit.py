"""One change to one track, as applied to whatever the track is by then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipelines.analysis.records import TrackFeatures
from serve_app.library.track import Analysis, LibraryTrack

Change = Callable[[LibraryTrack | None], LibraryTrack | None]
"""Returns the new track from the current one (None: there is none). None as the result removes the
track, or does not create it. It may be called again, with a later state."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An analysis's result.

    Attributes:
        features: All features, with segments, sections and embedding.
        made_by: Name of the checkpoint set, see `serve_app.checkpoints.choice.models_name`.
    """

    features: TrackFeatures
    made_by: str

    @property
    def model(self) -> str | None:
        """The model of the embedding; None if there is none, as for silence."""
        return self.features.models.get("embedding") if any(self.features.embedding) else None


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of norm 1 that another model made of a track, besides that of its analysis."""

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
    """A change to a track that is still to be looked up, and is created if there is none.

    Attributes:
        owner: Owner of the track.
        terms: What identifies it (`serve_app.library.rows`). An entry under one of them at the same
            time is looked up after this one.
        edit: Looks up the track and returns the change.
    """

    owner: str
    terms: Sequence[str]
    edit: Callable[[], Edit]

    @property
    def names(self) -> set[tuple[str, str]]:
        """Return the terms, with their owner."""
        return {(self.owner, term) for term in self.terms}


def with_model(track: LibraryTrack, model: str) -> LibraryTrack:
    """Record that there is a vector of a model."""
    return replace(track, embeddings=tuple(dict.fromkeys([*track.embeddings, model])))


def added(track: LibraryTrack) -> Change:
    """Add a track, or replace it completely."""
    return lambda _known: track


def removed(_known: LibraryTrack | None) -> None:
    """Remove a track."""


def kept(track: LibraryTrack) -> LibraryTrack:
    """Leave a track unchanged except for its analysis."""
    return track


def where_there(change: Callable[[LibraryTrack], LibraryTrack]) -> Change:
    """Change a track, unless it has been removed in the meantime."""
    return lambda known: None if known is None else change(known)
