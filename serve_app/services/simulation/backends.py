"""Answers test keys in place of deployments, jobs and providers."""

from models.rhythm.tempo import TempoRange
from pipelines.analysis.records import QuickFeatures, TrackFeatures
from pipelines.analysis.tonality.notes import pitch_class
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import Tier
from serve_app.ledger.jobs.types import FileSource, ObjectSource, SimulatedSource, Source, UrlSource
from serve_app.services.embedding import Embedded
from serve_app.services.identify.identified import Identified
from serve_app.services.lookup.feature_cache import FeatureCache, quick_of, track_key
from serve_app.services.simulation.features import MODEL_ID, simulated_features


def seed_of(source: Source) -> str:
    """Return what the answer depends on: the hash of the bytes, else the track or the address."""
    match source:
        case ObjectSource(sha256=sha256):
            return sha256
        case UrlSource(url):
            return url
        case FileSource(path):
            return path
        case SimulatedSource(seed):
            return seed


def simulated_source(source: Source) -> SimulatedSource:
    """Return what a worker analyses in place of what a test key sent."""
    key = source.key if isinstance(source, ObjectSource) else ""
    return SimulatedSource(seed_of(source), key)


class SimulatedAudio:
    """Pretends that every track has audio."""

    async def find(self, caller: Caller, identity: TrackIdentity) -> SimulatedSource:
        """Return the track's name as its audio."""
        del caller  # the same for all
        return SimulatedSource(track_key(identity))


class SimulatedTracks:
    """Computes a track's features at once, without a job."""

    def __init__(self, cache: FeatureCache) -> None:
        self._cache = cache

    async def compute(
        self,
        caller: Caller,
        tier: Tier,
        key: str,
        source: Source,
        *,
        whole: bool = False,
        library_id: str = "",
    ) -> TrackFeatures:
        """Answer as `serve_app.services.lookup.track_jobs.TrackJobs` does."""
        del caller, tier, library_id  # no waiting, no limits, and test keys have no library
        features = simulated_features(seed_of(source))
        await self._cache.put(key, features)
        return features if whole else features.outline()


class SimulatedQuick:
    """A `serve_app.services.bpm.QuickBackend`."""

    async def analyse(
        self,
        source: Source,
        *,
        max_audio_s: float,
        max_bytes: int,
        with_key: bool,
        tempo_range: TempoRange | None = None,
    ) -> QuickFeatures:
        """Return tempo and key of anything."""
        del max_audio_s, max_bytes, with_key  # any bytes are audio
        return quick_of(simulated_features(seed_of(source), tempo_range))


class SimulatedEmbed:
    """A `serve_app.services.embedding.EmbedBackend`."""

    async def embed(
        self, source: Source, *, max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded:
        """Embed anything."""
        del max_audio_s, max_bytes, model  # any bytes are audio, and no network analyses them
        features = simulated_features(seed_of(source))
        return Embedded(features.embedding, MODEL_ID, features.duration_s)


class SimulatedIdentify:
    """An `serve_app.services.identify.identify.IdentifyBackend`."""

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified:
        """Recognise anything, without asking a service."""
        del key, max_audio_s  # any bytes are a track
        features = simulated_features(sha256)
        return Identified(
            services_tried={"simulated": "match"},
            artist="Test Artist",
            title=f"Test Track {sha256[:8]}",
            confidence=100,
            source_service="simulated",
            enrichment={
                "bpm": features.tempo,
                "key": pitch_class(features.key),
                "camelot": features.camelot,
            },
        )
