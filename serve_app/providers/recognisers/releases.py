"""The MusicBrainz release that a recording is on, which covers are filed under."""

from pydantic import Field

from serve_app.domain.identification import ReleaseIds
from serve_app.providers.identities.musicbrainz import MusicBrainz
from serve_app.providers.web.wire import Wire

PARTS = "releases release-groups"


class Group(Wire):
    """An album in all its editions."""

    id: str | None = None


class Release(Wire):
    """An edition."""

    id: str | None = None
    status: str | None = None
    date: str | None = None
    group: Group | None = Field(None, alias="release-group")


class Recording(Wire):
    """A recording with its releases."""

    releases: tuple[Release, ...] = ()


class MusicBrainzReleases:
    """Finds releases through the client that also looks up recordings, so within its limit."""

    def __init__(self, musicbrainz: MusicBrainz) -> None:
        self._musicbrainz = musicbrainz

    async def release_of(self, mbid: str) -> ReleaseIds | None:
        """Return the earliest official release of a recording, else the earliest, else None.

        Raises:
            ProviderError: MusicBrainz could not answer.
        """
        recording = await self._musicbrainz.recording(Recording, mbid, PARTS)
        if recording is None or not recording.releases:
            return None
        best = min(
            recording.releases, key=lambda one: (one.status != "Official", one.date or "9999")
        )
        return ReleaseIds(best.id, best.group.id if best.group else None)
