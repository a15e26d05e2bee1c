"""Where audio of a known track may lawfully be taken from, in order of preference."""

import logging
from collections.abc import Sequence

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    AudioLocation,
    AudioSource,
    ProviderError,
    ProvidersFailedError,
    ProviderTerms,
)

logger = logging.getLogger(__name__)


class CatalogAudio:
    """The address or local file that the catalog names."""

    name = "catalog"
    terms = ProviderTerms("audio_url in the catalog", "The operator answers for the rights.")

    async def locate(self, identity: TrackIdentity) -> AudioLocation | None:
        """See `AudioSource`."""
        if identity.audio_url is None:
            return None
        return AudioLocation(identity.audio_url, self.name)


async def locate_audio(
    sources: Sequence[AudioSource], identity: TrackIdentity
) -> AudioLocation | None:
    """Return the first source's audio, or None if no source has any.

    Raises:
        ProvidersFailedError: None was found, but a source could not answer.
    """
    failures: dict[str, str] = {}
    for source in sources:
        try:
            location = await source.locate(identity)
        except ProviderError as error:
            logger.warning("audio source failed", extra={"provider": source.name})
            failures[source.name] = error.problem
            continue
        if location is not None:
            return location
    if failures:
        raise ProvidersFailedError(failures)
    return None
