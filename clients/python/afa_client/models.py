"""The service's answers; written by `make clients` from its OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers; fields of a newer service are ignored."""

    model_config = ConfigDict(populate_by_name=True, protected_namespaces=())


class Account(Answer):
    """The account of the API key."""

    account: str = Field(description="Name of the account.")
    key_id: str = Field(description="Id of the API key; it is not secret.")
    is_test: bool = Field(
        description="Whether it is a test key: answers and credits are simulated."
    )
    tier: str = Field(description="Plan of the account.")
    scopes: list[str] = Field(description="What the key may do: `read`, `compute`, `assets`.")
    credits: Credits = Field(description="The balance.")
    usage: Usage = Field(description="Usage of this period.")
    limits: TierLimits = Field(description="Limits of the tier.")
    prices: dict[str, int] = Field(description="Credits per operation.")
    auto_topup: AutoTopup | None = Field(description="Automatic top-up; null if never set up.")
    grace_ends: datetime | None = Field(
        description="When the open debt must be repaid; null without debt."
    )


class AnalysisFeatures(Answer):
    """Result of an analysis job."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Musical key; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int = Field(
        description="0 to 100. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: int = Field(
        description="0 to 100. How suitable it is for dancing, by how steady and strong its beat is."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely it is to have no vocals.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="Tags, highest score first.")
    loudness: float = Field(
        description="Integrated loudness in LUFS (ITU-R BS.1770-4): -70 is silence; about -23 is usual in broadcasting, -14 in streaming, -8 in loud pop."
    )
    loudness_range: float = Field(
        description="Loudness range in LU (EBU Tech 3342): between quiet and loud parts."
    )
    true_peak: float = Field(description="Highest peak, also between samples, in dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: float = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    speechiness: int = Field(description="0 to 100. How much of it is speech.")
    liveness: int = Field(
        description="0 to 100. How likely it was recorded in front of an audience."
    )
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check if half or double is right."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and other tempi at which the beats may be counted, most likely first; use `tempo_range` to ask for one of them."
    )
    key_confidence: float = Field(description="How likely this key is among all 24, 0 to 1.")
    attribute_confidence: dict[str, float] = Field(
        description="For each attribute, how likely its value repeats, 0 to 1: that another part of the track, or the track as MP3, faster, slower or equalised, gets a value within 10 of this one. This is not how right the value is. Empty if it is not known."
    )
    models: dict[str, str] = Field(
        description="For each role, the id of the checkpoint that was used; `mood_tags` also come from `embedding` if its networks recognise tags."
    )
    beats: list[float] = Field(description="Time of every beat in seconds.")
    downbeats: list[float] = Field(description="Time of the first beat of every bar in seconds.")
    embedding: list[float] | None = Field(
        default=None,
        description="768 floats, L2-normalised; only when `include_embedding` was set.",
    )
    embedding_model: str | None = Field(
        default=None,
        description="Model of the embedding; compare only embeddings of the same model.",
    )


class AssetListResponse(Answer):
    """One page of assets, newest first."""

    items: list[AssetMetadata] = Field(description="Assets that have not expired.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(description="Number of items in this page.")


class AssetMetadata(Answer):
    """What is known about an asset."""

    asset_id: str = Field(description="Id of the asset; send it instead of the audio.")
    sha256: str = Field(description="Hex SHA-256 of the stored bytes.")
    size_bytes: int = Field(description="Size of the stored file in bytes.")
    expires_at: datetime = Field(description="When the asset is deleted.")
    content_type: str = Field(description="MIME type of the uploaded file.")
    created_at: datetime = Field(description="When it was first uploaded.")


class AssetUpload(Answer):
    """A stored asset."""

    asset_id: str = Field(description="Id of the asset; send it instead of the audio.")
    sha256: str = Field(description="Hex SHA-256 of the stored bytes.")
    size_bytes: int = Field(description="Size of the stored file in bytes.")
    expires_at: datetime = Field(description="When the asset is deleted.")


class AutoTopup(Answer):
    """Packs bought automatically; amounts in the currency's minor unit."""

    enabled: bool = Field(description="Whether packs are bought.")
    off_reason: str | None = Field(description="Why it is off; null while it is on.")
    threshold: int = Field(description="A pack is bought when fewer credits are left.")
    pack_credits: int = Field(description="Credits of a pack.")
    price_minor: int = Field(description="Price of a pack.")
    cap_minor: int = Field(description="Most that is charged in a UTC month.")
    spent_minor: int = Field(description="This month's charges, including one in progress.")


