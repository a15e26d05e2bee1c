"""Tools that the service answers, over its HTTP API."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from serve_app.api.wire.features import AnalysisFeatures, Features
from serve_app.api.wire.identification import Identification
from serve_app.api.wire.library import LibraryList, LibraryTrackBody
from serve_app.api.wire.similar import Filters, SimilarList, SimilarTrack
from serve_app.cli.mcp.answers import Identified, UnansweredError
from serve_app.library.query import TrackQuery

WAIT_S = 30
TIMEOUT_S = 2.0 * WAIT_S
BYTES = {"Content-Type": "application/octet-stream"}


class ServiceBackend:
    """See `serve_app.cli.mcp.server.Backend`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        """Take a client with the service's address and a key."""
        self._http = http

    async def analyse(self, path: Path) -> AnalysisFeatures:
        """Submit a file and wait for its job."""
        job = await self._send("/v1/audio-features/upload", path, params={"wait": WAIT_S})
        while job["status"] in ("queued", "running"):
            job = await self._ask("GET", f"/v1/jobs/{job['job_id']}", params={"wait": WAIT_S})
        if job["status"] == "failed":
            raise UnansweredError(job["error"]["message"])
        return AnalysisFeatures.model_validate(job["result"])

    async def look_up(self, track_id: str) -> Features:
        """Return the features of a track by its id."""
        return Features(**await self._ask("GET", f"/v1/audio-features/{quote(track_id, safe='')}"))

    async def look_up_name(self, artist: str, title: str) -> Features:
        """Return the features of a track by its names."""
        names = {"artist": artist, "song": title}
        return Features(**await self._ask("GET", "/v1/audio-features", params=names))

    async def similar(self, track_id: str, filters: Filters) -> list[SimilarTrack]:
        """Find tracks that sound like one."""
        path = f"/v1/similar/{quote(track_id, safe='')}"
        params = filters.model_dump(exclude_defaults=True)
        return SimilarList(**await self._ask("GET", path, params=params)).items

    async def identify(self, path: Path) -> Identified:
        """Return which track a recording is."""
        found = Identification(**await self._send("/v1/identify", path))
        return Identified(**found.model_dump(include=set(Identified.model_fields)))

    async def search(self, query: TrackQuery, limit: int) -> list[LibraryTrackBody]:
        """Find tracks of the library."""
        params: dict[str, Any] = {
            "q": query.text,
            "tempo_min": query.tempo_min,
            "tempo_max": query.tempo_max,
            "key": query.keys,
            "tag": query.tags,
            "limit": limit,
        }
        asked = {name: value for name, value in params.items() if value not in (None, "", ())}
        return LibraryList(**await self._ask("GET", "/v1/library", params=asked)).items

    async def _send(self, route: str, path: Path, **sent: Any) -> dict[str, Any]:
        audio = await asyncio.to_thread(path.read_bytes)
        # With this type, a file that is not audio is refused for that, not for its Content-Type.
        return await self._ask("POST", route, content=audio, headers=BYTES, **sent)

    async def _ask(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        try:
            answer = await self._http.request(method, path, timeout=TIMEOUT_S, **sent)
            body: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise UnansweredError(
                "the service does not answer; see `afa status`, and start afa mcp again"
            ) from error
        if not answer.is_success:
            raise UnansweredError(body["message"])
        return body
