"""Audio of a track: where it may lawfully come from, and how it is fetched for analysis.

A source is plain JSON, because it travels in job records: ``{"kind": "object", "key": …}``,
``{"kind": "url", "url": …}`` or ``{"kind": "file", "path": …}``. Only the operator's catalog makes
``file`` sources.
"""

import shutil
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pipelines.audio.waveform import UnprocessableAudioError
from serve_app.domain.errors import ServiceUnavailableError, UrlFetchError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.objects import ObjectNotFoundError
from serve_app.domain.providers import AudioLocation, AudioSource, ProvidersFailedError
from serve_app.providers.identities.audio_sources import locate_audio
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.url_guard import UrlError
from serve_app.store.objects import ObjectStore

Source = Mapping[str, Any]


class SourceFetcher:
    """Brings the audio of a source into a local file."""

    def __init__(self, objects: ObjectStore, urls: AudioUrlFetcher) -> None:
        self._objects = objects
        self._urls = urls

    async def fetch(self, source: Source, path: Path, max_bytes: int) -> None:
        """Write the source's bytes to ``path``.

        Raises:
            UnprocessableAudioError: The object or file is gone.
            UrlFetchError: The URL gives no audio.
        """
        match source["kind"]:
            case "object":
                try:
                    await self._objects.download(source["key"], path)
                except ObjectNotFoundError as error:
                    raise UnprocessableAudioError(
                        "the uploaded audio is gone; upload it again"
                    ) from error
            case "file":
                try:
                    await to_thread(shutil.copyfile, source["path"], path)
                except OSError as error:
                    raise UnprocessableAudioError("the track's audio file is gone") from error
            case "url":
                try:
                    await self._urls.fetch(source["url"], path, max_bytes)
                except UrlError as error:
                    raise UrlFetchError(str(error)) from error
            case kind:
                raise ValueError(f"unknown kind of source: {kind!r}")


class TrackAudio:
    """Asks every audio source in turn."""

    def __init__(self, sources: Sequence[AudioSource]) -> None:
        self._sources = sources

    async def find(self, identity: TrackIdentity) -> Source | None:
        """Give where lawful audio of the track is, or None.

        Raises:
            ServiceUnavailableError: None was found, but a source could not answer.
        """
        try:
            location = await locate_audio(self._sources, identity)
        except ProvidersFailedError as error:
            raise ServiceUnavailableError(
                f"the audio could not be looked up ({', '.join(error.failures)}); try again", 30
            ) from error
        return None if location is None else as_source(location)


def as_source(location: AudioLocation) -> Source:
    """Turn a location into a job's source."""
    parts = urlsplit(location.url)
    if parts.scheme == "file":
        return {"kind": "file", "path": unquote(parts.path)}
    return {"kind": "url", "url": location.url, "host": parts.hostname}
