"""What is known of a track while providers are being asked, and where each part came from.

Invariants: a known field is never overwritten; a match by name adds nothing whose ISRC, length or
version contradicts what is known; everything added has a recorded source.
"""

from dataclasses import dataclass, field

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import Match
from serve_app.domain.track_ids import TrackId
from serve_app.providers.catalog.spelling import MIN_SCORE, same_length, similarity


@dataclass(frozen=True, slots=True)
class Edge:
    """Who led from what to which identifiers.

    Attributes:
        asked: The identifier or the name that was asked for.
        found: The identifiers of the answer.
        score: 1 for an answer to an identifier, else how alike the names are.
    """

    provider: str
    asked: str
    found: tuple[TrackId, ...]
    score: float


@dataclass(slots=True)
class Resolution:
    """The identity as far as it is known.

    Attributes:
        failures: Provider name to why it could not answer.
    """

    identity: TrackIdentity = field(default_factory=TrackIdentity)
    edges: list[Edge] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nobody knew anything."""
        return not self.edges

    def add_exact(self, provider: str, asked: TrackId, found: TrackIdentity) -> None:
        """Add the answer to an identifier."""
        self._add(Edge(provider, str(asked), tuple(found.ids()), 1.0), found)

    def add_named(self, provider: str, asked: str, match: Match) -> bool:
        """Add a match by name unless it contradicts what is known; say whether it was added."""
        found = match.identity
        if not same_length(self.identity.duration_s, found.duration_s):
            return False
        for platform_id in self.identity.ids():
            theirs = found.id_of(platform_id.platform)
            if theirs is not None and theirs != platform_id.value:
                return False
        if self.identity.title and not is_same_name(self.identity, found):
            return False
        self._add(Edge(provider, asked, tuple(found.ids()), match.score), found)
        return True

    def _add(self, edge: Edge, found: TrackIdentity) -> None:
        if self.is_empty and not self.identity.title:
            self.identity = found
        else:
            self.identity = self.identity.filled_from(found)
        self.edges.append(edge)


def is_same_name(one: TrackIdentity, other: TrackIdentity) -> bool:
    """Whether two identities are surely named alike."""
    return similarity(one.artist, one.title, other.artist, other.title) >= MIN_SCORE
