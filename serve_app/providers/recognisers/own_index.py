"""The local index as a recogniser: first in the cascade, and sufficient by itself."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import Recognition
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderTerms, ProviderUnavailableError
from serve_app.domain.track_ids import LIBRARY_PREFIX
from serve_app.providers.fingerprints.index import FingerprintIndex, IndexMatch
from serve_app.providers.fingerprints.manifest import FILE_NAME, FingerprintIndexError

NAME = "local"
TIMEOUT_S = 6.0
"""A look-up takes at most .3 s of a core; if many come at once, some wait for the others."""
MIN_CONFIDENCE = 50
"""Percent: more likely right than wrong."""


class LocalRecogniser:
    """Recognises tracks of this installation, following the index as it grows."""

    name = NAME
    timeout_s = TIMEOUT_S
    terms = ProviderTerms("afa catalog fingerprint", "Own data.")

    def __init__(
        self,
        folder: Path,
        identity_of: Callable[[str], TrackIdentity | None],
    ) -> None:
        """Prepare; the index is opened at its first use, and may appear later.

        Args:
            folder: Folder of the index.
            identity_of: Returns the identity of a track key; None falls back to the bare
                key, unless it is one of the library.
        """
        self._folder = folder
        self._identity_of = identity_of
        self._index: FingerprintIndex | None = None

    def accepts(self, clip: Clip) -> bool:  # noqa: ARG002  # the protocol's
        """See `Recogniser`: accepts a clip, even a silent one, if there is an index."""
        return (self._folder / FILE_NAME).exists()

    def warm(self) -> None:
        """Open the index, if there is one, and read it into memory; faults show later."""
        with suppress(FingerprintIndexError, OSError):
            self._index = FingerprintIndex.open(self._folder)
            self._index.warm()

    async def recognise(self, clip: Clip) -> Recognition | None:
        """See `Recogniser`."""
        try:
            matches = await asyncio.to_thread(self._matches, clip)
        except (FingerprintIndexError, OSError) as error:
            raise ProviderUnavailableError(NAME, f"the index cannot be read: {error}") from error
        found = first_known(matches, self._identity_of)
        return None if found is None else Recognition(found[0], found[1].confidence)

    def _matches(self, clip: Clip) -> Sequence[IndexMatch]:
        if self._index is None:
            self._index = FingerprintIndex.open(self._folder)
        else:
            self._index.refresh()
        return self._index.query(clip.fingerprint, clip.closer)


def first_known(
    matches: Sequence[IndexMatch],
    identity_of: Callable[[str], TrackIdentity | None],
) -> tuple[TrackIdentity, IndexMatch] | None:
    """Return the best sufficient match and its identity, ignoring what left the library."""
    for match in matches:
        if match.confidence < MIN_CONFIDENCE:
            return None
        identity = identity_of(match.track_key)
        if identity is None and not match.track_key.startswith(LIBRARY_PREFIX):
            identity = TrackIdentity(title=match.track_key, source=NAME)
        if identity is not None:
            return identity, match
    return None
