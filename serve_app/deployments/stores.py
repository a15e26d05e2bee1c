"""Open the stores of a replica from its options."""

from dataclasses import dataclass

from configs.tables import load_table
from serve_app.deployments.options import StoreOptions
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tiers
from serve_app.store.accounts import Accounts
from serve_app.store.bus import Bus
from serve_app.store.client import Store, connect
from serve_app.store.jobs import Jobs
from serve_app.store.ledger import Ledger
from serve_app.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of one process."""

    tiers: Tiers
    prices: Prices
    accounts: Accounts
    ledger: Ledger
    jobs: Jobs
    objects: ObjectStore
    ledger_store: Store

    async def ping_ledger(self) -> None:
        """Return when the ledger Redis answers.

        Raises:
            ServiceUnavailableError: It does not.
        """
        await self.ledger_store.command("PING")


def open_stores(options: StoreOptions) -> Stores:
    """Connect lazily: nothing is sent before the first use."""
    tiers = Tiers(load_table("tiers"))
    store = connect(options.ledger_url)
    bus = Bus(store)
    return Stores(
        tiers=tiers,
        prices=Prices.from_table(load_table("prices")),
        accounts=Accounts(store, options.key_pepper, tiers, bus),
        ledger=Ledger(store, tiers),
        jobs=Jobs(store, tiers, bus=bus),
        objects=ObjectStore(options.object_store),
        ledger_store=store,
    )
