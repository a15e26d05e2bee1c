"""Spotify's Web API shapes: errors, audio analysis, tracks and search.

References:
    Spotify Web API reference (audio-features, audio-analysis, tracks, search); the fields that
    spotipy 2.26, tekore 6.2, spotify-web-api-node 5.0 and @spotify/web-api-ts-sdk 1.2 read.
"""

import hashlib
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from starlette.datastructures import URL

from pipelines.analysis.records import Section, Segment, TrackFeatures
from pipelines.audio.waveform import SAMPLE_RATE
from serve_app.domain.errors import AfaError
from serve_app.domain.identity import TrackIdentity

PREFIX = "/spotify/"
TATUMS_PER_BEAT = 2
NO_LINKS: dict[str, str] = {}


def spotify_error(error: AfaError, trace_id: str) -> dict[str, Any]:
    """Return Spotify's error object with our own code added."""
    return {
        "error": {"status": error.status, "message": error.message, "code": error.code},
        "message": error.message,
        "trace_id": trace_id,
    }


def audio_analysis(features: TrackFeatures) -> dict[str, Any]:
    """Return the audio-analysis object of a track; two bars of two beats count as one of four."""
    beats = _intervals(features.beats, features.duration_s, features.tempo_confidence)
    tatum_times = _subdivided(features.beats)
    bar_times = features.downbeats[:: 2 if features.time_signature == 2 else 1]
    return {
        "meta": {
            "analyzer_version": "afa-1",
            "platform": "Linux",
            "detailed_status": "OK",
            "status_code": 0,
            "timestamp": int(time.time()),
            "analysis_time": 0.0,
            "input_process": "afa",
        },
        "track": _track_analysis(features),
        "bars": _intervals(bar_times, features.duration_s, features.time_signature_confidence),
        "beats": beats,
        "tatums": _intervals(tatum_times, features.duration_s, features.tempo_confidence),
        "sections": [_section(section) for section in features.sections],
        "segments": [_segment(segment) for segment in features.segments],
    }


def time_signature(beats_in_a_bar: int) -> int:
    """Return a bar's length on Spotify's scale of 3 to 7, on which two in a bar count as four."""
    return 4 if beats_in_a_bar == 2 else min(7, max(3, beats_in_a_bar))


def _track_analysis(features: TrackFeatures) -> dict[str, Any]:
    return {
        "num_samples": round(features.duration_s * SAMPLE_RATE),
        "duration": round(features.duration_s, 5),
        "sample_md5": "",
        "offset_seconds": 0,
        "window_seconds": 0,
        "analysis_sample_rate": SAMPLE_RATE,
        "analysis_channels": 1,
        "end_of_fade_in": round(features.mix_in_s, 5),
        "start_of_fade_out": round(features.mix_out_s, 5),
        "loudness": round(features.loudness_lufs, 3),
        "tempo": round(features.tempo, 3),
        "tempo_confidence": round(features.tempo_confidence, 3),
        "time_signature": time_signature(features.time_signature),
        "time_signature_confidence": round(features.time_signature_confidence, 3),
        "key": features.key,
        "key_confidence": round(features.key_confidence, 3),
        "mode": features.mode,
        "mode_confidence": round(features.key_confidence, 3),
        "codestring": "",
        "code_version": 0.0,
        "echoprintstring": "",
        "echoprint_version": 0.0,
        "synchstring": "",
        "synch_version": 0.0,
        "rhythmstring": "",
        "rhythm_version": 0.0,
    }


def _subdivided(beats: Sequence[float]) -> list[float]:
    """Halve every beat; the last one stays whole."""
    times = [
        before + (after - before) * part / TATUMS_PER_BEAT
        for before, after in pairwise(beats)
        for part in range(TATUMS_PER_BEAT)
    ]
    return [*times, *beats[-1:]]


def _intervals(
    times: Sequence[float], duration_s: float, confidence: float
) -> list[dict[str, float]]:
    """Return start, duration and confidence; the last interval ends with the track."""
    ends = [*times[1:], max(duration_s, times[-1])] if times else []
    return [
        {
            "start": round(start, 5),
            "duration": round(end - start, 5),
            "confidence": round(confidence, 3),
        }
        for start, end in zip(times, ends, strict=True)
    ]


