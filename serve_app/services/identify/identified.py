"""The outcome for a clip, as it crosses processes and caches."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Identified:
    """The answer, in plain JSON types.

    Attributes:
        confidence: 0 to 100; 0 when unmatched.
        services_tried: Service to `match`, `no_match`, `error` or `skipped`.
        enrichment: Wire fields; None when unmatched.
        is_definite: Whether asking again soon would give the same, so that it may be cached.
        generation: State of the fingerprint index that was asked.
        known_as: SHA-256 of the clip that this answer was first given to; "" if it is new.
    """

    services_tried: dict[str, str]
    artist: str | None = None
    title: str | None = None
    album: str | None = None
    year: str | None = None
    isrc: str | None = None
    confidence: int = 0
    source_service: str | None = None
    enrichment: dict[str, Any] | None = None
    is_definite: bool = True
    generation: str = ""
    known_as: str = ""

    @property
    def matched(self) -> bool:
        """Whether the track was identified."""
        return self.source_service is not None

    @property
    def is_unavailable(self) -> bool:
        """Whether no service gave an answer."""
        return not {"match", "no_match"} & set(self.services_tried.values())

    def to_json(self) -> bytes:
        """Write for the cache."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> "Identified":
        """Read from the cache."""
        return cls(**json.loads(raw))
