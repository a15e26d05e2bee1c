"""What a scan reports while it runs and when it ends."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from serve_app.services.scan.places import Trouble


class Outcome(StrEnum):
    """The outcome for a file."""

    UNCHANGED = "unchanged"
    ADDED = "added"
    ANALYSED = "analysed again"
    JOINED = "joined to a known recording"
    FOLLOWED = "moved, and followed"
    RETAGGED = "with other tags"
    RETURNED = "found again"
    MISSING = "missing"
    FORGOTTEN = "forgotten"
    FAILED = "failed"


@dataclass(slots=True)
class ScanReport:
    """Counts by outcome, and a line for each fault."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether anything went wrong."""
        return bool(self.troubles)

    def note(self, outcome: Outcome) -> None:
        """Count a file."""
        self.counts[outcome] += 1

    def fail(self, trouble: Trouble) -> None:
        """Count a file, or a folder, that cannot be entered."""
        self.counts[Outcome.FAILED] += 1
        self.troubles.append(trouble)

    def summary(self) -> str:
        """Return a one-line summary."""
        told = [f"{self.counts[one]} {one.value}" for one in Outcome if self.counts[one]]
        return ", ".join(told) or "nothing to do"
