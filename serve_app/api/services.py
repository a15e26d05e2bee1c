"""What the routes call, in one typed object made by the composition (or a test)."""

from dataclasses import dataclass

from serve_app.checkpoints.named import NamedModels
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.audio.assets import AssetsService
from serve_app.services.bpm import BpmService
from serve_app.services.embedding import EmbedService
from serve_app.services.export.export import ExportService
from serve_app.services.gate import BodyPlaces
from serve_app.services.identify.identify import IdentifyService
from serve_app.services.jobs.submit import AnalysisService
from serve_app.services.library import LibraryService
from serve_app.services.lookup.batch import BatchService
from serve_app.services.lookup.lookup import LookupService
from serve_app.services.readiness import Readiness
from serve_app.services.similar.similar import SimilarService
from serve_app.store.accounts import Accounts
from serve_app.store.idempotency import Idempotency
from serve_app.store.limits import Limits
from serve_app.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Operations:
    """What is computed or looked up for callers."""

    analysis: AnalysisService
    bpm: BpmService
    identify: IdentifyService
    lookup: LookupService
    batch: BatchService
    embedding: EmbedService
    similar: SimilarService


@dataclass(frozen=True, slots=True)
class ApiServices:
    """Everything a route may use.

    Attributes:
        live: The real operations.
        simulated: The same for test keys: nothing is computed, and no other service is called.
    """

    tiers: Tiers
    prices: Prices
    public_url: str
    url_guard: UrlGuard
    audio_urls: AudioUrlFetcher
    accounts: Accounts
    ledger: Ledger
    topups: Topups
    jobs: Jobs
    limits: Limits
    idempotency: Idempotency
    webhooks: Webhooks
    objects: ObjectStore
    assets: AssetsService
    library: LibraryService
    export: ExportService
    models: NamedModels
    bodies: BodyPlaces
    live: Operations
    simulated: Operations
    readiness: Readiness

    def of(self, caller: Caller) -> Operations:
        """Return the operations for a caller's kind of key."""
        return self.simulated if caller.is_test else self.live
