"""The services that the routes call, in one typed bundle made by the deployment (or a test)."""

from dataclasses import dataclass

from serve_app.domain.ports_store import (
    AccountsPort,
    IdempotencyPort,
    JobsPort,
    LedgerPort,
    LimitsPort,
    TopupStatusPort,
    WebhooksPort,
)
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.audio.assets import AssetsService
from serve_app.services.bpm import BpmService
from serve_app.services.identify.identify import IdentifyService
from serve_app.services.jobs.submit import AnalysisService
from serve_app.services.lookup.batch import BatchService
from serve_app.services.lookup.find import LookupService
from serve_app.services.readiness import Readiness


@dataclass(frozen=True, slots=True)
class ApiServices:
    """Everything a route may use."""

    tiers: Tiers
    prices: Prices
    public_url: str
    url_guard: UrlGuard
    accounts: AccountsPort
    ledger: LedgerPort
    topups: TopupStatusPort
    jobs: JobsPort
    limits: LimitsPort
    idempotency: IdempotencyPort
    webhooks: WebhooksPort
    analysis: AnalysisService
    assets: AssetsService
    bpm: BpmService
    identify: IdentifyService
    lookup: LookupService
    batch: BatchService
    readiness: Readiness
