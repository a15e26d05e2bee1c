"""A track's key and tempo, identifiers, beat grid, and structure."""

import re
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from pipelines.analysis.records import TrackFeatures
from pipelines.analysis.tonality.notes import mode_name, pitch_class
from serve_app.api.door.limits import Reader
from serve_app.api.door.request import Offered, Services, error_responses, request_id
from serve_app.api.routes.features import Artist, Song, TrackIdPath
from serve_app.api.services import ApiServices, Operations
from serve_app.api.wire.analysis import TrackAnalysis, track_analysis
from serve_app.api.wire.bodies import Meta
from serve_app.api.wire.meta import meta_of
from serve_app.api.wire.tracks import BeatGridBody, KeyBpm, ResolvedTrack
from serve_app.domain.errors import JobNotFoundError, TrackNotFoundError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.ulid import ALPHABET, LENGTH

OWN_UPLOAD = re.compile(f"(?:job_)?([{ALPHABET}]{{{LENGTH}}})")
"""A job's id; spotipy does not let its ``job_`` through."""

router = APIRouter(tags=["Look-ups"])


@router.get(
    "/v1/key-bpm",
    response_model=KeyBpm,
    responses=error_responses(400, 401, 402, 404, 429, 500, 503),
    summary="Key and tempo by song and artist",
)
async def key_bpm(
    request: Request, caller: Reader, offered: Offered, song: Song, artist: Artist
) -> KeyBpm:
    """Get only tempo and key, from the same cache as the full look-up.

    If they are not known they are computed on the CPU, so the free tier may ask too. Once you have
    paid for them, the track's features cost you only the difference.
    """
    found = await offered.lookup.key_bpm(caller, artist, song, request_id(request))
    features = found.features
    return KeyBpm(
        tempo=round(features.tempo, 3),
        key=pitch_class(features.key),
        mode=mode_name(features.mode),
        camelot=features.camelot or None,
        meta=meta_of(request, found.cache, found.credits_used, found.balance.remaining),
    )


async def identity_of(offered: Operations, caller: Caller, id: str) -> TrackIdentity:
    """Return who a track is; an own analysed upload is named as the tags of its file do.

    Raises:
        TrackNotFoundError: Neither.
    """
    job_id = id.removeprefix("afa:track:")
    if not job_id.startswith("job_"):
        try:
            return await offered.lookup.identify(caller, id)
        except TrackNotFoundError:
            heard = await upload_of(offered, caller, id)
            if heard is None:
                raise
            return named_by_tags(heard)
    try:
        job = await offered.analysis.get_job(caller, job_id)
    except JobNotFoundError as error:
        raise TrackNotFoundError("no such track is known") from error
    features = offered.analysis.features_of(job)
    return TrackIdentity() if features is None else named_by_tags(features)


def named_by_tags(features: TrackFeatures) -> TrackIdentity:
    """Return who an upload is."""
    return TrackIdentity(artist=features.artist, title=features.title, source="tags")


@dataclass(frozen=True, slots=True)
class TrackOrJob:
    """The features of a track, or of an own analysed upload, and who it is."""

    features: TrackFeatures
    identity: TrackIdentity
    meta: Meta


async def features_of(
    request: Request,
    caller: Caller,
    services: ApiServices,
    offered: Operations,
    id: str,
    *,
    whole: bool,
) -> TrackOrJob:
    """Return the features of a track by its id, or of an own analysed upload by its job's.

    Args:
        request: What is answered.
        caller: Who asks and pays.
        services: Know the balance.
        offered: Know tracks and jobs.
        id: Of either; a job's also as `afa:track:…`, or without its `job_`.
        whole: With sections and segments.

    Raises:
        TrackNotFoundError: Neither, or a job that has not completed.
    """
    job_id = id.removeprefix("afa:track:")
    if job_id.startswith("job_"):
        features = await _job_features(caller, offered, job_id)
    else:
        look_up = offered.lookup.analysis if whole else offered.lookup.features
        try:
            found = await look_up(caller, id, request_id(request))
        except TrackNotFoundError:
            heard = await upload_of(offered, caller, id)
            if heard is None:
                raise
            features = heard
        else:
            meta = meta_of(request, found.cache, found.credits_used, found.balance.remaining)
            return TrackOrJob(found.features, found.identity, meta)
    balance = await services.ledger.balance(caller.account, caller.tier)
    meta = meta_of(request, "bypass", 0, balance.remaining)
    return TrackOrJob(features, named_by_tags(features), meta)


