"""What the service answers; written by `make clients` from its OpenAPI document."""

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
    key_id: str = Field(description="Id of the API key, which is no secret.")
    is_test: bool = Field(description="A test key: simulated answers and credits.")
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
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
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
        description="0 to 100. How well it suits dancing, by the steadiness and stress of its beat."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely there are no vocals.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="By falling score.")
    loudness: float = Field(
        description="Integrated loudness, LUFS (ITU-R BS.1770-4): -70 silence, about -23 broadcast, -14 streaming, -8 loud pop."
    )
    loudness_range: float = Field(
        description="Loudness range, LU (EBU Tech 3342): quiet parts against loud ones."
    )
    true_peak: float = Field(description="Highest peak between samples too, dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: float = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    speechiness: int = Field(description="0 to 100. How much of it is spoken words.")
    liveness: int = Field(description="0 to 100. How likely it was recorded before an audience.")
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check whether half or double is meant."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and what else the beats may be counted in, the likeliest first; `tempo_range` asks for one of them."
    )
    key_confidence: float = Field(
        description="How much better this key fits the notes than the next best, 0 to 1."
    )
    attribute_confidence: dict[str, float] = Field(
        description="Attribute to how likely it repeats, 0 to 1: that another part of the track, or the track as MP3, faster, slower or equalised, gets a value within 10 of this one. Not how right it is. Empty where it is not known."
    )
    models: dict[str, str] = Field(
        description="Role to id of the checkpoint that made it; `mood_tags` are also of `embedding`, where its networks tell tags."
    )
    beats: list[float] = Field(description="Seconds of every beat.")
    downbeats: list[float] = Field(description="Seconds of the first beat of every bar.")
    embedding: list[float] | None = Field(
        default=None,
        description="768 floats, L2-normalised; only when `include_embedding` was set.",
    )
    embedding_model: str | None = Field(
        default=None, description="Compare embeddings of the same model only."
    )


class AssetListResponse(Answer):
    """One page of assets, newest first."""

    items: list[AssetMetadata] = Field(description="Assets that have not expired.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(description="Number of items in this page.")


class AssetMetadata(Answer):
    """What is known of an asset."""

    asset_id: str = Field(description="Name of the asset; send it in place of the audio.")
    sha256: str = Field(description="Hex SHA-256 of the stored bytes.")
    size_bytes: int = Field(description="Size of the stored file in bytes.")
    expires_at: datetime = Field(description="When the asset is deleted.")
    content_type: str = Field(description="MIME type of the uploaded file.")
    created_at: datetime = Field(description="When it was uploaded first.")


class AssetUpload(Answer):
    """A stored asset."""

    asset_id: str = Field(description="Name of the asset; send it in place of the audio.")
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
    cap_minor: int = Field(description="Most that a UTC month's charges come to.")
    spent_minor: int = Field(description="This month's charges, with the one under way.")


class BatchResponse(Answer):
    """Features of many tracks, in the order of the request."""

    audio_features: list[
        ExtendedSpotifyFeatures | SpotifyFeatures | ExtendedFeatures | Features | None
    ] = Field(description="null where an ID could not be resolved; such slots are not charged.")
    reasons: dict[str, str] | None = Field(
        default=None,
        description="With `extended`: id of each null slot to an error code, such as `track_not_found` or `tier_required`.",
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class BeatGridBody(Answer):
    """Where the beats of a track are."""

    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
    )
    downbeat: float = Field(description="Seconds of the first downbeat.")
    beats: list[float] = Field(description="Seconds of every beat.")
    downbeats: list[float] = Field(description="Seconds of the first beat of every bar.")
    tempo_source: str = Field(
        description="`verified`: a person checked the tempo, and the grid follows it; `computed`: from the audio."
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class Bpm(Answer):
    """The tempo of the audio that was sent."""

    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
    )
    confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check whether half or double is meant."
    )
    asset_id: str | None = Field(
        default=None, description="The asset used; only when one was named."
    )
    asset_expires_at: datetime | None = Field(
        default=None, description="Only when an asset was named."
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class Credits(Answer):
    """The account's credits."""

    remaining: int = Field(description="Grant plus packs minus debt; negative inside the grace.")
    monthly_grant: int = Field(description="Left of this month's grant.")
    packs: int = Field(description="Prepaid; never expire.")
    debt: int = Field(description="Used of the grace buffer.")
    held: int = Field(description="Set aside for what runs now; not part of the others.")


class EnrichmentBody(Answer):
    """What is known of an identified track; fields that nobody knows are left out."""

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
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
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
        description="0 to 100. How well it suits dancing, by the steadiness and stress of its beat."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely there are no vocals.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="By falling score.")
    loudness: float = Field(
        description="Integrated loudness, LUFS (ITU-R BS.1770-4): -70 silence, about -23 broadcast, -14 streaming, -8 loud pop."
    )
    loudness_range: float = Field(
        description="Loudness range, LU (EBU Tech 3342): quiet parts against loud ones."
    )
    true_peak: float = Field(description="Highest peak between samples too, dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: float = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    speechiness: int = Field(description="0 to 100. How much of it is spoken words.")
    liveness: int = Field(description="0 to 100. How likely it was recorded before an audience.")
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check whether half or double is meant."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and what else the beats may be counted in, the likeliest first; `tempo_range` asks for one of them."
    )
    key_confidence: float = Field(
        description="How much better this key fits the notes than the next best, 0 to 1."
    )
    attribute_confidence: dict[str, float] = Field(
        description="Attribute to how likely it repeats, 0 to 1: that another part of the track, or the track as MP3, faster, slower or equalised, gets a value within 10 of this one. Not how right it is. Empty where it is not known."
    )
    models: dict[str, str] = Field(
        description="Role to id of the checkpoint that made it; `mood_tags` are also of `embedding`, where its networks tell tags."
    )


