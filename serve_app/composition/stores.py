"""Open the stores of a replica from its options."""

from dataclasses import dataclass

from configs.tables import load_table
from serve_app.composition.options import StoreOptions
from serve_app.domain.prices import Prices
from serve_app.domain.redaction import redact_logs
from serve_app.domain.telemetry.facts import use_pepper
from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.store.accounts import Accounts
from serve_app.store.assets import Assets
from serve_app.store.away import Silence
from serve_app.store.bus import Bus
from serve_app.store.cache import Cache
from serve_app.store.client import (
    DEFAULT_TIMEOUT_S,
    Store,
    connect,
    is_same_server,
)
from serve_app.store.idempotency import Idempotency
from serve_app.store.limits import Limits
from serve_app.store.objects import ObjectStore

BACKGROUND_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of one process."""

    tiers: Tiers
    prices: Prices
    accounts: Accounts
    ledger: Ledger
    topups: Topups
    jobs: Jobs
    objects: ObjectStore
    limits: Limits
    cache: Cache
    idempotency: Idempotency
    webhooks: Webhooks
    assets: Assets
    ledger_store: Store
    cache_store: Store

    async def close(self) -> None:
        """Close every connection."""
        await self.accounts.close()
        await self.jobs.close()
        await self.ledger_store.close()
        await self.cache_store.close()


def open_stores(options: StoreOptions, *, in_background: bool = False, replicas: int = 1) -> Stores:
    """Connect lazily: nothing is sent before the first use. From now on logs are redacted.

    Args:
        options: Addresses of the stores, and the rules that they apply.
        in_background: Whether to wait longer for a busy ledger, since no request waits here.
        replicas: How many processes share the rate limits while the cache is unavailable.
    """
    redact_logs()
    use_pepper(options.key_pepper)
    tiers = Tiers(load_table("tiers"))
    is_shared = not in_background and is_same_server(options.ledger_url, options.cache_url)
    silence = Silence() if is_shared else None
    store = connect(
        options.ledger_url,
        timeout_s=BACKGROUND_TIMEOUT_S if in_background else DEFAULT_TIMEOUT_S,
        shards=options.ledger_shards,
        silence=silence,
    )
    evictable = connect(options.cache_url, autopipelines=True, silence=silence)
    bus = Bus(store)
    jobs = Jobs(store, tiers, options.jobs.policy(), bus)
    prices = Prices.from_table(load_table("prices"))
    ledger = Ledger(
        store,
        tiers,
        over_allowance=options.over_allowance,
        hit_price=prices.cache_hit_over_allowance,
        topup_replicas=options.topup_replicas,
    )
    return Stores(
        tiers=tiers,
        prices=prices,
        accounts=Accounts(store, options.key_pepper, tiers, bus),
        ledger=ledger,
        topups=Topups(store, ledger),
        jobs=jobs,
        objects=ObjectStore(options.object_store),
        limits=Limits(evictable, replicas=replicas),
        cache=Cache(evictable),
        idempotency=Idempotency(store),
        webhooks=Webhooks(store, jobs, pepper=options.key_pepper),
        assets=Assets(store),
        ledger_store=store,
        cache_store=evictable,
    )
