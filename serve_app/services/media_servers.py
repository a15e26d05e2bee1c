"""Finds which track of the library each song of a media server is.

Invariant: a song is linked only if exactly one track fits. The ids of a server's songs are stored
with that server's name, so that several servers may use the same ids.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from serve_app.library.edit import Edit, where_there
from serve_app.library.library import Library
from serve_app.library.measures import measures_of
from serve_app.library.spelling import text_key
from serve_app.library.track import OPERATOR, LibraryTrack, ServerItem
from serve_app.providers.subsonic import Song

MAX_DIFFERENCE_S = 2.0
"""Difference of durations: servers report whole seconds, and some count an encoder's padding."""

SAME_FOLDERS = 2
"""Parts at the end of two paths that must agree: the file and its folder. The folders above are
mounted elsewhere on another machine, and some servers make paths up."""

WRITTEN_TOGETHER = 500

Way = Literal["path", "mbid", "name", "ambiguous", "unknown"]


class Matcher:
    """Finds the track of a song."""

    def __init__(self, tracks: Iterable[LibraryTrack]) -> None:
        self._by_file = defaultdict[str, list[tuple[tuple[str, ...], LibraryTrack]]](list)
        self._by_mbid = defaultdict[str, list[LibraryTrack]](list)
        self._by_name = defaultdict[str, list[LibraryTrack]](list)
        for track in tracks:
            who = track.identity
            for file in track.files:
                parts = parts_of(file.location)
                self._by_file[parts[-1]].append((parts, track))
            if who.mbid:
                self._by_mbid[who.mbid].append(track)
            if who.artist and who.title:
                self._by_name[text_key(who.artist, who.title)].append(track)

    def find(self, song: Song) -> tuple[LibraryTrack | None, Way]:
        """Return the track that a song is and how it was found; else None and why not."""
        ways: dict[Way, Callable[[], Sequence[LibraryTrack]]] = {
            "path": lambda: self._at(song.path or ""),
            "mbid": lambda: self._by_mbid.get(song.mbid or "", ()),
            "name": lambda: self._by_name.get(text_key(song.artist or "", song.title or ""), ()),
        }
        is_ambiguous = False
        for way, candidates in ways.items():
            fitting = {one.track_id: one for one in candidates() if has_length(one, song)}
            if len(fitting) == 1:
                return next(iter(fitting.values())), way
            is_ambiguous |= len(fitting) > 1
        return None, "ambiguous" if is_ambiguous else "unknown"

    def _at(self, path: str) -> Sequence[LibraryTrack]:
        """Return the tracks whose files agree best with a path."""
        parts = parts_of(path) if path else ("",)
        found = [(agreeing(parts, other), track) for other, track in self._by_file[parts[-1]]]
        best = max((n for n, _ in found), default=0)
        needed = min(SAME_FOLDERS, len(parts))
        return [track for n, track in found if n == best >= needed]


def link(library: Library, server: str, songs: Iterable[Song]) -> Counter[Way]:
    """Store what a media server calls the operator's tracks, in place of what it did before.

    Returns:
        How many songs were found in each way, or why not.
    """
    tracks = [without_analysis(track) for track in library.all([OPERATOR])]
    matcher = Matcher(tracks)
    items = defaultdict[str, list[ServerItem]](list)
    ways: Counter[Way] = Counter()
    for song in songs:
        track, way = matcher.find(song)
        ways[way] += 1
        if track is not None:
            item = ServerItem(server, song.item_id, song.artist_id)
            items[track.track_id].append(item)
    edits = [
        Edit(track.track_id, where_there(renamed(server, items[track.track_id])))
        for track in tracks
        if items_of(track, server) != items[track.track_id]
    ]
    for start in range(0, len(edits), WRITTEN_TOGETHER):
        library.write(edits[start : start + WRITTEN_TOGETHER])
    return ways


def without_analysis(track: LibraryTrack) -> LibraryTrack:
    """Return a track that fits into memory beside all others: of its analysis, only the length."""
    who = replace(track.identity, duration_s=measures_of(track).duration_s)
    return replace(track, identity=who, analysis=None)


def items_of(track: LibraryTrack, server: str) -> list[ServerItem]:
    """Return what a server calls a track, once for each of its files."""
    return [item for item in track.items if item.server == server]


def renamed(server: str, mine: Sequence[ServerItem]) -> Callable[[LibraryTrack], LibraryTrack]:
    """Return a change that replaces what a server calls a track."""

    def change(track: LibraryTrack) -> LibraryTrack:
        return replace(
            track, items=(*(item for item in track.items if item.server != server), *mine)
        )

    return change


def parts_of(path: str) -> tuple[str, ...]:
    """Folders and file of a path, normalised to be the same on every system."""
    text = unicodedata.normalize("NFC", re.sub(r"^\w+://", "", path).replace("\\", "/"))
    return tuple(part for part in PurePosixPath(text).parts if part != "/") or ("",)


def agreeing(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the parts at the end of two paths that agree."""
    n = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        n += 1
    return n


def has_length(track: LibraryTrack, song: Song) -> bool:
    """Whether a track may have the length of a song."""
    known = measures_of(track).duration_s
    if known is None or song.duration_s is None:
        return True
    return abs(known - song.duration_s) <= MAX_DIFFERENCE_S
