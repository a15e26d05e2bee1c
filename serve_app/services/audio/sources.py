"""Audio of a track: where it may lawfully come from, and how it is fetched for analysis."""

import shutil
from asyncio import to_thread
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipelines.audio.waveform import UndecodableAudioError
from serve_app.domain.errors import AssetNotFoundError, ServiceUnavailableError, UrlFetchError
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.objects import ObjectNotFoundError
from serve_app.domain.providers import AudioLocation, AudioSource, ProvidersFailedError
from serve_app.ledger.jobs.types import FileSource, ObjectSource, SimulatedSource, Source, UrlSource
from serve_app.library.library import Library
from serve_app.library.track import Place
from serve_app.providers.identities.audio_sources import locate_audio
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.url_guard import UrlError
from serve_app.services.audio.assets import AssetsService
from serve_app.store.objects import ObjectStore


class SourceFetcher:
    """Fetches the audio of a source into a local file."""

    def __init__(self, objects: ObjectStore, urls: AudioUrlFetcher) -> None:
        self._objects = objects
        self._urls = urls

    async def fetch(self, source: Source, path: Path, max_bytes: int) -> None:
        """Write the source's bytes to ``path``.

        Raises:
            UndecodableAudioError: The object or file is gone.
            UrlFetchError: The URL returns no audio.
            ValueError: The source is simulated and has no bytes.
        """
        match source:
            case ObjectSource(key):
                try:
                    await self._objects.download(key, path)
                except ObjectNotFoundError as error:
                    raise UndecodableAudioError(
                        "the uploaded audio is gone; upload it again"
                    ) from error
            case FileSource(file):
                try:
                    await to_thread(shutil.copyfile, file, path)
                except OSError as error:
                    raise UndecodableAudioError("the track's audio file is gone") from error
            case UrlSource(url):
                try:
                    await self._urls.fetch(url, path, max_bytes)
                except UrlError as error:
                    raise UrlFetchError(str(error)) from error
            case SimulatedSource():
                raise ValueError("a simulated source has no bytes")


class TrackAudio:
    """Finds the audio of a track: the caller's own asset, the library's files, other sources."""

    def __init__(
        self, assets: AssetsService, sources: Sequence[AudioSource], library: Library
    ) -> None:
        self._assets = assets
        self._sources = sources
        self._library = library

    async def find(self, caller: Caller, identity: TrackIdentity) -> Source | None:
        """Return where lawful audio of the track is, or None.

        Returns:
            An `ObjectSource` for the caller's own asset, and only for that.

        Raises:
            ServiceUnavailableError: None was found, but a source could not answer.
        """
        for track_id in identity.ids():
            asset = await self._assets.of_track(caller, str(track_id))
            if asset is not None:
                return ObjectSource(asset.object_key, asset.sha256)
        kept = await self._of_library(caller, identity)
        if kept is not None:
            return kept
        try:
            location = await locate_audio(self._sources, identity)
        except ProvidersFailedError as error:
            raise ServiceUnavailableError(
                f"the audio could not be looked up ({', '.join(error.failures)}); try again", 30
            ) from error
        return None if location is None else as_source(location)

    async def _of_library(self, caller: Caller, identity: TrackIdentity) -> Source | None:
        track = self._library.get(identity.library_id) if identity.library_id else None
        for file in () if track is None else track.files:
            if file.missing_since is not None:
                continue
            match file.place:
                case Place.PATH if not file.location.startswith("s3://"):
                    return FileSource(file.location)
                case Place.URL:
                    return UrlSource(file.location, urlsplit(file.location).hostname)
                case Place.ASSET:
                    with suppress(AssetNotFoundError):
                        asset = await self._assets.get(caller, file.location)
                        return ObjectSource(asset.object_key, asset.sha256)
        return None


def as_source(location: AudioLocation) -> Source:
    """Turn a location into a job's source."""
    parts = urlsplit(location.url)
    if parts.scheme == "file":
        return FileSource(unquote(parts.path))
    return UrlSource(location.url, parts.hostname)
