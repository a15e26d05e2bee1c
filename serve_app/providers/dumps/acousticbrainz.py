"""AcousticBrainz's low-level documents: tempo, key and names of a recording, as one was submitted.

Tempo may be half or double, so what they say is not verified.

References:
    https://acousticbrainz.org/data. The data is CC0.
"""

from typing import Any

from pipelines.analysis.tonality.notes import MODES, PITCH_CLASSES
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform
from serve_app.providers.catalog.rows import MAX_DURATION_S, MAX_TEXT, TEMPO_RANGE
from serve_app.providers.web.wire import known_id

SOURCE = "acousticbrainz"
KEYS = {name: number for number, name in enumerate(PITCH_CLASSES)} | {
    "Db": 1, "Eb": 3, "Gb": 6, "Ab": 8, "Bb": 10,
}  # fmt: skip


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
