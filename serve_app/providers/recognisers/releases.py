"""The MusicBrainz release that a recording is on, which covers are filed under."""

from pydantic import Field

from serve_app.domain.identification import ReleaseIds
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import Wire, parse

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

    def __init__(self, client: ProviderClient) -> None:
        self._client = client

    async def release_of(self, mbid: str) -> ReleaseIds | None:
        """Return the earliest official release of a recording, else the earliest, else None.

        Raises:
            ProviderError: MusicBrainz could not answer.
        """

        def judge(reply: Reply) -> ReleaseIds | None:
            if reply.status == 404:
                return None
            reply.check_status()
            releases = parse(Recording, reply).releases
            if not releases:
                return None
            best = min(releases, key=lambda r: (r.status != "Official", r.date or "9999"))
            return ReleaseIds(best.id, best.group.id if best.group else None)

        return await self._client.read(
            "/recording/{mbid}",
            judge,
            path=f"/recording/{mbid}",
            params={"inc": PARTS, "fmt": "json"},
        )