async def upload_of(offered: Operations, caller: Caller, id: str) -> TrackFeatures | None:
    """Return what was heard in an own upload, by its job's id; None where there is no such."""
    match = OWN_UPLOAD.fullmatch(id)
    if match is None:
        return None
    try:
        return await _job_features(caller, offered, f"job_{match[1]}")
    except TrackNotFoundError:
        return None


async def _job_features(caller: Caller, offered: Operations, job_id: str) -> TrackFeatures:
    try:
        job = await offered.analysis.get_job(caller, job_id)
    except JobNotFoundError as error:
        raise TrackNotFoundError("analysis not found") from error
    features = offered.analysis.features_of(job)
    if features is None:
        raise TrackNotFoundError(
            f"analysis not found: the job is {job.state.value}; see GET /v1/jobs/{job_id}"
        )
    return features


@router.get(
    "/v1/analysis/{id:path}",
    response_model=TrackAnalysis,
    responses=error_responses(400, 401, 402, 404, 429, 500, 503),
    summary="Bars, beats, chords, sections and segments",
)
async def analysis(
    request: Request, caller: Reader, services: Services, offered: Offered, id: TrackIdPath
) -> JSONResponse:
    """Get the structure of a track, or of your own analysed upload by its job id.

    The answer has all features except the embedding, and bars, beats, chords, tuning, sections and
    segments. For an upload it is free; for a track it costs what its features cost. For the same in
    Spotify's shape, use `GET /spotify/v1/audio-analysis/{id}`.
    """
    found = await features_of(request, caller, services, offered, id, whole=True)
    names = found.identity.artist, found.identity.title
    body = TrackAnalysis(**track_analysis(found.features, *names), meta=found.meta)
    return JSONResponse(body.model_dump(by_alias=True))


@router.get(
    "/v1/resolve/{id:path}",
    response_model=ResolvedTrack,
    responses=error_responses(400, 401, 404, 429, 503),
    summary="All identifiers of a track",
)
async def resolve(
    request: Request, caller: Reader, services: Services, offered: Offered, id: TrackIdPath
) -> ResolvedTrack:
    """Turn any identifier of a track into all known ones, with artist and title. Free."""
    identity = await identity_of(offered, caller, id)
    balance = await services.ledger.balance(caller.account, caller.tier)
    return ResolvedTrack(
        mbid=identity.mbid,
        isrc=identity.isrc,
        spotify_id=identity.spotify_id,
        apple_id=identity.apple_id,
        deezer_id=identity.deezer_id,
        youtube_id=identity.youtube_id,
        artist=identity.artist,
        title=identity.title,
        meta=meta_of(request, "bypass", services.prices.resolve, balance.remaining),
    )


@router.get(
    "/v1/beatgrid/{id:path}",
    response_model=BeatGridBody,
    responses=error_responses(400, 401, 402, 404, 429, 500, 503),
    summary="Beat grid of a track",
)
async def beatgrid(
    request: Request, caller: Reader, offered: Offered, id: TrackIdPath
) -> BeatGridBody:
    """Get tempo, beats and downbeats of a track.

    If the catalog has a tempo that a person checked, the grid is fitted to it. Cache hits are free
    within the monthly allowance; a miss computes the track and costs credits.
    """
    found = await offered.lookup.beat_grid(caller, id, request_id(request))
    grid = found.features
    return BeatGridBody(
        tempo=round(grid.tempo, 3),
        downbeat=round(grid.downbeat, 4),
        beats=[round(beat, 4) for beat in grid.beats],
        downbeats=[round(beat, 4) for beat in grid.downbeats],
        tempo_source=grid.tempo_source,
        meta=meta_of(request, found.cache, found.credits_used, found.balance.remaining),
    )
