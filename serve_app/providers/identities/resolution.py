"""What is known about a track while providers are being asked.

Invariants: a known field is never overwritten; a match by name adds nothing whose ISRC, length or
version contradicts what is already known.
"""

from dataclasses import dataclass, field

from serve_app.domain.identity import TrackIdentity
from serve_app.library.spelling import MIN_SCORE, same_length, similarity


@dataclass(slots=True)
class Resolution:
    """The identity as far as it is known.

    Attributes:
        is_empty: Whether no source knew anything.
        failures: Provider name to why it could not answer.
    """

    identity: TrackIdentity = field(default_factory=TrackIdentity)
    is_empty: bool = True
    failures: dict[str, str] = field(default_factory=dict)

    def add_exact(self, found: TrackIdentity) -> None:
        """Add the answer to an identifier."""
        if self.is_empty and not self.identity.title:
            self.identity = found
        else:
            self.identity = self.identity.filled_from(found)
        self.is_empty = False

    def add_named(self, found: TrackIdentity) -> bool:
        """Add a match by name unless it contradicts what is known; return whether it was added."""
        if not same_length(self.identity.duration_s, found.duration_s):
            return False
        for platform_id in self.identity.ids():
            theirs = found.id_of(platform_id.platform)
            if theirs is not None and theirs != platform_id.value:
                return False
        if self.identity.title and not is_same_name(self.identity, found):
            return False
        self.add_exact(found)
        return True


def is_same_name(one: TrackIdentity, other: TrackIdentity) -> bool:
    """Whether two identities certainly have the same name."""
    return similarity(one.artist, one.title, other.artist, other.title) >= MIN_SCORE