class BatchResponse(Answer):
    """Features of many tracks, in the order of the request."""

    audio_features: list[
        ExtendedSpotifyFeatures | SpotifyFeatures | ExtendedFeatures | Features | None
    ] = Field(description="null if an ID could not be resolved; such slots are not charged.")
    reasons: dict[str, str] | None = Field(
        default=None,
        description="With `extended`: for the id of each null slot, an error code such as `track_not_found` or `tier_required`.",
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class BeatGridBody(Answer):
    """Where the beats of a track are."""

    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    downbeat: float = Field(description="Time of the first downbeat in seconds.")
    beats: list[float] = Field(description="Time of every beat in seconds.")
    downbeats: list[float] = Field(description="Time of the first beat of every bar in seconds.")
    tempo_source: str = Field(
        description="`verified`: a person checked the tempo, and the grid follows it. `computed`: the tempo comes from the audio."
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class Bpm(Answer):
    """The tempo of the audio that was sent."""

    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check if half or double is right."
    )
    asset_id: str | None = Field(default=None, description="The asset used; only if one was named.")
    asset_expires_at: datetime | None = Field(
        default=None, description="When the asset is deleted; only if one was named."
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class Credits(Answer):
    """The account's credits."""

    remaining: int = Field(
        description="Grant plus packs minus debt; negative within the grace buffer."
    )
    monthly_grant: int = Field(description="What is left of this month's grant.")
    packs: int = Field(description="Prepaid credits; they never expire.")
    debt: int = Field(description="How much of the grace buffer is used.")
    held: int = Field(description="Reserved for work in progress; not included in the others.")


class EnrichmentBody(Answer):
    """What is known about an identified track; unknown fields are left out."""

    bpm: float | None = Field(default=None, description="Tempo in BPM.")
    key: str | None = Field(default=None, description="Pitch class of the key.")
    camelot: str | None = Field(default=None, description="Camelot wheel notation.")
    label: str | None = Field(default=None, description="Record label.")
    genre: list[str] = Field(default=[], description="Broad genres of the release.")
    styles: list[str] = Field(default=[], description="Finer styles of the release.")
    spotify_id: str | None = Field(default=None, description="Spotify track ID.")
    apple_id: str | None = Field(default=None, description="Apple Music song ID.")
    deezer_id: str | None = Field(default=None, description="Deezer track ID.")
    youtube_id: str | None = Field(default=None, description="YouTube video ID.")
    artwork_url: str | None = Field(default=None, description="Address of the cover.")


class Error(Answer):
    """Every failed request answers with this body."""

    error: str = Field(description="Machine-readable error code.")
    message: str = Field(description="What happened and what to do about it.")
    trace_id: str | None = Field(default=None, description="Quote it when you ask for help.")


class ExtendedFeatures(Answer):
    """Features with the service's own fields."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Musical key; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int = Field(
        description="0 to 100. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: int = Field(
        description="0 to 100. How suitable it is for dancing, by how steady and strong its beat is."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely it is to have no vocals.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="Tags, highest score first.")
    loudness: float = Field(
        description="Integrated loudness in LUFS (ITU-R BS.1770-4): -70 is silence; about -23 is usual in broadcasting, -14 in streaming, -8 in loud pop."
    )
    loudness_range: float = Field(
        description="Loudness range in LU (EBU Tech 3342): between quiet and loud parts."
    )
    true_peak: float = Field(description="Highest peak, also between samples, in dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: float = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    speechiness: int = Field(description="0 to 100. How much of it is speech.")
    liveness: int = Field(
        description="0 to 100. How likely it was recorded in front of an audience."
    )
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check if half or double is right."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and other tempi at which the beats may be counted, most likely first; use `tempo_range` to ask for one of them."
    )
    key_confidence: float = Field(description="How likely this key is among all 24, 0 to 1.")
    attribute_confidence: dict[str, float] = Field(
        description="For each attribute, how likely its value repeats, 0 to 1: that another part of the track, or the track as MP3, faster, slower or equalised, gets a value within 10 of this one. This is not how right the value is. Empty if it is not known."
    )
    models: dict[str, str] = Field(
        description="For each role, the id of the checkpoint that was used; `mood_tags` also come from `embedding` if its networks recognise tags."
    )


class ExtendedSpotifyFeatures(Answer):
    """Audio features in Spotify's shape with the service's own fields."""

    id: str = Field(description="The id that was asked for; for an upload, the id of its job.")
    type: Literal["audio_features"] = Field(
        default="audio_features", description="Always the same."
    )
    uri: str = Field(description="The same id as `afa:track:<id>`.")
    track_href: str = Field(description="Address of the track's identifiers.")
    analysis_url: str = Field(description="Address of the audio analysis.")
    key: int = Field(description="Pitch class, C = 0; -1 unknown.")
    mode: Literal[-1, 0, 1] = Field(description="1 major, 0 minor, -1 unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    loudness: float = Field(
        description="Integrated loudness in LUFS (ITU-R BS.1770-4): -70 is silence; about -23 is usual in broadcasting, -14 in streaming, -8 in loud pop."
    )
    time_signature: int = Field(description="Beats in a bar, 3 to 7.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    energy: float = Field(
        description="0 to 1. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: float = Field(
        description="0 to 1. How suitable it is for dancing, by how steady and strong its beat is."
    )
    valence: float = Field(
        description="0 to 1. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: float = Field(
        description="0 to 1. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: float = Field(description="0 to 1. How likely it is to have no vocals.")
    speechiness: float = Field(description="0 to 1. How much of it is speech.")
    liveness: float = Field(
        description="0 to 1. How likely it was recorded in front of an audience."
    )
    embedding: list[float] | None = Field(
        default=None, description="768 floats; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        default=None,
        description="Model of the embedding; compare only embeddings of the same model.",
    )
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="Tags, highest score first.")
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check if half or double is right."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and other tempi at which the beats may be counted, most likely first."
    )
    key_confidence: float = Field(description="How likely this key is among all 24, 0 to 1.")
    models: dict[str, str] = Field(
        description="For each role, the id of the checkpoint that was used; `mood_tags` also come from `embedding` if its networks recognise tags."
    )


class Features(Answer):
    """Audio features in the canonical shape."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Musical key; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int = Field(
        description="0 to 100. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: int = Field(
        description="0 to 100. How suitable it is for dancing, by how steady and strong its beat is."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely it is to have no vocals.")


class FeaturesAnswer(Answer):
    """Audio features in the canonical shape."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Musical key; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int = Field(
        description="0 to 100. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: int = Field(
        description="0 to 100. How suitable it is for dancing, by how steady and strong its beat is."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely it is to have no vocals.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class Identification(Answer):
    """Which track a recording is; unknown fields are left out."""

    matched: bool = Field(description="Whether the track was identified.")
    artist: str | None = Field(default=None, description="Present if matched.")
    title: str | None = Field(default=None, description="Present if matched.")
    album: str | None = Field(default=None, description="Album or single it is on.")
    year: str | None = Field(default=None, description="Year of that release.")
    isrc: str | None = Field(default=None, description="International Standard Recording Code.")
    confidence: int = Field(
        default=0, description="How certain the match is, 0 to 100; 0 if unmatched."
    )
    source_service: str | None = Field(
        default=None, description="Which service produced the match."
    )
    services_tried: dict[str, Literal["match", "no_match", "error", "skipped"]] = Field(
        description="The result of every service of the cascade, in order."
    )
    enrichment: EnrichmentBody | None = Field(default=None, description="null if unmatched.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class JobEnvelope(Answer):
    """An analysis job."""

    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="`complete` and `failed` are final."
    )
    job_id: str = Field(description="Poll `GET /v1/jobs/{job_id}` with it.")
    result: AnalysisFeatures | SpotifyFeatures | None = Field(
        default=None, description="Set when `status` is `complete`."
    )
    error: Error | None = Field(default=None, description="Set when `status` is `failed`.")
    meta: JobMeta = Field(
        alias="_meta", description="How the request was served, and what it cost."
    )


class JobList(Answer):
    """One page of jobs, newest first."""

    items: list[ListedJob] = Field(description="Jobs that have not expired.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(description="Number of items in this page.")


class JobMeta(Answer):
    """`Meta` of a job, with its progress."""

    cache: Literal["hit", "miss", "bypass"] = Field(
        description="Whether the response came from the cache."
    )
    latency_ms: int = Field(description="Processing time in milliseconds.")
    credits_used: int = Field(description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative within the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")
    test: bool = Field(
        default=False,
        description="Present, and true, only if a test key asked: the answer is then made up from the request alone, and nothing was computed.",
    )
    progress: float = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.")


class KeyBpm(Answer):
    """Tempo and key only."""

    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Musical key; null when there is none."
    )
    mode: str | None = Field(description="`major` or `minor`; null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class LibraryAdded(Answer):
    """A track that was added, and the job that analyses it."""

    track: LibraryTrackBody = Field(description="The track as it is now.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")
    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="State of that job."
    )
    job_id: str = Field(description="Poll `GET /v1/jobs/{job_id}`.")


class LibraryAnswer(Answer):
    """One track."""

    track: LibraryTrackBody = Field(description="The track as it is now.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class LibraryFile(Answer):
    """Where the audio of one of your tracks is."""

    place: Literal["path", "asset", "url"] = Field(description="What `location` is.")
    location: str = Field(description="Path, asset id or address.")
    missing_since: datetime | None = Field(
        description="When it was first missing; null if it is there."
    )


class LibraryList(Answer):
    """One page of tracks, in the requested order."""

    items: list[LibraryTrackBody] = Field(description="Tracks that match the query.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(description="Number of items in this page.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class LibraryMapBody(Answer):
    """The library on a plane: its embeddings along the two directions in which they differ most."""

    model: str | None = Field(
        description="Model of the embeddings: the one that most tracks have an embedding of; null if no track has any."
    )
    items: list[MappedTrackBody] = Field(
        description="At most 2,000 tracks; if there are more, an even sample."
    )
    total: int = Field(description="Tracks that have such an embedding, shown or not.")
    variance_shown: float = Field(
        description="How much of the embeddings' variance the plane shows. If it is low, tracks that are close together may still sound different."
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class LibraryTrackBody(Answer):
    """A track of the library."""

    id: str = Field(description="Id of the track; every look-up accepts it.")
    shared: bool = Field(
        description="Whether it belongs to the operator; every key sees such tracks."
    )
    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    album: str | None = Field(description="Album or single it is on.")
    year: int | None = Field(description="Year of that release.")
    mbid: str | None = Field(description="MusicBrainz recording ID.")
    isrc: str | None = Field(description="International Standard Recording Code.")
    spotify_id: str | None = Field(description="Spotify track ID.")
    apple_id: str | None = Field(description="Apple Music song ID.")
    deezer_id: str | None = Field(description="Deezer track ID.")
    youtube_id: str | None = Field(description="YouTube video ID.")
    duration_s: float | None = Field(description="Length in seconds; null when unknown.")
    tempo: float | None = Field(description="BPM; null before the analysis.")
    key: str | None = Field(description="Pitch class, C to B; null when there is none.")
    mode: str | None = Field(description="`major` or `minor`; null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int | None = Field(description="0 to 100; null before the analysis.")
    tags: list[str] = Field(description="Tags that the owner set.")
    files: list[LibraryFile] = Field(
        description="Files of your own track; empty for the operator's tracks."
    )
    sources: dict[str, str] = Field(description="For each field, where its value comes from.")
    added_at: datetime | None = Field(description="When it was added.")
    changed_at: datetime | None = Field(description="When it last changed.")
    analysed_at: datetime | None = Field(description="When it was analysed; null before that.")


class ListedJob(Answer):
    """A job without its result."""

    job_id: str = Field(description="Poll `GET /v1/jobs/{job_id}` with it.")
    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="`complete` and `failed` are final."
    )
    progress: float = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.")
    credits_used: int = Field(
        description="Credits reserved while the job is unfinished, then charged."
    )
    error: Error | None = Field(description="Why it failed; null otherwise.")
    created_at: datetime = Field(description="When it was submitted.")
    finished_at: datetime | None = Field(description="When it ended; null before that.")


class MappedTrackBody(Answer):
    """A track and its place on the map; tracks that sound alike are close together."""

    id: str = Field(description="Id of the track; every look-up accepts it.")
    x: float = Field(description="Position to the right.")
    y: float = Field(description="Position upwards.")
    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float | None = Field(description="BPM.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int | None = Field(description="0 to 100.")


class Meta(Answer):
    """How the request was served."""

    cache: Literal["hit", "miss", "bypass"] = Field(
        description="Whether the response came from the cache."
    )
    latency_ms: int = Field(description="Processing time in milliseconds.")
    credits_used: int = Field(description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative within the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")
    test: bool = Field(
        default=False,
        description="Present, and true, only if a test key asked: the answer is then made up from the request alone, and nothing was computed.",
    )


class ModelBody(Answer):
    """A checkpoint that this service knows."""

    id: str = Field(description="Its name in requests and results.")
    role: str = Field(description="`embedding`, `tags`, `attributes`, `key`, `chords` or `beats`.")
    in_use: bool = Field(description="Whether it is used if a request names no other.")
    may_be_named: bool = Field(
        description="Whether `embedding_model` may name it: it is an embedding, on this machine, and not too large."
    )
    reads_text: bool = Field(
        description="Whether `GET /v1/similar?text=` compares words with its vectors."
    )
    dimension: int | None = Field(
        description="Size of its embedding before padding to 768; null if it makes none."
    )
    licence: str = Field(description="SPDX id of the licence of its weights.")
    commercial_use: bool = Field(description="Whether a paid service may use it.")
    attribution: str = Field(description="Who to credit.")
    trained_on: str | None = Field(description="What it was trained on; null if unknown.")
    notes: str = Field(description="Known limitations.")


class ModelList(Answer):
    """All checkpoints that this service knows."""

    items: list[ModelBody] = Field(description="All checkpoints.")


class MoodTagBody(Answer):
    """A tag and its calibrated score."""

    tag: str = Field(description="A word in lower case.")
    kind: Literal["genre", "mood", "instrument", "voice", "era", "sound"] = Field(
        description="What the tag describes; `sound` includes pace, loudness and audience noise."
    )
    score: float = Field(
        description="0 to 1, comparable between tags; a tag is strong from .6 on. A strong voice tag is right in 9 of 10 cases; strong genres and instruments are guesses."
    )


class ResolvedTrack(Answer):
    """One track's identifiers on every platform; null if unknown."""

    mbid: str | None = Field(description="MusicBrainz recording ID.")
    isrc: str | None = Field(description="International Standard Recording Code.")
    spotify_id: str | None = Field(description="Spotify track ID.")
    apple_id: str | None = Field(description="Apple Music song ID.")
    deezer_id: str | None = Field(description="Deezer track ID.")
    youtube_id: str | None = Field(description="YouTube video ID.")
    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class SimilarList(Answer):
    """The tracks found; similar ones nearest first, compared with the first seed."""

    model: str = Field(description="Model whose vectors were compared.")
    items: list[SimilarTrack] = Field(description="The tracks, nearest first.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class SimilarTrack(Answer):
    """A track, and what it has in common with the one it is compared with."""

    track: LibraryTrackBody = Field(description="The track, as the library knows it.")
    distance: float = Field(description="Cosine distance: 0 sounds the same.")
    shared_tags: list[str] = Field(description="Tags that both have.")
    key_relation: (
        Literal["same", "relative", "fifth up", "fifth down", "diagonal", "parallel", "distant"]
        | None
    ) = Field(description="`relative` shares all notes; null if a key is unknown.")
    tempo_ratio: float | None = Field(
        description="Its tempo divided by the other's; null if one is unknown."
    )


class Span(Answer):
    """A stretch of the track."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")


class SpotifyFeatures(Answer):
    """Audio features in Spotify's shape."""

    id: str = Field(description="The id that was asked for; for an upload, the id of its job.")
    type: Literal["audio_features"] = Field(
        default="audio_features", description="Always the same."
    )
    uri: str = Field(description="The same id as `afa:track:<id>`.")
    track_href: str = Field(description="Address of the track's identifiers.")
    analysis_url: str = Field(description="Address of the audio analysis.")
    key: int = Field(description="Pitch class, C = 0; -1 unknown.")
    mode: Literal[-1, 0, 1] = Field(description="1 major, 0 minor, -1 unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    loudness: float = Field(
        description="Integrated loudness in LUFS (ITU-R BS.1770-4): -70 is silence; about -23 is usual in broadcasting, -14 in streaming, -8 in loud pop."
    )
    time_signature: int = Field(description="Beats in a bar, 3 to 7.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    energy: float = Field(
        description="0 to 1. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: float = Field(
        description="0 to 1. How suitable it is for dancing, by how steady and strong its beat is."
    )
    valence: float = Field(
        description="0 to 1. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: float = Field(
        description="0 to 1. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: float = Field(description="0 to 1. How likely it is to have no vocals.")
    speechiness: float = Field(description="0 to 1. How much of it is speech.")
    liveness: float = Field(
        description="0 to 1. How likely it was recorded in front of an audience."
    )
    embedding: list[float] | None = Field(
        default=None, description="768 floats; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        default=None,
        description="Model of the embedding; compare only embeddings of the same model.",
    )


class TempoAlternativeBody(Answer):
    """Another tempo at which the beats may be counted."""

    tempo: float = Field(description="BPM.")
    score: float = Field(description="Its probability; `tempo` and all alternatives add up to 1.")


class TierLimits(Answer):
    """What the tier allows."""

    upload_bytes: int = Field(description="Largest upload in bytes.")
    asset_lifetime_s: int = Field(description="Seconds until an asset is deleted.")
    storage_bytes: int = Field(description="Most bytes that all assets may have together.")
    max_audio_s: int = Field(description="Longest audio in seconds.")
    gpu: bool = Field(description="Whether full analysis is included.")
    embedding: bool = Field(description="Whether `include_embedding` is included.")
    grace_credits: int = Field(description="How far below zero the balance may go for 24 hours.")
    requests_per_minute: dict[str, int] = Field(description="Requests allowed, by class.")
    identify_in_flight: int = Field(description="Identifications at once.")
    uploads_in_flight: int = Field(
        description="Request bodies being sent at once; short JSON does not count."
    )
    bpm_in_flight: int = Field(description="Requests for tempo worked on at once.")
    embed_in_flight: int = Field(description="Requests for embeddings worked on at once.")
    job_polls_per_second: int = Field(description="Polls of one job.")
    job_polls_at_once: int = Field(description="Polls of one job after a pause.")
    failed_authentications_per_minute: int = Field(description="Failed attempts from one address.")


class TrackAnalysis(Answer):
    """Everything that was found in a track's audio except its embedding."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Musical key; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int = Field(
        description="0 to 100. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: int = Field(
        description="0 to 100. How suitable it is for dancing, by how steady and strong its beat is."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely it is to have no vocals.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="Tags, highest score first.")
    loudness: float = Field(
        description="Integrated loudness in LUFS (ITU-R BS.1770-4): -70 is silence; about -23 is usual in broadcasting, -14 in streaming, -8 in loud pop."
    )
    loudness_range: float = Field(
        description="Loudness range in LU (EBU Tech 3342): between quiet and loud parts."
    )
    true_peak: float = Field(description="Highest peak, also between samples, in dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: float = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    speechiness: int = Field(description="0 to 100. How much of it is speech.")
    liveness: int = Field(
        description="0 to 100. How likely it was recorded in front of an audience."
    )
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check if half or double is right."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and other tempi at which the beats may be counted, most likely first; use `tempo_range` to ask for one of them."
    )
    key_confidence: float = Field(description="How likely this key is among all 24, 0 to 1.")
    attribute_confidence: dict[str, float] = Field(
        description="For each attribute, how likely its value repeats, 0 to 1: that another part of the track, or the track as MP3, faster, slower or equalised, gets a value within 10 of this one. This is not how right the value is. Empty if it is not known."
    )
    models: dict[str, str] = Field(
        description="For each role, the id of the checkpoint that was used; `mood_tags` also come from `embedding` if its networks recognise tags."
    )
    beats: list[float] = Field(description="Time of every beat in seconds, ascending.")
    bars: list[Span] = Field(description="The bars, each from one downbeat to the next.")
    chords: list[TrackChord] = Field(
        description="The chords in order, from the beginning to the end of the track, at least one per bar. Empty for silence, and for tracks analysed before chords were introduced."
    )
    tuning: float = Field(
        description="How far the pitch standard is above 440 Hz, in cents; also 0 if the notes do not agree on one."
    )
    sections: list[TrackSection] = Field(description="The large parts, in order.")
    segments: list[TrackSegment] = Field(description="The stretches of near-constant sound.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class TrackChord(Answer):
    """A chord of a bar, or of some of its beats if the chord changes within the bar."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")
    chord: str = Field(
        description="Its name as MIREX and mir_eval read it: root, quality, and the degree of the bass if that is not the root; `N` if there is no chord."
    )
    root: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Its root; null when there is no chord."
    )
    quality: Literal["maj", "min"] | None = Field(
        description="Major or minor, whatever else the chord has; null when there is no chord."
    )
    bass: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Its lowest note; null when there is no chord."
    )
    confidence: float = Field(description="How likely root and quality are right, 0 to 1.")


class TrackSection(Answer):
    """A large part of the track, such as a verse or a chorus; the sections cover all of it."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")
    confidence: float = Field(description="How clear the boundary at its start is, 0 to 1.")
    loudness: float = Field(description="Mean loudness of the section in LUFS, not gated.")
    tempo: float = Field(description="BPM within the section; 0 when there is no beat.")
    tempo_confidence: float = Field(
        description="How regular and clear the beats of the whole track are, 0 to 1; 0 in silence."
    )
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Key of the section; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    key_confidence: float = Field(description="How well the notes fit that key, 0 to 1.")
    time_signature: int = Field(description="Beats in a bar of the whole track.")


class TrackSegment(Answer):
    """A stretch of near-constant sound: a note, a chord, a drum hit."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")
    confidence: float = Field(description="How clear the onset at its start is, 0 to 1.")
    loudness_start: float = Field(description="Level at its start, dB relative to full scale.")
    loudness_max: float = Field(description="Highest level within it, dB relative to full scale.")
    loudness_max_time: float = Field(description="Seconds from its start to that level.")
    pitches: list[float] = Field(
        description="Strength of the twelve pitch classes from C to B; the strongest is 1."
    )
    timbre: list[float] = Field(description="Twelve coefficients of the spectrum's shape.")