class ExtendedSpotifyFeatures(Answer):
    """Audio features in Spotify's shape with the service's own fields."""

    id: str = Field(description="The id that was asked for; of an upload its job's.")
    type: Literal["audio_features"] = Field(
        default="audio_features", description="Always the same."
    )
    uri: str = Field(description="The same id as `afa:track:<id>`.")
    track_href: str = Field(description="Address of the track's identifiers.")
    analysis_url: str = Field(description="Address of the audio analysis.")
    key: int = Field(description="Pitch class, C = 0; -1 unknown.")
    mode: Literal[-1, 0, 1] = Field(description="1 major, 0 minor, -1 unknown.")
    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
    )
    loudness: float = Field(
        description="Integrated loudness, LUFS (ITU-R BS.1770-4): -70 silence, about -23 broadcast, -14 streaming, -8 loud pop."
    )
    time_signature: int = Field(description="Beats in a bar, 3 to 7.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    energy: float = Field(
        description="0 to 1. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: float = Field(
        description="0 to 1. How well it suits dancing, by the steadiness and stress of its beat."
    )
    valence: float = Field(
        description="0 to 1. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: float = Field(
        description="0 to 1. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: float = Field(description="0 to 1. How likely there are no vocals.")
    speechiness: float = Field(description="0 to 1. How much of it is spoken words.")
    liveness: float = Field(description="0 to 1. How likely it was recorded before an audience.")
    embedding: list[float] | None = Field(
        default=None, description="768 floats; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        default=None, description="Compare embeddings of the same model only."
    )
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="By falling score.")
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check whether half or double is meant."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and what else the beats may be counted in, the likeliest first."
    )
    key_confidence: float = Field(
        description="How much better this key fits the notes than the next best, 0 to 1."
    )
    models: dict[str, str] = Field(
        description="Role to id of the checkpoint that made it; `mood_tags` are also of `embedding`, where its networks tell tags."
    )


