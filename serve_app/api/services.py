"""The services that the routes call, in one typed bundle made by the deployment (or a test)."""

from dataclasses import dataclass

from serve_app.domain.ports_store import AccountsPort, JobsPort, LedgerPort
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers
from serve_app.services.analysis import AnalysisService
from serve_app.services.readiness import Readiness


@dataclass(frozen=True, slots=True)
class ApiServices:
    """Everything a route may use."""

    tiers: Tiers
    prices: Prices
    public_url: str
    accounts: AccountsPort
    ledger: LedgerPort
    jobs: JobsPort
    analysis: AnalysisService
    readiness: Readiness