class Usage(Answer):
    """What was used in this period."""

    period: str = Field(description="UTC month.")
    period_ends: datetime = Field(description="When the next period and its grant begin.")
    credits_granted: int = Field(description="Credits of this month's grant, used or not.")
    cache_lookups_used: int = Field(description="Cache hits of this period.")
    cache_lookups_included: int = Field(description="Cache hits that cost nothing in a period.")
    open_jobs: int = Field(description="Jobs that are queued or running.")
    stored_bytes: int = Field(
        description="Bytes of assets that have not expired; the same bytes count once."
    )


class WebhookBody(Answer):
    """The account's webhook (Standard Webhooks)."""

    url: str = Field(description="Where the end of each job is posted.")
    secret: str = Field(description="Messages are signed with it; starts with `whsec_`.")


class EmbeddedFile(Answer):
    """One line of the answer: the vector of a file, or why there is none."""

    name: str = Field(
        description="The file's name in the form, its `asset_id` or its `url`; empty for raw bytes."
    )
    embedding: list[float] | None = Field(
        default=None, description="768 numbers of norm 1, zeros for silence; null if it failed."
    )
    embedding_model: str | None = Field(
        default=None, description="Model that made it; compare only vectors of the same model."
    )
    duration_s: float | None = Field(default=None, description="Length of the audio in seconds.")
    error: Error | None = Field(
        default=None, description="Why there is no vector; the file was not charged."
    )
