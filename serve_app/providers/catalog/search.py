"""Look-ups in the catalog: by any identifier, and by artist and title however spelt.

Invariant: an opened catalog follows the folder. When a new version is published, the next look-up
(at most a second later) reads it; while nothing is published every look-up finds nothing.
"""

import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

import tantivy

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import Match
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.library.spelling import (
    MIN_SCORE,
    normalise,
    normalise_artist,
    normalise_title,
    ranked,
    similarity,
    text_key,
)
from serve_app.providers.catalog.index import (
    ARTIST,
    CURRENT,
    IDS,
    INDEX_FORMAT,
    META,
    SPELLING,
    TITLE,
    build_schema,
    identities_at,
)

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
MAX_SAME_ID = 16
MAX_CANDIDATES = 50
MAX_WORDS = 10
MIN_FUZZY_LENGTH = 4
"""Shorter words must be spelt exactly: one edit turns them into other words."""

MAX_FUZZY_LENGTH = 30
EXACT_BOOST = 4.0
FIELDS = (ARTIST, TITLE)
UNSAID = frozenset({"the"})
"""Words that the index leaves out at the beginning of artists' names."""


class Catalog:
    """A memory-mapped, read-only view of a catalog folder. Safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        self._link = folder / CURRENT
        self._schema = build_schema()
        self._version = ""
        self._searcher: tantivy.Searcher | None = None
        self._next_check = 0.0

    @classmethod
    def open(cls, folder: Path) -> "Catalog":
        """Open the catalog of a folder, which may still be empty."""
        catalog = cls(folder)
        catalog._follow()
        return catalog

    @property
    def n_tracks(self) -> int:
        """The number of published rows."""
        searcher = self._follow()
        return 0 if searcher is None else int(searcher.num_docs)

    def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """Return the track of an identifier, completed from other rows of the same recording."""
        searcher = self._follow()
        if searcher is None:
            return None
        rows = self._rows(searcher, track_id)
        if not rows:
            return None
        found = rows[0]
        if track_id.platform is not Platform.MBID and found.mbid is not None:
            rows += self._rows(searcher, TrackId(Platform.MBID, found.mbid))
        return _completed(found, rows[1:])

    def find_exact(self, artist: str, title: str, limit: int = 5) -> list[Match]:
        """Return tracks spelt alike but for case, accents, punctuation, "feat." and edition tags.

        It takes microseconds. `find` may take many milliseconds for a name that the catalog does
        not have in any spelling, and therefore must not run on the event loop.
        """
        searcher = self._follow()
        if searcher is None or not artist.strip() or not title.strip():
            return []
        query = tantivy.Query.term_query(self._schema, SPELLING, text_key(artist, title))
        matches = self._matches(searcher, query, artist, title, limit)
        return [Match(self._complete(searcher, one.identity), one.score) for one in matches]

    def find(self, artist: str, title: str, limit: int = 5) -> list[Match]:
        """Return tracks of that artist and title, best first.

        Equal spellings (but for case, accents, punctuation, "feat." and edition tags) end the
        search. Otherwise each word may have one wrong letter; failing that, tracks that share words
        are compared. No match scores below 0.8.
        """
        matches = self.find_exact(artist, title, limit)
        searcher = self._follow()
        if matches or searcher is None or not artist.strip() or not title.strip():
            return matches
        words = [(ARTIST, word) for word in normalise_artist(artist).split()[:MAX_WORDS]]
        words += [(TITLE, word) for word in normalise_title(title).split()[:MAX_WORDS]]
        matches = self._matches(searcher, self._misspelt(words), artist, title, limit)
        if not matches:
            matches = self._matches(searcher, self._sharing(words), artist, title, limit)
        return [Match(self._complete(searcher, match.identity), match.score) for match in matches]

    def find_text(
        self, text: str, artist: str = "", title: str = "", limit: int = 50
    ) -> list[TrackIdentity]:
        """Return tracks with all words of ``text`` in artist or title, and the others' in theirs.

        Best first; each word may have one wrong letter. It may read many rows, so it must not run
        on the event loop.
        """
        searcher = self._follow()
        words: list[tuple[tuple[str, ...], str]]
        words = [(FIELDS, word) for word in normalise(text).split()]
        words += [((ARTIST,), word) for word in normalise_artist(artist).split()]
        words += [((TITLE,), word) for word in normalise_title(title).split()]
        words = [(fields, word) for fields, word in words if word not in UNSAID][: 2 * MAX_WORDS]
        if searcher is None or not words:
            return []
        query = tantivy.Query.boolean_query(
            [(tantivy.Occur.Must, self._in_any(fields, word)) for fields, word in words]
        )
        n_hits = limit
        while True:
            hits = searcher.search(query, n_hits, count=False).hits
            # One by one, because together they would come in the order of their rows.
            found = [one for _, address in hits for one in identities_at(searcher, [address])]
            matches = [Match(self._complete(searcher, identity), 1.0) for identity in found]
            identities = [match.identity for match in _without_repeats(matches)]
            if len(identities) >= limit or len(hits) < n_hits:
                return identities[:limit]
            n_hits *= 2

    def _in_any(self, fields: Sequence[str], word: str) -> tantivy.Query:
        """Match a word in one of the fields; an exact spelling counts for more."""
        choices = []
        for field in fields:
            exact = tantivy.Query.term_query(self._schema, field, word)
            choices += [self._one_edit(field, word), tantivy.Query.boost_query(exact, EXACT_BOOST)]
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in choices])

    def _complete(self, searcher: tantivy.Searcher, found: TrackIdentity) -> TrackIdentity:
        if found.mbid is None:
            return found
        return _completed(found, self._rows(searcher, TrackId(Platform.MBID, found.mbid)))

    def _rows(self, searcher: tantivy.Searcher, track_id: TrackId) -> list[TrackIdentity]:
        query = tantivy.Query.term_query(self._schema, IDS, str(track_id))
        hits = searcher.search(query, MAX_SAME_ID, count=False).hits
        return identities_at(searcher, [address for _, address in hits])

    def _matches(
        self,
        searcher: tantivy.Searcher,
        query: tantivy.Query,
        artist: str,
        title: str,
        limit: int,
    ) -> list[Match]:
        hits = searcher.search(query, max(limit, MAX_CANDIDATES), count=False).hits
        found = identities_at(searcher, [address for _, address in hits])
        return _without_repeats(ranked(found, artist, title))[:limit]

    def _misspelt(self, words: list[tuple[str, str]]) -> tantivy.Query:
        return tantivy.Query.boolean_query(
            [(tantivy.Occur.Must, self._one_edit(field, word)) for field, word in words]
        )

    def _sharing(self, words: list[tuple[str, str]]) -> tantivy.Query:
        return tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Should, tantivy.Query.term_query(self._schema, field, word))
                for field, word in words
            ]
        )

    def _one_edit(self, field: str, word: str) -> tantivy.Query:
        if MIN_FUZZY_LENGTH <= len(word) <= MAX_FUZZY_LENGTH:
            return tantivy.Query.fuzzy_term_query(self._schema, field, word, distance=1)
        return tantivy.Query.term_query(self._schema, field, word)

    def _follow(self) -> tantivy.Searcher | None:
        """Return the published index, reopened if the link points elsewhere than last time."""
        now = time.monotonic()
        if now < self._next_check:
            return self._searcher
        self._next_check = now + CHECK_EVERY_S
        try:
            version = os.readlink(self._link)
        except OSError:
            return self._searcher
        if version != self._version:
            self._reopen(version)
        return self._searcher

    def _reopen(self, version: str) -> None:
        """Read the version, or keep the former one if it cannot be read."""
        folder = self._link.parent / version
        try:
            if json.loads((folder / META).read_text())["format"] != INDEX_FORMAT:
                logger.error("catalog %s has another format: import it again", version)
                return
            self._searcher = tantivy.Index.open(str(folder)).searcher()
        except (OSError, ValueError):
            # It was replaced while being opened; the next check finds the newer one.
            logger.warning("catalog %s could not be opened", version, exc_info=True)
            return
        self._version = version


def _without_repeats(matches: list[Match]) -> list[Match]:
    """Keep the first row of each recording: others only add identifiers to it."""
    seen: set[str] = set()
    kept = []
    for match in matches:
        mbid = match.identity.mbid
        if mbid is None or mbid not in seen:
            kept.append(match)
        if mbid is not None:
            seen.add(mbid)
    return kept


def _completed(identity: TrackIdentity, others: list[TrackIdentity]) -> TrackIdentity:
    """Fill what is unknown from rows of the same recording: no id or name may conflict."""
    for other in others:
        theirs = {track_id.platform: track_id.value for track_id in other.ids()}
        if any(theirs.get(mine.platform, mine.value) != mine.value for mine in identity.ids()):
            continue
        if other.mbid != identity.mbid and not _same_names(identity, other):
            continue
        identity = identity.filled_from(other)
    return identity


def _same_names(identity: TrackIdentity, other: TrackIdentity) -> bool:
    return similarity(identity.artist, identity.title, other.artist, other.title) >= MIN_SCORE
