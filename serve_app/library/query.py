"""What a listing of the library asks for, as SQL over the view."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from serve_app.domain.errors import BadRequestError
from serve_app.library.spelling import normalise

OCTAVES = (1.0, 0.5, 2.0)
"""The tempo itself, and its half and double, in which the same music may be counted."""

SERVER = "server:"
"""Prefix of the term of all tracks that a media server has."""
Sort = Literal[
    "added", "-added", "name", "-name", "tempo", "-tempo", "key", "-key", "energy", "-energy"
]
"""What a listing is sorted by, ascending, or with ``-`` descending. Missing values come last."""

NEWEST: Sort = "-added"
SORT_VALUES = {
    "name": "name",
    "tempo": "tempo",
    "key": "2 * CAST(camelot AS INTEGER) + (camelot LIKE '%B')",
    "energy": "energy",
}
"""SQL for what tracks are sorted by, each with an index; "added" sorts by id."""


@dataclass(frozen=True, slots=True)
class Part:
    """SQL for the tracks of a listing with a value to sort by, or for those without.

    Attributes:
        value: The value.
        terms: Conditions; all hold.
        bound: Values for the question marks in them.
        order: What to order by.
    """

    value: str
    terms: Sequence[str]
    bound: Sequence[object]
    order: str


OF_ALL = "n IN (SELECT n FROM term WHERE term = ?)"
OF_EACH = "EXISTS (SELECT 1 FROM term WHERE term = ? AND term.n = track.n)"
"""Conditions that a track has a term: by all that have it, or by the one track."""

CURSOR = r"trk_[0-9a-z]{26}(\.(n[0-9a-f]{16}|t([0-9a-f]{2})*))?"
"""The form of a cursor: a track, then a number or a text in hexadecimal."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a listing, which stays valid when its track changes or is removed.

    Attributes:
        track_id: Id of the last track.
        value: That track's value of what the listing is sorted by.
    """

    track_id: str
    value: float | str | None

    @property
    def cursor(self) -> str:
        """The position as text."""
        if self.value is None:
            return self.track_id
        if isinstance(self.value, str):
            return f"{self.track_id}.t{self.value.encode().hex()}"
        return f"{self.track_id}.n{struct.pack('>d', self.value).hex()}"

    @classmethod
    def parse(cls, cursor: str) -> "Position":
        """Read a cursor of the form of `CURSOR`."""
        track_id, _, written = cursor.partition(".")
        known = bytes.fromhex(written[1:])
        if written.startswith("t"):
            return cls(track_id, known.decode(errors="replace"))
        return cls(track_id, struct.unpack(">d", known)[0] if written else None)


@dataclass(frozen=True, slots=True)
class TrackQuery:
    """Which tracks to find; an empty or None value sets no condition.

    Attributes:
        tempo_octaves: Whether a tempo also matches if its half or double is within the bounds.
        energy_min: 0 to 100, like ``energy_max``.
        keys: Camelot names; a track needs one of them.
        tags: Tags, in any case; a track needs all of them.
        text: Words; all must be in artist, title, album or tags; the last may be a prefix.
        artist: Words; all must be in the artist, complete.
        title: Likewise in the title.
        server: A media server that has the tracks.
    """

    tempo_min: float | None = None
    tempo_max: float | None = None
    year_min: int | None = None
    year_max: int | None = None
    keys: Sequence[str] = ()
    tags: Sequence[str] = ()
    text: str = ""
    artist: str = ""
    title: str = ""
    tempo_octaves: bool = False
    server: str = ""
    energy_min: int | None = None
    energy_max: int | None = None
    sort: Sort = NEWEST

    def __post_init__(self) -> None:
        """Refuse bounds that no value can meet.

        Raises:
            BadRequestError: A lower bound is above its upper bound.
        """
        for name in ("tempo", "year", "energy"):
            least, most = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            if least is not None and most is not None and least > most:
                raise BadRequestError(
                    f"{name}_min is above {name}_max, so that no track can match: swap them"
                )

    @property
    def has_conditions(self) -> bool:
        """Whether some tracks may not match."""
        return bool(self.where()[0])

    @property
    def names_terms(self) -> bool:
        """Whether tags, words or a media server are conditions: each has a list of its tracks."""
        return bool(self.tags or self.text or self.artist or self.title or self.server)

    def where(self, *, one_by_one: bool = False) -> tuple[list[str], list[object]]:
        """Return the conditions and their values.

        Args:
            one_by_one: Whether to check known tracks one by one, not find them by their tags.
        """
        terms: list[str] = []
        values: list[object] = []
        octaves = OCTAVES if self.tempo_octaves else (1.0,)
        ranges = [self._tempo_range(octave) for octave in octaves]
        if ranges[0][0]:
            terms.append(f"({' OR '.join(term for term, _ in ranges)})")
            values += [bound for _, bounds in ranges for bound in bounds]
        bounds = (
            ("year >= ?", self.year_min),
            ("year <= ?", self.year_max),
            ("energy >= ?", self.energy_min),
            ("energy <= ?", self.energy_max),
        )
        for term, bound in bounds:
            if bound is not None:
                terms.append(term)
                values.append(bound)
        if self.keys:
            terms.append(f"camelot IN ({', '.join('?' * len(self.keys))})")
            values += self.keys
        named = [tag_term(tag) for tag in self.tags]
        if self.server:
            named.append(f"{SERVER}{self.server}")
        for term in named:
            terms.append(OF_EACH if one_by_one else OF_ALL)
            values.append(term)
        words = [matching(self.text)] if self.text else []
        for column, name in (("artist", self.artist), ("title", self.title)):
            if name:
                words.append(in_column(column, normalise(name)))
        if words:
            terms.append("n IN (SELECT rowid FROM word WHERE word MATCH ?)")
            values.append(" AND ".join(f"({part})" for part in words))
        return terms, values

    def parts(self, after: Position | None) -> list[Part]:
        """Return the parts of a listing, in their order, from a position on."""
        beyond, way = ("<", "DESC") if self.sort.startswith("-") else (">", "ASC")
        value = SORT_VALUES.get(self.sort.removeprefix("-"))
        without = Part("NULL", [f"{value} IS NULL"] if value else [], [], f"id {way}")
        if after is not None and (value is None or after.value is None):
            terms = [*without.terms, f"id {beyond} ?"]
            return [replace(without, terms=terms, bound=[after.track_id])]
        if value is None:
            return [without]
        valued = Part(value, [f"{value} IS NOT NULL"], [], f"{value} {way}, id {way}")
        if after is not None:
            terms = [f"({value}, id) {beyond} (?, ?)"]
            valued = replace(valued, terms=terms, bound=[after.value, after.track_id])
        return [valued, without]

    def _tempo_range(self, octave: float) -> tuple[str, list[float]]:
        bounds = (("tempo >= ?", self.tempo_min), ("tempo <= ?", self.tempo_max))
        known = [(term, bound * octave) for term, bound in bounds if bound is not None]
        return " AND ".join(term for term, _ in known), [bound for _, bound in known]


def tag_term(tag: str) -> str:
    """Return the term of the tracks that have a tag."""
    return f"tag:{normalise(tag)}"


def matching(text: str) -> str:
    """Return the full-text query for all words of a text, the last as a prefix."""
    words = _WORD.findall(normalise(text))
    if not words:
        return '""'
    return " ".join([*(f'"{word}"' for word in words[:-1]), f'"{words[-1]}"*'])


def in_column(column: str, text: str, *, any_word: bool = False) -> str:
    """Return the full-text query for the words of a normalised text in one column."""
    words = [f'"{word}"' for word in _WORD.findall(text)]
    return f"{{{column}}}: ({(' OR ' if any_word else ' ').join(words)})" if words else '""'