def _section(section: Section) -> dict[str, Any]:
    return {
        "start": round(section.start_s, 5),
        "duration": round(section.duration_s, 5),
        "confidence": round(section.confidence, 3),
        "loudness": round(section.loudness_db, 3),
        "tempo": round(section.tempo, 3),
        "tempo_confidence": round(section.tempo_confidence, 3),
        "key": section.key,
        "key_confidence": round(section.key_confidence, 3),
        "mode": section.mode,
        "mode_confidence": round(section.mode_confidence, 3),
        "time_signature": time_signature(section.time_signature),
        "time_signature_confidence": round(section.time_signature_confidence, 3),
    }


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "start": round(segment.start_s, 5),
        "duration": round(segment.duration_s, 5),
        "confidence": round(segment.confidence, 3),
        "loudness_start": round(segment.loudness_start_db, 3),
        "loudness_max_time": round(segment.loudness_max_time_s, 5),
        "loudness_max": round(segment.loudness_max_db, 3),
        "loudness_end": 0,
        "pitches": [round(value, 3) for value in segment.pitches],
        "timbre": [round(value, 3) for value in segment.timbre],
    }


def _artist(name: str, base_url: str) -> dict[str, Any]:
    artist_id = hashlib.sha256(name.encode()).hexdigest()[:22]
    return {
        "external_urls": NO_LINKS,
        "href": f"{base_url}/spotify/v1/artists/{artist_id}",
        "id": artist_id,
        "name": name,
        "type": "artist",
        "uri": f"afa:artist:{artist_id}",
    }


def track_object(identity: TrackIdentity, track_id: str, base_url: str) -> dict[str, Any]:
    """Return the full track object; what is unknown is empty."""
    artists = [_artist(identity.artist, base_url)]
    album_id = hashlib.sha256(f"{identity.artist}/{identity.album}".encode()).hexdigest()[:22]
    images = []
    if identity.artwork_url is not None:
        images.append({"url": identity.artwork_url, "height": None, "width": None})
    year = identity.year
    return {
        "album": {
            "album_type": "album",
            "artists": artists,
            "available_markets": [],
            "external_urls": NO_LINKS,
            "href": f"{base_url}/spotify/v1/albums/{album_id}",
            "id": album_id,
            "images": images,
            "name": identity.album or "",
            "release_date": f"{year:04d}" if year else "0000",
            "release_date_precision": "year",
            "total_tracks": 1,
            "type": "album",
            "uri": f"afa:album:{album_id}",
        },
        "artists": artists,
        "available_markets": [],
        "disc_number": 1,
        "duration_ms": round(1000 * (identity.duration_s or 0)),
        "explicit": False,
        "external_ids": {"isrc": identity.isrc} if identity.isrc else {},
        "external_urls": NO_LINKS,
        "href": f"{base_url}/spotify/v1/tracks/{track_id}",
        "id": track_id,
        "is_local": False,
        "is_playable": True,
        "name": identity.title,
        "popularity": 0,
        "preview_url": None,
        "track_number": 1,
        "type": "track",
        "uri": f"afa:track:{track_id}",
    }


def search_page(
    tracks: Sequence[dict[str, Any]], address: URL, limit: int, offset: int
) -> dict[str, Any]:
    """Return a page of tracks in the shape of a search.

    Args:
        tracks: Tracks up to the end of the page, and one more if another page follows.
        address: Address of this page.
        limit: Tracks per page.
        offset: Number of tracks to skip first.
    """
    end, before = offset + limit, max(0, offset - limit)
    return {
        "tracks": {
            "href": str(address),
            "items": list(tracks)[offset:end],
            "limit": limit,
            "next": str(address.include_query_params(offset=end)) if len(tracks) > end else None,
            "offset": offset,
            "previous": str(address.include_query_params(offset=before)) if offset else None,
            "total": len(tracks),
        }
    }
