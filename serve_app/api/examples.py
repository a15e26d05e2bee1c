"""A sample of every answer, for the reference."""

from typing import Any

SPOTIFY = "/spotify/"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
JOB_ID = "job_01jb3q8k6ya7rj1v6fwb2q4m9d"
ASSET_ID = "afa_01jb3q8k6ya7rj1v6fwb2q4m9d"

META = {
    "cache": "hit",
    "latency_ms": 3,
    "credits_used": 0,
    "credits_remaining": 59_998,
    "trace_id": TRACE_ID,
}
CANONICAL = {
    "artist": "The afa Demo Band",
    "title": "Demo in A minor",
    "tempo": 124.0,
    "key": "A",
    "mode": "minor",
    "camelot": "8A",
    "energy": 71,
    "danceability": 78,
    "happiness": 55,
    "acousticness": 6,
    "instrumentalness": 88,
}
SPOTIFY_SHAPE = {
    "id": "0AfaDemoTrack000000001",
    "type": "audio_features",
    "uri": "afa:track:0AfaDemoTrack000000001",
    "track_href": "https://afa.example/v1/resolve/0AfaDemoTrack000000001",
    "analysis_url": "https://afa.example/spotify/v1/audio-analysis/0AfaDemoTrack000000001",
    "key": 9,
    "mode": 0,
    "tempo": 124.0,
    "loudness": -11.2,
    "time_signature": 4,
    "duration_ms": 31_718,
    "energy": 0.71,
    "danceability": 0.78,
    "valence": 0.55,
    "acousticness": 0.06,
    "instrumentalness": 0.88,
    "speechiness": 0.04,
    "liveness": 0.12,
}
EXTENDED = {
    "mix_in": 1.94,
    "mix_out": 29.03,
    "mood_tags": [{"tag": "electronic", "kind": "genre", "score": 0.91}],
    "loudness": -11.2,
    "loudness_range": 4.1,
    "true_peak": -1.2,
    "time_signature": 4,
    "time_signature_confidence": 0.88,
    "duration_ms": 31_718,
    "speechiness": 4,
    "liveness": 12,
    "tempo_confidence": 0.93,
    "tempo_alternatives": [{"tempo": 62.0, "score": 0.05}, {"tempo": 248.0, "score": 0.02}],
    "key_confidence": 0.71,
    "attribute_confidence": {
        "energy": 0.93,
        "danceability": 0.9,
        "happiness": 0.71,
        "acousticness": 0.84,
        "instrumentalness": 0.88,
        "speechiness": 0.99,
        "liveness": 0.97,
    },
    "models": {"beats": "afa-beats-3", "key": "hpcp", "chords": "afa-chords-2"},
}
SECTION = {
    "start": 0.0,
    "duration": 15.7,
    "confidence": 0.8,
    "loudness": -11.4,
    "tempo": 124.0,
    "tempo_confidence": 0.9,
    "key": "A",
    "mode": "minor",
    "key_confidence": 0.7,
    "time_signature": 4,
}
CHORD = {
    "start": 0.25,
    "duration": 1.9355,
    "chord": "A:min/b3",
    "root": "A",
    "quality": "min",
    "bass": "C",
    "confidence": 0.86,
}
SEGMENT = {
    "start": 0.25,
    "duration": 0.24,
    "confidence": 0.9,
    "loudness_start": -31.0,
    "loudness_max": -9.8,
    "loudness_max_time": 0.03,
    "pitches": [0.6, 0.1, 0.2, 0.1, 0.7, 0.1, 0.1, 0.3, 0.2, 1.0, 0.1, 0.2],
    "timbre": [42.1, -3.0, 7.4, 1.9, 0.2, -5.1, 2.2, 0.4, -1.0, 0.8, -0.3, 0.1],
}
ASSET = {
    "asset_id": ASSET_ID,
    "sha256": "fee8eac679bb91dcffabc6ac6fd89058bff807b2b3b42c556f9758ee8f985bc7",
    "size_bytes": 508_776,
    "expires_at": "2026-11-28T12:00:00Z",
}
ASSET_METADATA = ASSET | {"content_type": "audio/mpeg", "created_at": "2026-11-21T12:00:00Z"}
JOB_META = META | {"cache": "bypass", "credits_used": 10, "progress": 0.0, "stage": "queued"}
SUBMITTED = {
    "status": "queued",
    "job_id": JOB_ID,
    "result": None,
    "error": None,
    "_meta": JOB_META,
}
COMPLETE = {
    "status": "complete",
    "job_id": JOB_ID,
    "result": CANONICAL
    | EXTENDED
    | {
        "artist": "",
        "title": "",
        "beats": [0.25, 0.734, 1.218],
        "downbeats": [0.25],
        "embedding": None,
        "embedding_model": None,
    },
    "error": None,
    "_meta": JOB_META | {"progress": 1.0, "stage": "complete"},
}
LIBRARY_TRACK = {
    "id": "trk_01jb3q8k6ya7rj1v6fwb2q4m9d",
    "shared": False,
    "artist": "The afa Demo Band",
    "title": "Demo in A minor",
    "album": None,
    "year": None,
    "mbid": None,
    "isrc": "QZAFA2600001",
    "spotify_id": None,
    "apple_id": None,
    "deezer_id": None,
    "youtube_id": None,
    "duration_s": 32.4,
    "tempo": 124.0,
    "key": "A",
    "mode": "minor",
    "camelot": "8A",
    "energy": 71,
    "tags": ["night"],
    "files": [
        {
            "place": "asset",
            "location": "afa_01jb3q8k6ya7rj1v6fwb2q4m9d",
            "missing_since": None,
        }
    ],
    "sources": {"artist": "owner", "title": "owner", "isrc": "owner"},
    "added_at": "2026-11-22T12:00:00Z",
    "changed_at": "2026-11-22T12:00:09Z",
    "analysed_at": "2026-11-22T12:00:09Z",
}
LIBRARY_ANSWER = {"track": LIBRARY_TRACK, "_meta": META | {"cache": "bypass"}}
WEBHOOK = {"url": "https://example.org/afa", "secret": "whsec_…"}
SIMILAR: dict[str, Any] = {
    "model": "afa-embed-1",
    "items": [
        {
            "track": LIBRARY_TRACK,
            "distance": 0.1132,
            "shared_tags": ["electronic"],
            "key_relation": "fifth up",
            "tempo_ratio": 1.0161,
        }
    ],
    "_meta": META | {"cache": "bypass", "credits_used": 1},
}
ITEM = {
    "item_id": "4NRXx6gZPPGGUBKMlqE5OT",
    "title": "Demo in A minor",
    "author": "The afa Demo Band",
    "album": "Demos",
}
SIMILAR_ITEM = ITEM | {"distance": 0.1132}

