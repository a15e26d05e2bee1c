"""AcousticBrainz's low-level JSON dump → catalog Parquet: tempo, key and names by MBID.

Its archives hold one file per submission, ``…/<2 hex>/<1 hex>/<mbid>-<n>.json``. Several
submissions of one recording disagree: the median tempo and the commonest key are used. Tempo may
still be half or double, so rows are not verified.

References:
    https://acousticbrainz.org/download (2022-07-06). The data is CC0.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import Any

from pipelines.analysis.tonality.notes import MODES, PITCH_CLASSES
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform
from serve_app.providers.catalog.build import write_parquet
from serve_app.providers.catalog.rows import MAX_DURATION_S, MAX_TEXT, TEMPO_RANGE
from serve_app.providers.dumps.files import DumpFormatError, DumpReport, open_members
from serve_app.providers.web.wire import known_id

SOURCE = "acousticbrainz"
KEYS = {name: number for number, name in enumerate(PITCH_CLASSES)} | {
    "Db": 1, "Eb": 3, "Gb": 6, "Ab": 8, "Bb": 10,
}  # fmt: skip
_JSON_NAME = re.compile(
    r"(?:.*/)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})-[0-9]+\.json"
)


def import_lowlevel(dump: Path, parquet: Path) -> DumpReport:
    """Convert one archive of the low-level JSON dump, with the names in its tags.

    Raises:
        DumpFormatError: It is not such an archive; nothing is written.
    """
    report = DumpReport()
    tracks: dict[str, _Submissions] = {}
    for name, _, file in open_members(dump):
        match = _JSON_NAME.fullmatch(name)
        if match is None:
            continue
        report.n_items += 1
        submission = tracks.setdefault(match[1], _Submissions())
        if not submission.add(file.read()):
            report.reject(dump, "not a low-level document")
            continue
        report.n_used += 1
    if report.n_items == 0:
        raise DumpFormatError(f"{dump}: holds no <mbid>-<n>.json")
    write_parquet((one.identity(mbid) for mbid, one in tracks.items() if one.n_used), parquet)
    return report


@dataclass(slots=True)
class _Submissions:
    """What all submissions of one recording say, combined."""

    tempos: list[float] = field(default_factory=list)
    keys: Counter[tuple[int, int]] = field(default_factory=Counter)
    names: TrackIdentity = field(default_factory=TrackIdentity)
    n_used: int = 0

    def add(self, body: bytes) -> bool:
        """Add one document; return False if it is not one."""
        try:
            found = identity_in(json.loads(body))
        except ValueError:
            return False
        if found is None:
            return False
        if found.tempo is not None:
            self.tempos.append(found.tempo)
        if found.key is not None and found.mode is not None:
            self.keys[found.key, found.mode] += 1
        names = replace(found, mbid=None, tempo=None, key=None, mode=None)
        self.names = self.names.filled_from(names)
        self.n_used += 1
        return True

    def identity(self, mbid: str) -> TrackIdentity:
        """Return the recording as all submissions together describe it."""
        # Counter keeps the order of insertion among equals; the lower key is deterministic.
        best = min(self.keys.items(), key=lambda kv: (-kv[1], kv[0]), default=((None, None), 0))
        return replace(
            self.names,
            mbid=mbid,
            tempo=median_low(self.tempos) if self.tempos else None,
            key=best[0][0],
            mode=best[0][1],
            source=SOURCE,
        )


def identity_in(document: Any) -> TrackIdentity | None:
    """Read the identity in a low-level document, with its tempo and key.

    Newer extractors estimate the key three times; the estimate for electronic music is then used.

    Args:
        document: Any JSON value.

    Returns:
        None if it is not such a document. Tempo or key are None if they are not plausible.
    """
    try:
        bpm = float(document["rhythm"]["bpm"])
        tonal = document["tonal"]
        edma = tonal.get("key_edma", {})
        key = KEYS.get(tonal.get("key_key") or edma.get("key", ""))
        scale = tonal.get("key_scale") or edma.get("scale")
        metadata = document.get("metadata", {})
        tags = metadata.get("tags", {})
        length_s = metadata.get("audio_properties", {}).get("length")
        mbid = _first(tags, "musicbrainz_recordingid") or _first(tags, "musicbrainz_trackid")
        has_key = key is not None and scale in MODES
        has_length = isinstance(length_s, int | float) and 0 < length_s <= MAX_DURATION_S
        return TrackIdentity(
            artist=_first(tags, "artist"),
            title=_first(tags, "title"),
            mbid=known_id(Platform.MBID, mbid),
            isrc=known_id(Platform.ISRC, _first(tags, "isrc")),
            album=_first(tags, "album") or None,
            duration_s=float(length_s) if has_length else None,
            tempo=bpm if TEMPO_RANGE[0] <= bpm <= TEMPO_RANGE[1] else None,
            key=key if has_key else None,
            mode=MODES.index(scale) if has_key else None,
            source=SOURCE,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _first(tags: dict[str, object], name: str) -> str:
    """Return a tag's text, or the first of its list, without what is not Unicode."""
    value = tags.get(name)
    if isinstance(value, list):
        value = value[0] if value else ""
    return value[:MAX_TEXT].encode(errors="ignore").decode() if isinstance(value, str) else ""