class Features(Answer):
    """Audio features in the canonical shape."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
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
        description="0 to 100. How well it suits dancing, by the steadiness and stress of its beat."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely there are no vocals.")


class FeaturesAnswer(Answer):
    """Audio features in the canonical shape."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
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
        description="0 to 100. How well it suits dancing, by the steadiness and stress of its beat."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely there are no vocals.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class Identification(Answer):
    """Who a recording is; fields that nobody knows are left out."""

    matched: bool = Field(description="Whether the track was identified.")
    artist: str | None = Field(default=None, description="Present when matched.")
    title: str | None = Field(default=None, description="Present when matched.")
    album: str | None = Field(default=None, description="Album or single it is on.")
    year: str | None = Field(default=None, description="Year of that release.")
    isrc: str | None = Field(default=None, description="International Standard Recording Code.")
    confidence: int = Field(
        default=0, description="How sure the match is, 0 to 100; 0 when unmatched."
    )
    source_service: str | None = Field(
        default=None, description="Which service produced the match."
    )
    services_tried: dict[str, Literal["match", "no_match", "error", "skipped"]] = Field(
        description="Every service of the cascade, in order."
    )
    enrichment: EnrichmentBody | None = Field(default=None, description="Null when unmatched.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class JobEnvelope(Answer):
    """An analysis job."""

    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="`complete` and `failed` are final."
    )
    job_id: str = Field(description="Poll `GET /v1/jobs/{job_id}` with it.")
    result: AnalysisFeatures | SpotifyFeatures | None = Field(
        default=None, description="Filled when `status` is `complete`."
    )
    error: Error | None = Field(default=None, description="Filled when `status` is `failed`.")
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
    """`Meta` of a job: also how far it is."""

    cache: Literal["hit", "miss", "bypass"] = Field(
        description="Whether the response came from cache."
    )
    latency_ms: int = Field(description="Processing time in milliseconds.")
    credits_used: int = Field(description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative inside the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")
    test: bool = Field(
        default=False,
        description="True, and only there, when a test key asked: the answer is made up from the request alone, and nothing was computed.",
    )
    progress: float = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.")


class KeyBpm(Answer):
    """Tempo and key alone."""

    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
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
    """Where the audio of an own track is."""

    place: Literal["path", "asset", "url"] = Field(description="What `location` is.")
    location: str = Field(description="Path, asset id or address.")
    missing_since: datetime | None = Field(description="When it was first gone; null if there.")


class LibraryList(Answer):
    """One page of tracks, in the order that was asked for."""

    items: list[LibraryTrackBody] = Field(description="Tracks that the query asks for.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(description="Number of items in this page.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class LibraryMapBody(Answer):
    """The library on a plane: its embeddings along the two directions in which they differ most."""

    model: str | None = Field(
        description="Whose embeddings they are: the model that most tracks have one of; null where no track has."
    )
    items: list[MappedTrackBody] = Field(description="At most 2,000; of more, an even sample.")
    total: int = Field(description="Tracks that have such an embedding, shown or not.")
    variance_shown: float = Field(
        description="How much of the embeddings' variance the plane shows: with less, tracks that lie together may still sound different."
    )
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class LibraryTrackBody(Answer):
    """A track of the library."""

    id: str = Field(description="Every look-up takes it.")
    shared: bool = Field(description="Whether it is the operator's, which every key sees.")
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
    tags: list[str] = Field(description="The owner's.")
    files: list[LibraryFile] = Field(description="Of an own track; empty for the operator's.")
    sources: dict[str, str] = Field(description="Field to who said so.")
    added_at: datetime | None = Field(description="When it was added.")
    changed_at: datetime | None = Field(description="When anything of it changed last.")
    analysed_at: datetime | None = Field(description="When it was analysed; null before.")


class ListedJob(Answer):
    """A job without its result."""

    job_id: str = Field(description="Poll `GET /v1/jobs/{job_id}` with it.")
    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="`complete` and `failed` are final."
    )
    progress: float = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.")
    credits_used: int = Field(description="Reserved while it is unfinished, then charged.")
    error: Error | None = Field(description="Why it failed; null otherwise.")
    created_at: datetime = Field(description="When it was submitted.")
    finished_at: datetime | None = Field(description="When it ended; null before.")


class MappedTrackBody(Answer):
    """A track and where it lies on the map; tracks that sound alike lie together."""

    id: str = Field(description="Every look-up takes it.")
    x: float = Field(description="To the right.")
    y: float = Field(description="Upwards.")
    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float | None = Field(description="BPM.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: int | None = Field(description="0 to 100.")


class Meta(Answer):
    """How the request was served."""

    cache: Literal["hit", "miss", "bypass"] = Field(
        description="Whether the response came from cache."
    )
    latency_ms: int = Field(description="Processing time in milliseconds.")
    credits_used: int = Field(description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative inside the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")
    test: bool = Field(
        default=False,
        description="True, and only there, when a test key asked: the answer is made up from the request alone, and nothing was computed.",
    )


class ModelBody(Answer):
    """A checkpoint that this service knows."""

    id: str = Field(description="Its name in requests and results.")
    role: str = Field(description="`embedding`, `tags`, `attributes`, `key` or `beats`.")
    in_use: bool = Field(description="Whether it answers where a request names no other.")
    may_be_named: bool = Field(
        description="Whether `embedding_model` may name it: it is an embedding, here, and fits."
    )
    reads_text: bool = Field(
        description="Whether `GET /v1/similar?text=` compares words with its vectors."
    )
    dimension: int | None = Field(
        description="Of its embedding, before it is padded to 768; null where it makes none."
    )
    licence: str = Field(description="SPDX id of the licence of its weights.")
    commercial_use: bool = Field(description="Whether a paid service may use it.")
    attribution: str = Field(description="Whom to name.")
    trained_on: str | None = Field(description="What it learnt from; null where unknown.")
    notes: str = Field(description="Known limits.")


class ModelList(Answer):
    """All checkpoints that this service knows."""

    items: list[ModelBody] = Field(description="Every one of them.")


class MoodTagBody(Answer):
    """A tag and its calibrated score."""

    tag: str = Field(description="A word in lower case.")
    kind: Literal["genre", "mood", "instrument", "voice", "era", "sound"] = Field(
        description="What it is a word for; `sound` is pace, loudness and what an audience does."
    )
    score: float = Field(
        description="0 to 1, comparable between tags; from .6 on a tag is strong. A strong voice is right in 9 of 10; strong genres and instruments are guesses."
    )


class ResolvedTrack(Answer):
    """One track's identifiers on every platform; null where unknown."""

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
    """The tracks that were found; similar ones nearest first, compared with the first seed."""

    model: str = Field(description="Whose vectors were compared.")
    items: list[SimilarTrack] = Field(description="The tracks, nearest first.")
    meta: Meta = Field(alias="_meta", description="What the answer cost, and how it came.")


class SimilarTrack(Answer):
    """A track, and what it has of the one it is compared with."""

    track: LibraryTrackBody = Field(description="The track, as the library knows it.")
    distance: float = Field(description="Cosine distance: 0 sounds the same.")
    shared_tags: list[str] = Field(description="Tags that both have.")
    key_relation: (
        Literal["same", "relative", "fifth up", "fifth down", "diagonal", "parallel", "distant"]
        | None
    ) = Field(description="`relative` shares all notes; null where a key is unknown.")
    tempo_ratio: float | None = Field(
        description="Its tempo over the other's; null where one is unknown."
    )


class Span(Answer):
    """A stretch of the track."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")


class SpotifyFeatures(Answer):
    """Audio features in Spotify's shape."""

    id: str = Field(description="The id that was asked for; of an upload its job's.")
    type: Literal["audio_features"] = Field(
        default="audio_features", description="Always the same."
    )
    uri: str = Field(description="The same id as `afa:track:<id>`.")
    track_href: str = Field(description="Address of the track's identifiers.")
    analysis_url: str = Field(description="Address of the audio analysis.")
    key: int = Field(description="Pitch class, C = 0; -1 unknown.")
    mode: Literal[-1, 0, 1] = Field(description="1 major, 0 minor, -1 unknown.")
    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
    )
    loudness: float = Field(
        description="Integrated loudness, LUFS (ITU-R BS.1770-4): -70 silence, about -23 broadcast, -14 streaming, -8 loud pop."
    )
    time_signature: int = Field(description="Beats in a bar, 3 to 7.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    energy: float = Field(
        description="0 to 1. How intense it sounds: low is calm, high is fast, dense and loud."
    )
    danceability: float = Field(
        description="0 to 1. How well it suits dancing, by the steadiness and stress of its beat."
    )
    valence: float = Field(
        description="0 to 1. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: float = Field(
        description="0 to 1. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: float = Field(description="0 to 1. How likely there are no vocals.")
    speechiness: float = Field(description="0 to 1. How much of it is spoken words.")
    liveness: float = Field(description="0 to 1. How likely it was recorded before an audience.")
    embedding: list[float] | None = Field(
        default=None, description="768 floats; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        default=None, description="Compare embeddings of the same model only."
    )


class TempoAlternativeBody(Answer):
    """Another tempo that the beats may be counted in."""

    tempo: float = Field(description="BPM.")
    score: float = Field(description="Its probability; with those of `tempo` and the others, 1.")


class TierLimits(Answer):
    """What the tier allows."""

    upload_bytes: int = Field(description="Largest upload.")
    asset_lifetime_s: int = Field(description="Seconds until an asset is deleted.")
    storage_bytes: int = Field(description="Most that all assets may have together.")
    max_audio_s: int = Field(description="Longest audio, seconds.")
    gpu: bool = Field(description="Whether full analysis is included.")
    embedding: bool = Field(description="Whether `include_embedding` is included.")
    grace_credits: int = Field(description="How far below zero the balance may go for 24 hours.")
    requests_per_minute: dict[str, int] = Field(description="By class of request.")
    identify_in_flight: int = Field(description="Identifications at once.")
    uploads_in_flight: int = Field(
        description="Bodies on their way at once; short JSON does not count."
    )
    bpm_in_flight: int = Field(description="Tempi found at once.")
    embed_in_flight: int = Field(description="Requests for embeddings worked on at once.")
    job_polls_per_second: int = Field(description="Of one job.")
    job_polls_at_once: int = Field(description="Of one job, after a pause.")
    failed_authentications_per_minute: int = Field(description="From one address.")


class TrackAnalysis(Answer):
    """Everything that was found in a track's audio but its embedding."""

    artist: str = Field(description="Name of the artist; empty when unknown.")
    title: str = Field(description="Title of the track; empty when unknown.")
    tempo: float = Field(
        description="Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
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
        description="0 to 100. How well it suits dancing, by the steadiness and stress of its beat."
    )
    happiness: int = Field(
        description="0 to 100. How positive it sounds: low is sad or angry, high is happy."
    )
    acousticness: int = Field(
        description="0 to 100. How likely the instruments are acoustic, not electric or electronic."
    )
    instrumentalness: int = Field(description="0 to 100. How likely there are no vocals.")
    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="By falling score.")
    loudness: float = Field(
        description="Integrated loudness, LUFS (ITU-R BS.1770-4): -70 silence, about -23 broadcast, -14 streaming, -8 loud pop."
    )
    loudness_range: float = Field(
        description="Loudness range, LU (EBU Tech 3342): quiet parts against loud ones."
    )
    true_peak: float = Field(description="Highest peak between samples too, dBTP (BS.1770-4).")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    time_signature_confidence: float = Field(description="How clear the metre is, 0 to 1.")
    duration_ms: int = Field(description="Length of the decoded audio in milliseconds.")
    speechiness: int = Field(description="0 to 100. How much of it is spoken words.")
    liveness: int = Field(description="0 to 100. How likely it was recorded before an audience.")
    tempo_confidence: float = Field(
        description="How regular and clear the beats are, 0 to 1. Below .5, check whether half or double is meant."
    )
    tempo_alternatives: list[TempoAlternativeBody] = Field(
        description="Half, double and what else the beats may be counted in, the likeliest first; `tempo_range` asks for one of them."
    )
    key_confidence: float = Field(
        description="How much better this key fits the notes than the next best, 0 to 1."
    )
    attribute_confidence: dict[str, float] = Field(
        description="Attribute to how likely it repeats, 0 to 1: that another part of the track, or the track as MP3, faster, slower or equalised, gets a value within 10 of this one. Not how right it is. Empty where it is not known."
    )
    models: dict[str, str] = Field(
        description="Role to id of the checkpoint that made it; `mood_tags` are also of `embedding`, where its networks tell tags."
    )
    beats: list[float] = Field(description="Seconds of every beat, ascending.")
    bars: list[Span] = Field(description="The bars, each from a first beat to the next.")
    chords: list[TrackChord] = Field(
        description="The chords, in order, from the beginning to the end of the track: at least one of every bar. Empty for silence, and for what was analysed before there were chords."
    )
    tuning: float = Field(
        description="How far the pitch standard lies above 440 Hz, cents; 0 also where the notes do not agree on one."
    )
    sections: list[TrackSection] = Field(description="The large parts, in order.")
    segments: list[TrackSegment] = Field(description="The stretches of near-constant sound.")
    meta: Meta = Field(alias="_meta", description="How the request was served, and what it cost.")


class TrackChord(Answer):
    """A chord of a bar, or of some beats of it where the chord changes inside."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")
    chord: str = Field(
        description="Its name as MIREX and mir_eval read it: root, quality, and the degree of the bass where that is not the root; `N` where there is no chord."
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
    loudness: float = Field(description="Mean level of the section, dB relative to full scale.")
    tempo: float = Field(description="BPM within the section; 0 when there is no beat.")
    tempo_confidence: float = Field(description="How regular the section's beats are, 0 to 1.")
    key: Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"] | None = Field(
        description="Key of the section; null when there is none."
    )
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    key_confidence: float = Field(description="How well the notes fit that key, 0 to 1.")
    time_signature: int = Field(description="Beats in a bar of the section.")


class TrackSegment(Answer):
    """A stretch of near-constant sound: a note, a chord, a stroke of a drum."""

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
    stored_bytes: int = Field(description="Of the assets that live; the same bytes count once.")


class WebhookBody(Answer):
    """The account's webhook (Standard Webhooks)."""

    url: str = Field(description="Where the end of each job is posted to.")
    secret: str = Field(description="Messages are signed with it; starts with `whsec_`.")


class EmbeddedFile(Answer):
    """One line of the answer: the vector of a file, or why there is none."""

    name: str = Field(
        description="The file's name in the form, its `asset_id` or its `url`; empty for raw bytes."
    )
    embedding: list[float] | None = Field(
        default=None, description="768 numbers of norm 1, zeros for silence; null where it failed."
    )
    embedding_model: str | None = Field(
        default=None, description="Who made it: only vectors of one model can be compared."
    )
    duration_s: float | None = Field(default=None, description="Of the audio, in seconds.")
    error: Error | None = Field(
        default=None, description="Why there is no vector; the file was not charged."
    )
