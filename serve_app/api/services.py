"""The services that the routes call, in one typed bundle made by the deployment (or a test)."""

from dataclasses import dataclass

from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.audio.assets import AssetsService
from serve_app.services.bpm import BpmService
from serve_app.services.identify.identify import IdentifyService
from serve_app.services.jobs.submit import AnalysisService
from serve_app.services.lookup.batch import BatchService
from serve_app.services.lookup.find import LookupService
from serve_app.services.readiness import Readiness
from serve_app.store.accounts import Accounts
from serve_app.store.idempotency import Idempotency
from serve_app.store.limits import Limits


@dataclass(frozen=True, slots=True)
class ApiServices:
    """Everything a route may use."""

    tiers: Tiers
    prices: Prices
    public_url: str
    url_guard: UrlGuard
    accounts: Accounts
    ledger: Ledger
    topups: Topups
    jobs: Jobs
    limits: Limits
    idempotency: Idempotency
    webhooks: Webhooks
    analysis: AnalysisService
    assets: AssetsService
    bpm: BpmService
    identify: IdentifyService
    lookup: LookupService
    batch: BatchService
    readiness: Readiness