MBID = "afa00000-0000-4000-8000-000000000001"
AB_METADATA = {
    "audio_properties": {"length": 31.718},
    "tags": {
        "artist": ["The afa Demo Band"],
        "title": ["Demo in A minor"],
        "musicbrainz_recordingid": [MBID],
    },
    "version": {
        "extractor": "afa",
        "models": {"beats": "afa-beats-3", "key": "hpcp", "chords": "afa-chords-2"},
    },
}
LOW_LEVEL = {
    "lowlevel": {"loudness_ebu128": {"integrated": -11.2, "loudness_range": 4.1}},
    "metadata": AB_METADATA,
    "rhythm": {"bpm": 124.0, "beats_count": 3, "beats_position": [0.25, 0.7339, 1.2177]},
    "tonal": {"key_key": "A", "key_scale": "minor", "key_strength": 0.71},
}
HIGH_LEVEL = {
    "highlevel": {
        "danceability": {
            "all": {"danceable": 0.78, "not_danceable": 0.22},
            "probability": 0.78,
            "value": "danceable",
        }
    },
    "metadata": AB_METADATA,
}

EXAMPLES: dict[tuple[str, str], Any] = {
    ("/v1/audio-features", "get"): CANONICAL | {"_meta": META},
    ("/v1/audio-features/{id}", "get"): CANONICAL | {"_meta": META},
    ("/v1/audio-features", "post"): {
        "audio_features": [CANONICAL, None],
        "_meta": META | {"credits_used": 2},
    },
    ("/v1/audio-features/upload", "post"): SUBMITTED,
    ("/v1/audio-features/url", "post"): SUBMITTED,
    ("/v1/jobs/{job_id}", "get"): COMPLETE,
    ("/v1/jobs", "get"): {
        "items": [
            {
                "job_id": "job_01jb3q8k6ya7rj1v6fwb2q4m9d",
                "status": "complete",
                "progress": 1.0,
                "stage": "complete",
                "credits_used": 10,
                "error": None,
                "created_at": "2026-11-22T12:00:00Z",
                "finished_at": "2026-11-22T12:00:09Z",
            }
        ],
        "next_cursor": None,
        "count": 1,
    },
    ("/v1/key-bpm", "get"): {
        "tempo": 124.0,
        "key": "A",
        "mode": "minor",
        "camelot": "8A",
        "_meta": META,
    },
    ("/v1/resolve/{id}", "get"): {
        "mbid": "afa00000-0000-4000-8000-000000000001",
        "isrc": "QZAFA2600001",
        "spotify_id": "0AfaDemoTrack000000001",
        "apple_id": "1600000124",
        "deezer_id": "990000124",
        "youtube_id": "AfaDemoTrk0",
        "artist": "The afa Demo Band",
        "title": "Demo in A minor",
        "_meta": META | {"cache": "bypass"},
    },
    ("/v1/beatgrid/{id}", "get"): {
        "tempo": 124.0,
        "downbeat": 0.25,
        "beats": [0.25, 0.7339, 1.2177, 1.7016, 2.1855],
        "downbeats": [0.25, 2.1855],
        "tempo_source": "verified",
        "_meta": META,
    },
    ("/v1/analysis/{id}", "get"): CANONICAL
    | EXTENDED
    | {
        "beats": [0.25, 0.7339, 1.2177, 1.7016, 2.1855],
        "bars": [{"start": 0.25, "duration": 1.9355}],
        "chords": [CHORD],
        "tuning": -3.2,
        "sections": [SECTION],
        "segments": [SEGMENT],
        "_meta": META,
    },
    ("/v1/bpm", "post"): {
        "tempo": 124.0,
        "confidence": 0.93,
        "_meta": META | {"cache": "bypass", "credits_used": 2},
    },
    ("/v1/identify", "post"): {
        "matched": True,
        "artist": "The afa Demo Band",
        "title": "Demo in A minor",
        "album": "Fixtures",
        "year": "2026",
        "isrc": "QZAFA2600001",
        "confidence": 99,
        "source_service": "local",
        "services_tried": {"local": "match", "acoustid": "skipped"},
        "enrichment": {
            "bpm": 124.0,
            "key": "A",
            "camelot": "8A",
            "label": "Localhost Records",
            "genre": ["electronic"],
            "styles": [],
            "spotify_id": "0AfaDemoTrack000000001",
        },
        "_meta": META | {"cache": "miss", "credits_used": 3},
    },
    ("/v1/assets/upload", "post"): ASSET,
    ("/v1/assets", "get"): {"items": [ASSET_METADATA], "next_cursor": None, "count": 1},
    ("/v1/assets/{id}", "get"): ASSET_METADATA,
    ("/v1/library", "get"): {
        "items": [LIBRARY_TRACK],
        "next_cursor": None,
        "count": 1,
        "_meta": META | {"cache": "bypass"},
    },
    ("/v1/library", "post"): LIBRARY_ANSWER
    | {"status": "queued", "job_id": "job_01jb3q8k6ya7rj1v6fwb2q4m9d"},
    ("/v1/library/map", "get"): {
        "model": "afa-embed-1",
        "items": [
            {
                "id": "trk_01jb3q8k6ya7rj1v6fwb2q4m9d",
                "x": -0.31,
                "y": 0.72,
                "artist": "The afa Demo Band",
                "title": "Demo in A minor",
                "tempo": 124.0,
                "camelot": "8A",
                "energy": 71,
            }
        ],
        "total": 1,
        "variance_shown": 0.27,
        "_meta": META | {"cache": "bypass"},
    },
    ("/v1/library/{id}", "get"): LIBRARY_ANSWER,
    ("/v1/library/{id}", "patch"): LIBRARY_ANSWER,
    ("/v1/similar/{id}", "get"): SIMILAR,
    ("/v1/similar", "get"): SIMILAR | {"model": "clap-joint"},
    ("/v1/models", "get"): {
        "items": [
            {
                "id": "afa-embed-1",
                "role": "embedding",
                "in_use": True,
                "may_be_named": True,
                "reads_text": False,
                "dimension": 768,
                "licence": "Apache-2.0",
                "commercial_use": True,
                "attribution": "afa; musicnn and EfficientAT, whose outputs it projects",
                "trained_on": "280 tracks of game music without labels",
                "notes": "Default without a hub.",
            }
        ]
    },
    ("/v1/similar", "post"): SIMILAR,
    ("/v1/path", "get"): SIMILAR | {"_meta": SIMILAR["_meta"] | {"credits_used": 2}},
    ("/v1/account/webhook", "get"): WEBHOOK,
    ("/v1/account/webhook", "put"): WEBHOOK,
    ("/acousticbrainz/low-level", "get"): {MBID: {"0": LOW_LEVEL}},
    ("/acousticbrainz/high-level", "get"): {MBID: {"0": HIGH_LEVEL}},
    ("/acousticbrainz/count", "get"): {MBID: {"count": 1}},
    ("/acousticbrainz/{mbid}/low-level", "get"): LOW_LEVEL,
    ("/acousticbrainz/{mbid}/high-level", "get"): HIGH_LEVEL,
    ("/acousticbrainz/{mbid}/low-level", "post"): {"message": "ok"},
    ("/spotify/v1/audio-features", "get"): {"audio_features": [SPOTIFY_SHAPE, None]},
    ("/spotify/v1/audio-features/{id}", "get"): SPOTIFY_SHAPE,
    ("/api/similar_tracks", "get"): [SIMILAR_ITEM],
    ("/api/similar_artists", "get"): [
        {
            "artist": "Obsidian Shell",
            "artist_id": "5c1f0a7d",
            "divergence": 0.2131,
            "component_matches": [],
        }
    ],
    ("/api/alchemy", "post"): {"results": [SIMILAR_ITEM]},
    ("/api/find_path", "get"): {"path": [SIMILAR_ITEM], "total_distance": 0.1132},
    ("/api/search_tracks", "get"): [ITEM],
}
ERROR_MESSAGES = {
    400: ("bad_request", "ids: must be an array of 1 to 100 track ids"),
    401: ("unauthorized", "this API key is not valid; it may be expired, revoked or mistyped"),
    402: ("insufficient_credits", "this needs 2 credits and 0 remain; buy a pack"),
    403: ("scope_required", "this API key lacks the scope 'compute'; use another key"),
    404: (
        "track_not_found",
        "not in this server's library (tracks: 1,204) or catalog (0); no provider is on",
    ),
    409: ("idempotency_mismatch", "this Idempotency-Key was used with another request"),
    413: ("payload_too_large", "the upload is larger than the 15728640 bytes your tier allows"),
    415: ("unsupported_media_type", "the body is not audio; send the bytes of an audio file"),
    429: ("rate_limit_exceeded", "too many requests of class read; your tier allows 300 in 60 s"),
    500: ("internal_error", "something failed on our side; nothing was charged"),
    502: ("providers_unavailable", "no identification service could be reached; not charged"),
    503: ("service_unavailable", "part of the service is unavailable; try again"),
}
NOT_FOUND = {
    "/v1/assets/{id}": ("asset_not_found", "no such asset"),
    "/v1/bpm": ("asset_not_found", "no such asset"),
    "/v1/library": ("asset_not_found", "no such asset"),
    "/v1/library/{id}": ("track_not_found", "no such track is in your library or the operator's"),
    "/v1/audio-features/upload": ("asset_not_found", "no such asset"),
    "/v1/similar": ("asset_not_found", "no such asset"),
    "/v1/jobs/{job_id}": ("job_not_found", "no such job"),
    "/v1/account/webhook": ("not_found", "no webhook is set"),
}


def error_example(path: str, status: int) -> dict[str, Any]:
    """Return the body of an error on a path."""
    code, message = ERROR_MESSAGES[status]
    if status == 404:
        code, message = NOT_FOUND.get(path, (code, message))
    elif (path, status) == ("/v1/jobs/{job_id}", 409):
        code, message = "job_running", "the job is running; delete it when it has ended"
    if path.startswith(SPOTIFY):
        error = {"status": status, "message": message, "code": code}
        return {"error": error, "message": message, "trace_id": TRACE_ID}
    return {"error": code, "message": message, "trace_id": TRACE_ID}
