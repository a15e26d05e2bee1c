"""Recognises two spellings of one track as the same, and two versions of it as different.

The rules: compatibility forms and case folded; accents, punctuation, "feat. X" and edition tags
(remastered, radio edit, …) dropped; a version word (live, remix, …) on one side only is a mismatch;
similarity is 0.65 · title + 0.35 · artist and must reach 0.8; durations may differ by 3 s.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from rapidfuzz import fuzz

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import Match

MIN_SCORE = 0.8
MIN_PART_SCORE = 0.8
"""Title and artist must each be this similar, or an exact half could outweigh a wrong one."""

TITLE_WEIGHT, ARTIST_WEIGHT = 0.65, 0.35
DURATION_TOLERANCE_S = 3.0
MIN_WORD_SCORE = 0.75
MAX_TEXT = 512

VERSION_WORDS = frozenset(
    {
        "acapella", "acoustic", "cover", "demo", "dub", "instrumental", "karaoke", "live", "mashup",
        "mix", "nightcore", "remix", "reprise", "rework", "slowed", "sped", "unplugged", "vip",
    }
)  # fmt: skip
_FEATURING = re.compile(
    r"\s*[\(\[\{]?\s*\b(?:feat(?:uring)?|ft)\b\.?\s[^\)\]\}]*[\)\]\}]?", re.IGNORECASE
)
_MAY_FEATURE = re.compile(r"feat|ft", re.IGNORECASE)
"""Most names lack this, which is found several times faster than the expression above."""
_BRACKETED = re.compile(r"[\(\[\{]([^\)\]\}]*)[\)\]\}]")
_DASHED_TAG = re.compile(r"\s[-\u2013\u2014]\s([^-\u2013\u2014]+)$")
_EDITION_WORDS = frozenset(
    {
        "album", "anniversary", "audio", "bonus", "clean", "deluxe", "digital", "digitally", "edit",
        "edition", "expanded", "explicit", "hd", "hq", "lyric", "lyrics", "mono", "music",
        "official", "original", "radio", "remaster", "remastered", "single", "special", "stereo",
        "track", "version", "video",
    }
)  # fmt: skip
_ABBREVIATIONS = {"pt": "part", "vol": "volume"}
_NOT_WORD = re.compile(r"[\W_]+")
_VOICED = "\u3099\u309a"
"""Japanese voicing marks: Unicode treats them as accents, readers as other letters."""
_LIGATURES = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "\u0131": "i"})


@lru_cache(maxsize=65_536)
def normalise(text: str) -> str:
    """Case-fold, drop accents and punctuation; words are separated by single spaces.

    A text of punctuation only ("???", "+") keeps it, so that it can still be found.
    """
    bare = text[:MAX_TEXT].casefold()
    if not bare.isascii():
        letters = unicodedata.normalize("NFKD", bare).casefold().translate(_LIGATURES)
        kept = "".join(c for c in letters if c in _VOICED or not unicodedata.combining(c))
        bare = unicodedata.normalize("NFC", kept).replace("\u2019", "")
    bare = bare.replace("&", " and ").replace("'", "")
    words = _NOT_WORD.sub(" ", bare).strip()
    return words or "".join(bare.split())


@lru_cache(maxsize=65_536)
def normalise_title(title: str) -> str:
    """Apply `normalise`, without featured artists and edition tags; version words stay."""
    plain = _without_featured(title[:MAX_TEXT])
    plain = _BRACKETED.sub(lambda tag: "" if _is_edition(tag[1]) else f" {tag[1]} ", plain)
    dashed = _DASHED_TAG.search(plain)
    if dashed is not None and _is_edition(dashed[1]):
        plain = plain[: dashed.start()]
    return normalise(plain) or normalise(title)


def search_words(name: str) -> str:
    """Return a name for a provider's search, without featured artists, which spoil it."""
    return " ".join(_without_featured(name[:MAX_TEXT]).split()) or name


def _without_featured(name: str) -> str:
    return _FEATURING.sub(" ", name) if _MAY_FEATURE.search(name) else name


@lru_cache(maxsize=65_536)
def normalise_artist(artist: str) -> str:
    """Apply `normalise`, without featured artists and a leading article."""
    plain = normalise(_without_featured(artist[:MAX_TEXT])) or normalise(artist)
    return plain.removeprefix("the ") or plain


def text_key(artist: str, title: str) -> str:
    """Return a key that two rows share if their names are the same after normalisation."""
    return f"{normalise_artist(artist)}\x1f{normalise_title(title)}"


def version_words(title: str) -> list[str]:
    """Return the words of a title that may name another performance or mix, sorted."""
    return sorted(word for word in normalise_title(title).split() if word in VERSION_WORDS)


def similarity(artist: str, title: str, other_artist: str, other_title: str) -> float:
    """Return how similar two names are, 0 to 1; 0 if only one is live or a half differs much."""
    if version_words(title) != version_words(other_title):
        return 0.0
    of_title = _title_ratio(normalise_title(title), normalise_title(other_title))
    mine, theirs = normalise_artist(artist), normalise_artist(other_artist)
    # A shared main artist counts almost fully if one side also names others.
    of_artist = max(fuzz.ratio(mine, theirs), 0.95 * fuzz.token_set_ratio(mine, theirs)) / 100
    if min(of_title, of_artist) < MIN_PART_SCORE:
        return 0.0
    return TITLE_WEIGHT * of_title + ARTIST_WEIGHT * of_artist


def _title_ratio(title: str, other: str) -> float:
    """Return the edit similarity; 0 if opposite words are unlike ("Planes", "Lanterns"; 2, 3)."""
    words, others = _spelled_out(title), _spelled_out(other)
    is_split_alike = len(words) == len(others)
    if is_split_alike and any(
        fuzz.ratio(mine, theirs) < 100 * MIN_WORD_SCORE
        for mine, theirs in zip(words, others, strict=True)
    ):
        return 0.0
    return fuzz.ratio(" ".join(words), " ".join(others)) / 100


def _spelled_out(title: str) -> list[str]:
    """Return a title's words; stores abbreviate "Part" and "Volume", and MusicBrainz does not."""
    return [_ABBREVIATIONS.get(word, word) for word in title.split()]


def same_length(duration_s: float | None, other_s: float | None) -> bool:
    """Whether two durations agree within 3 s; an unknown one agrees with any."""
    if duration_s is None or other_s is None:
        return True
    return abs(duration_s - other_s) <= DURATION_TOLERANCE_S


def _is_edition(tag: str) -> bool:
    """Whether a bracketed or dashed tag names an edition of the same recording."""
    words = normalise(tag).split()
    if words == ["original", "mix"]:
        return True
    return any(word in _EDITION_WORDS for word in words) and all(
        word in _EDITION_WORDS or word[0].isdigit() for word in words
    )


def ranked(
    found: Iterable[TrackIdentity], artist: str, title: str, duration_s: float | None = None
) -> list[Match]:
    """Return the identities that a name (and length) certainly means, best first."""
    scored = [
        Match(identity, similarity(artist, title, identity.artist, identity.title))
        for identity in found
        if same_length(duration_s, identity.duration_s)
    ]
    good = [match for match in scored if match.score >= MIN_SCORE]
    return sorted(good, key=lambda match: -match.score)
