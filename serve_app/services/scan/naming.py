"""Identifies a file's track without the internet: by its tags, its sound and its name."""

from dataclasses import fields, replace
from pathlib import Path

from pipelines.audio.decode import decode_segments
from pipelines.audio.waveform import AudioError
from pipelines.fingerprint.clip import EXCERPT_S
from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.index import FingerprintIndex
from serve_app.providers.fingerprints.manifest import is_current
from serve_app.providers.fingerprints.track_keys import FILE_PREFIX, identity_of_key
from serve_app.providers.recognisers.own_index import MIN_CONFIDENCE
from serve_app.providers.tags.identity import TaggedIdentity, identity_of
from serve_app.providers.tags.reader import Tags
from serve_app.services.scan.facts import LIMITS

CATALOG, SOUND = "catalog", "fingerprint"
CLIP_START_S = 30.0


class Naming:
    """Uses tags, then the fingerprint index if they have no identifier, then the catalog."""

    def __init__(self, catalog: Catalog, index: FingerprintIndex | None) -> None:
        from pipelines.fingerprint.make import Fingerprinter  # brings torch, which takes seconds

        self._catalog = catalog
        self._index = index
        self._fingerprinter = Fingerprinter()

    @classmethod
    def open(cls, catalog_dir: Path, fingerprint_dir: Path) -> "Naming":
        """Open the catalog and the fingerprint index, if they exist."""
        index = FingerprintIndex.open(fingerprint_dir) if is_current(fingerprint_dir) else None
        return cls(Catalog.open(catalog_dir), index)

    def name(self, tags: Tags, path: Path, location: Path) -> TaggedIdentity:
        """Return the identity of a file's track.

        Args:
            tags: The file's tags.
            path: Where to read it.
            location: Where it is stored; its name is used if it has no title.
        """
        named = identity_of(tags, location)
        if not any(named.identity.ids()):
            heard = self._by_sound(path)
            if heard is not None:
                named = filled(named, heard, SOUND)
        found = next(filter(None, map(self._catalog.by_id, named.identity.ids())), None)
        if found is None:
            matches = self._catalog.find_exact(named.identity.artist, named.identity.title, 1)
            found = matches[0].identity if matches else None
        return named if found is None else filled(named, found, CATALOG)

    def _by_sound(self, path: Path) -> TrackIdentity | None:
        if self._index is None or not self._index.n_tracks:
            return None
        try:
            clip = decode_segments(path, [(CLIP_START_S, EXCERPT_S)], LIMITS)[0]
        except AudioError:
            return None
        if clip.duration_s < EXCERPT_S / 2:
            return None
        matches = self._index.query(*self._fingerprinter.make_query(clip))
        sure = (one.track_key for one in matches if one.confidence >= MIN_CONFIDENCE)
        named = (key for key in sure if not key.startswith(FILE_PREFIX))
        known = (identity_of_key(self._catalog, key) for key in named)
        return next(filter(None, known), None)


def filled(named: TaggedIdentity, other: TrackIdentity, source: str) -> TaggedIdentity:
    """Fill in what is unknown from ``other``, except a curator's measurements."""
    names = replace(
        other,
        tempo=None,
        key=None,
        mode=None,
        beats=(),
        downbeats=(),
        is_verified=False,
        audio_url=None,
    )
    identity = named.identity.filled_from(names)
    new = {
        field.name: source
        for field in fields(identity)
        if getattr(identity, field.name) != getattr(named.identity, field.name)
    }
    return TaggedIdentity(identity, {**named.sources, **new})
