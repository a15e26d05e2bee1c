"""The asynchronous client; `clients/generate.py` keeps both clients in step."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, overload
from urllib.parse import quote

import httpx

from afa_client.answers import read
from afa_client.errors import (
    AfaError,
    JobFailedError,
    JobUnfinishedError,
    NoAnswerError,
    error_of,
)
from afa_client.keys import authorization
from afa_client.models import (
    Account,
    AnalysisFeatures,
    AssetListResponse,
    AssetMetadata,
    AssetUpload,
    BatchResponse,
    BeatGridBody,
    Bpm,
    EmbeddedFile,
    FeaturesAnswer,
    Identification,
    JobEnvelope,
    JobList,
    KeyBpm,
    LibraryAdded,
    LibraryAnswer,
    LibraryList,
    LibraryMapBody,
    LibraryTrackBody,
    ListedJob,
    ModelBody,
    ModelList,
    ResolvedTrack,
    SimilarList,
    SpotifyFeatures,
    TrackAnalysis,
    WebhookBody,
)
from afa_client.retries import Retries
from afa_client.uploads import Asset, Audio, Progress, Upload, open_upload

POLL_S = 20.0
"""How long the service may wait before it answers that a job has not ended."""

LATEST_S = 10.0
"""How long after the end of a wait a request may still be sent again."""

TempoRange = tuple[int, int]

TIMEOUT = httpx.Timeout(POLL_S + 40.0, connect=10.0)


class AsyncClient:
    """The asynchronous client of one service and one API key.

    A request that fails for a temporary reason is sent again, after the pause that the service asks
    for. Every POST has an idempotency key, so nothing is done or charged twice.

    Args:
        base_url: Address of the service, such as ``http://127.0.0.1:8000``.
        api_key: An API key of your account.
        retries: How often, and after which pauses, a request is sent again.
        transport: Sends the requests instead of the network; for tests and proxies.

    Raises:
        ValueError: The key is empty, or has characters that no request can carry.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers=authorization(api_key),
            timeout=TIMEOUT,
            transport=transport,
        )
        self._retries = retries or Retries()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def analyze(
        self,
        audio: Audio,
        *,
        include_embedding: bool = False,
        embedding_model: str | None = None,
        tempo_range: TempoRange | None = None,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> JobEnvelope:
        """Submit audio for analysis; `wait` returns its features.

        Args:
            audio: A path, the bytes, an open file, or an uploaded asset.
            include_embedding: Also return the 768-d embedding (tiers pro and scale).
            embedding_model: The model that makes it, if not the one in use; see `models`.
            tempo_range: Lowest and highest BPM to search, from 40 to 250, so that half or double
                the tempo is not chosen.
            progress: Called with the bytes sent so far, and their total.
            idempotency_key: Your own; the same key and request return the same job for a day.
        """
        params: dict[str, Any] = {"include_embedding": True} if include_embedding else {}
        response = await self._post_audio(
            "/v1/audio-features/upload",
            audio,
            progress,
            idempotency_key,
            params=params | _embedding_model(embedding_model) | _tempo_range(tempo_range),
        )
        return read(JobEnvelope, response)

    async def analyze_url(
        self,
        url: str,
        *,
        include_embedding: bool = False,
        embedding_model: str | None = None,
        tempo_range: TempoRange | None = None,
        idempotency_key: str | None = None,
    ) -> JobEnvelope:
        """Submit audio at a public URL for analysis; `wait` returns its features."""
        body = {"url": url, "include_embedding": include_embedding}
        response = await self._send(
            "POST",
            "/v1/audio-features/url",
            params=_embedding_model(embedding_model) | _tempo_range(tempo_range),
            json=body,
            idempotency_key=idempotency_key,
        )
        return read(JobEnvelope, response)

    async def job(self, job_id: str, *, wait_s: float = 0.0) -> JobEnvelope:
        """Return a job as it is now, or as soon as it ends within ``wait_s`` (at most 60)."""
        params = {"wait": wait_s} if wait_s else {}
        response = await self._send("GET", f"/v1/jobs/{_segment(job_id)}", params=params)
        return read(JobEnvelope, response)

    async def jobs(self, *, page_size: int = 50) -> AsyncIterator[ListedJob]:
        """Iterate over your jobs, newest first; pages are fetched as needed."""
        async for page in self._pages("/v1/jobs", {"limit": page_size}):
            for job in read(JobList, page).items:
                yield job

    async def delete_job(self, job_id: str) -> None:
        """Delete a job and its result; a queued job is cancelled and refunded."""
        await self._send("DELETE", f"/v1/jobs/{_segment(job_id)}")

    @overload
    async def wait(
        self, job: JobEnvelope | str, *, timeout_s: float = 600.0, format: None = None
    ) -> AnalysisFeatures: ...
    @overload
    async def wait(
        self, job: JobEnvelope | str, *, timeout_s: float = 600.0, format: Literal["spotify"]
    ) -> SpotifyFeatures: ...
    async def wait(
        self,
        job: JobEnvelope | str,
        *,
        timeout_s: float = 600.0,
        format: Literal["spotify"] | None = None,
    ) -> AnalysisFeatures | SpotifyFeatures:
        """Wait until a job has ended, and return its features.

        Raises:
            JobFailedError: The analysis failed, and was refunded.
            JobUnfinishedError: The job has not ended after ``timeout_s``.
            NoAnswerError: The service did not answer; raised up to 70 s after ``timeout_s``.
        """
        job_id = job if isinstance(job, str) else job.job_id
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = end_s - time.monotonic()
            params = {"wait": max(0.0, min(POLL_S, left_s))} | _format(format)
            path = f"/v1/jobs/{_segment(job_id)}"
            response = await self._send("GET", path, params=params, end_s=end_s + LATEST_S)
            now = read(JobEnvelope, response)
            if now.result is not None:
                return now.result
            if now.error is not None:
                raise JobFailedError(job_id, now.error.error, now.error.message)
            if left_s <= 0:
                raise JobUnfinishedError(f"{job_id} is {now.status} after {timeout_s:g} s")

    @overload
    async def features(self, track_id: str, *, format: None = None) -> FeaturesAnswer: ...
    @overload
    async def features(self, track_id: str, *, format: Literal["spotify"]) -> SpotifyFeatures: ...
    async def features(
        self, track_id: str, *, format: Literal["spotify"] | None = None
    ) -> FeaturesAnswer | SpotifyFeatures:
        """Look up a track by any id: Spotify, MusicBrainz, ISRC, Apple Music, Deezer, YouTube."""
        path = f"/v1/audio-features/{_segment(track_id)}"
        return _features(await self._send("GET", path, params=_format(format)), format)

    @overload
    async def features_by_name(
        self, song: str, artist: str, *, format: None = None
    ) -> FeaturesAnswer: ...
    @overload
    async def features_by_name(
        self, song: str, artist: str, *, format: Literal["spotify"]
    ) -> SpotifyFeatures: ...
    async def features_by_name(
        self, song: str, artist: str, *, format: Literal["spotify"] | None = None
    ) -> FeaturesAnswer | SpotifyFeatures:
        """Look up a track by title and artist."""
        params = {"song": song, "artist": artist} | _format(format)
        return _features(await self._send("GET", "/v1/audio-features", params=params), format)

    async def batch(
        self,
        track_ids: Sequence[str],
        *,
        extended: bool = False,
        format: Literal["spotify"] | None = None,
        idempotency_key: str | None = None,
    ) -> BatchResponse:
        """Look up at most 100 tracks; the answer has their order, and None for unknown ones."""
        response = await self._send(
            "POST",
            "/v1/audio-features",
            params=_format(format),
            json={"ids": list(track_ids), "extended": extended},
            idempotency_key=idempotency_key,
        )
        return read(BatchResponse, response)

    async def key_bpm(self, song: str, artist: str) -> KeyBpm:
        """Return only the tempo and key of a track."""
        params = {"song": song, "artist": artist}
        response = await self._send("GET", "/v1/key-bpm", params=params)
        return read(KeyBpm, response)

    async def resolve(self, track_id: str) -> ResolvedTrack:
        """Return all identifiers of a track."""
        response = await self._send("GET", f"/v1/resolve/{_segment(track_id)}")
        return read(ResolvedTrack, response)

    async def beatgrid(self, track_id: str) -> BeatGridBody:
        """Return the beats and downbeats of a track."""
        response = await self._send("GET", f"/v1/beatgrid/{_segment(track_id)}")
        return read(BeatGridBody, response)

    async def analysis(self, track_id: str) -> TrackAnalysis:
        """Return bars, beats, sections and segments of a track, or of your own job by its id."""
        response = await self._send("GET", f"/v1/analysis/{_segment(track_id)}")
        return read(TrackAnalysis, response)

    async def similar(
        self, track_id: str, *, n: int = 10, filters: Mapping[str, Any] | None = None
    ) -> SimilarList:
        """Return tracks that sound like one; ``filters`` are the route's parameters."""
        params = {"n": n, **(filters or {})}
        response = await self._send("GET", f"/v1/similar/{_segment(track_id)}", params=params)
        return read(SimilarList, response)

    async def similar_to(
        self, wanted: Mapping[str, object], *, idempotency_key: str | None = None
    ) -> SimilarList:
        """Return tracks that sound like several, or like an embedding.

        Args:
            wanted: ``seeds`` (each an ``id`` or ``asset_id``, and a ``weight``) and ``unlike``, or
                an ``embedding`` and its ``model``; also ``n`` and the filters.
            idempotency_key: Your own; a repeat with the same key is free.
        """
        response = await self._send(
            "POST",
            "/v1/similar",
            json=dict(wanted),
            idempotency_key=idempotency_key,
        )
        return read(SimilarList, response)

    async def similar_to_text(
        self, text: str, *, n: int = 10, filters: Mapping[str, Any] | None = None
    ) -> SimilarList:
        """Return tracks that match a description, if the service has a model that reads text."""
        params = {"text": text, "n": n, **(filters or {})}
        response = await self._send("GET", "/v1/similar", params=params)
        return read(SimilarList, response)

    async def embed(
        self,
        files: Sequence[Asset | str],
        *,
        embedding_model: str | None = None,
        idempotency_key: str | None = None,
    ) -> list[EmbeddedFile]:
        """Return only the embeddings of up to 32 files, in their order.

        Args:
            files: Uploaded assets and public URLs.
            embedding_model: The model that makes them, if not the one in use.
            idempotency_key: Your own; a repeat with the same key is free.
        """
        named = [
            {"url": file} if isinstance(file, str) else {"asset_id": file.asset_id}
            for file in files
        ]
        response = await self._send(
            "POST",
            "/v1/embed",
            params=_embedding_model(embedding_model),
            json={"files": named},
            idempotency_key=idempotency_key,
        )
        return [read(EmbeddedFile, response, line) for line in response.content.splitlines()]

    async def models(self) -> list[ModelBody]:
        """Return the models that the service knows."""
        response = await self._send("GET", "/v1/models")
        return read(ModelList, response).items

    async def path(self, start: str, end: str, *, n: int = 10) -> SimilarList:
        """Return up to ``n`` tracks that lead from one track to another, both included."""
        params = {"from": start, "to": end, "n": n}
        response = await self._send("GET", "/v1/path", params=params)
        return read(SimilarList, response)

    async def bpm(
        self,
        audio: Audio,
        *,
        tempo_range: TempoRange | None = None,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> Bpm:
        """Return the tempo of audio at once, without a job."""
        params = _tempo_range(tempo_range)
        response = await self._post_audio(
            "/v1/bpm", audio, progress, idempotency_key, params=params
        )
        return read(Bpm, response)

    async def identify(
        self,
        audio: Audio,
        *,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> Identification:
        """Identify a recording from three seconds or more of it."""
        response = await self._post_audio(
            "/v1/identify", audio, progress, idempotency_key, is_form=True
        )
        return read(Identification, response)

    async def upload_asset(
        self,
        audio: Audio,
        *,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> AssetUpload:
        """Store audio for a day (a week on pro and scale), so you need not send it again."""
        response = await self._post_audio("/v1/assets/upload", audio, progress, idempotency_key)
        return read(AssetUpload, response)

    async def asset(self, asset_id: str) -> AssetMetadata:
        """Return the metadata of one of your assets."""
        response = await self._send("GET", f"/v1/assets/{_segment(asset_id)}")
        return read(AssetMetadata, response)

    async def assets(self, *, page_size: int = 50) -> AsyncIterator[AssetMetadata]:
        """Iterate over all your assets, newest first; pages are fetched as needed."""
        async for page in self._pages("/v1/assets", {"limit": page_size}):
            for asset in read(AssetListResponse, page).items:
                yield asset

    async def delete_asset(self, asset_id: str) -> None:
        """Delete one of your assets."""
        await self._send("DELETE", f"/v1/assets/{_segment(asset_id)}")

    async def library(
        self,
        *,
        q: str = "",
        tempo_min: float | None = None,
        tempo_max: float | None = None,
        year_min: int | None = None,
        year_max: int | None = None,
        energy_min: int | None = None,
        energy_max: int | None = None,
        key: Sequence[str] = (),
        tag: Sequence[str] = (),
        sort: str = "-added",
        page_size: int = 50,
    ) -> AsyncIterator[LibraryTrackBody]:
        """Iterate over your tracks and the operator's in the library.

        Args:
            q: Words from artist, title, album or tags; all must match.
            tempo_min: Lowest BPM.
            tempo_max: Highest BPM.
            year_min: Earliest year of release.
            year_max: Latest year of release.
            energy_min: Lowest energy, 0 to 100.
            energy_max: Highest energy, 0 to 100.
            key: Camelot names; a track needs one of them.
            tag: Tags; a track needs all of them.
            sort: ``added``, ``name``, ``tempo``, ``key`` or ``energy``; with ``-`` descending.
            page_size: Tracks to fetch at once.
        """
        bounds = {
            "tempo_min": tempo_min,
            "tempo_max": tempo_max,
            "year_min": year_min,
            "year_max": year_max,
            "energy_min": energy_min,
            "energy_max": energy_max,
        }
        params: dict[str, Any] = {
            name: value for name, value in bounds.items() if value is not None
        }
        params |= {"q": q, "key": list(key), "tag": list(tag), "sort": sort, "limit": page_size}
        async for page in self._pages("/v1/library", params):
            for track in read(LibraryList, page).items:
                yield track

    async def library_map(self) -> LibraryMapBody:
        """Return your library as a map, on which tracks that sound alike are close together."""
        response = await self._send("GET", "/v1/library/map")
        return read(LibraryMapBody, response)

    async def export(
        self,
        format: Literal["csv", "rekordbox"],
        tracks: Sequence[str] | Mapping[str, str],
        *,
        key_format: Literal["classic", "camelot", "openkey"] = "classic",
    ) -> bytes:
        """Return tracks as a file for spreadsheets or DJ programs.

        Args:
            format: ``rekordbox`` is XML with beat grids.
            tracks: Ids of library tracks and of your jobs; or a mapping of these ids to the paths
                of the files, by which rekordbox finds them.
            key_format: How rekordbox shows keys.
        """
        places = tracks if isinstance(tracks, Mapping) else dict.fromkeys(tracks)
        items = [{"id": one, "location": place} for one, place in places.items()]
        body = {"format": format, "tracks": items, "key_format": key_format}
        response = await self._send("POST", "/v1/export", json=body)
        return response.content

    async def library_track(self, track_id: str) -> LibraryAnswer:
        """Return a track of the library."""
        response = await self._send("GET", f"/v1/library/{_segment(track_id)}")
        return read(LibraryAnswer, response)

    async def library_cover(self, track_id: str) -> bytes:
        """Return the picture in the tags of a track's file: JPEG, PNG or WebP."""
        response = await self._send("GET", f"/v1/library/{_segment(track_id)}/cover")
        return response.content

    async def add_to_library(
        self,
        audio: Asset | str,
        *,
        ids: Sequence[str] = (),
        artist: str | None = None,
        title: str | None = None,
        album: str | None = None,
        year: int | None = None,
        tags: Sequence[str] = (),
        tempo_range: TempoRange | None = None,
        idempotency_key: str | None = None,
    ) -> LibraryAdded:
        """Add a track from an uploaded asset or a public URL, with what you know about it.

        A job analyses it; pass the job's id to `wait`.
        """
        place = {"url": audio} if isinstance(audio, str) else {"asset_id": audio.asset_id}
        said = {"artist": artist, "title": title, "album": album, "year": year}
        response = await self._send(
            "POST",
            "/v1/library",
            params=_tempo_range(tempo_range),
            json=place | said | {"ids": list(ids), "tags": list(tags)},
            idempotency_key=idempotency_key,
        )
        return read(LibraryAdded, response)

    async def change_library_track(
        self, track_id: str, changes: Mapping[str, object]
    ) -> LibraryAnswer:
        """Change what is known about a track: omitted fields stay, None clears a field.

        Args:
            track_id: The id in the library's listing.
            changes: ``artist``, ``title``, ``album``, ``year``, ``tags``; ``ids`` are added.
        """
        response = await self._send(
            "PATCH", f"/v1/library/{_segment(track_id)}", json=dict(changes)
        )
        return read(LibraryAnswer, response)

    async def remove_from_library(self, track_id: str) -> None:
        """Delete a track and its analysis."""
        await self._send("DELETE", f"/v1/library/{_segment(track_id)}")

    async def account(self) -> Account:
        """Return balance, usage and limits."""
        response = await self._send("GET", "/v1/account")
        return read(Account, response)

    async def webhook(self) -> WebhookBody:
        """Return the URL to which the ends of jobs are posted, and its secret."""
        response = await self._send("GET", "/v1/account/webhook")
        return read(WebhookBody, response)

    async def set_webhook(self, url: str) -> WebhookBody:
        """Have the end of every job posted to a URL; `verify_webhook` reads the messages."""
        response = await self._send("PUT", "/v1/account/webhook", json={"url": url})
        return read(WebhookBody, response)

    async def delete_webhook(self) -> None:
        """Remove the webhook; nothing is posted any longer."""
        await self._send("DELETE", "/v1/account/webhook")

    async def _pages(self, path: str, params: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        cursor: dict[str, str] = {}
        while True:
            page = await self._send("GET", path, params={**params, **cursor})
            yield page
            if (following := page.json()["next_cursor"]) is None:
                return
            cursor = {"cursor": following}

    async def _post_audio(
        self,
        path: str,
        audio: Audio,
        progress: Progress | None,
        idempotency_key: str | None,
        *,
        params: Mapping[str, Any] | None = None,
        is_form: bool = False,
    ) -> httpx.Response:
        if isinstance(audio, Asset):
            body = {"asset_id": audio.asset_id}
            return await self._send(
                "POST", path, params=params, json=body, idempotency_key=idempotency_key
            )
        with open_upload(audio, progress) as upload:
            return await self._send(
                "POST",
                path,
                params=params,
                upload=upload,
                is_form=is_form,
                idempotency_key=idempotency_key,
            )

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: object = None,
        upload: Upload | None = None,
        is_form: bool = False,
        idempotency_key: str | None = None,
        end_s: float = math.inf,
    ) -> httpx.Response:
        headers = {}
        if method == "POST":
            headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
        attempt = 0
        while True:
            body: dict[str, Any] = {} if json is None else {"json": json}
            if upload is not None:
                body = _body(upload, is_form=is_form)
                headers |= {} if is_form else upload.headers
            try:
                response = await self._http.request(
                    method, path, params=params, headers=headers, **body
                )
            except httpx.RequestError as fault:
                failure: AfaError = NoAnswerError(f"no answer: {fault or type(fault).__name__}")
                failure.__cause__ = fault
            else:
                if response.is_success:
                    return response
                failure = error_of(response)
            pause_s = self._retries.pause_s(attempt, failure)
            if pause_s is None or time.monotonic() + pause_s > end_s:
                raise failure
            await asyncio.sleep(pause_s)
            attempt += 1


def _body(upload: Upload, *, is_form: bool) -> dict[str, Any]:
    upload.rewind()
    if is_form:
        return {"files": {"file": (upload.name, upload, upload.media_type)}}
    return {"content": _chunks(upload)}


async def _chunks(upload: Upload) -> AsyncIterator[bytes]:
    while chunk := upload.read():
        yield chunk


def _segment(text: str) -> str:
    """Write an id as one segment of a path, whatever characters it has.

    Raises:
        ValueError: It would lead to another path: it is empty, ``.`` or ``..``.
    """
    if text in {"", ".", ".."}:
        raise ValueError(f"no id: {text!r}")
    return quote(text, safe="")


def _embedding_model(model_id: str | None) -> dict[str, str]:
    return {"embedding_model": model_id} if model_id else {}


def _tempo_range(bpm: TempoRange | None) -> dict[str, str]:
    return {} if bpm is None else {"tempo_range": f"{bpm[0]}-{bpm[1]}"}


def _format(format: Literal["spotify"] | None) -> dict[str, Any]:
    return {} if format is None else {"format": format}


def _features(
    response: httpx.Response, format: Literal["spotify"] | None
) -> FeaturesAnswer | SpotifyFeatures:
    if format is None:
        return read(FeaturesAnswer, response)
    return read(SpotifyFeatures, response)
