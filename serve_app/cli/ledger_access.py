"""Opens the ledger of the installation that the environment names, for one command."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from redis.exceptions import ResponseError

from configs.settings import Settings
from configs.tables import load_table
from serve_app.checkpoints.choices import ModelChoices
from serve_app.cli.environment import fail, told
from serve_app.composition.files import LocalFiles, NotRunningError, write_private
from serve_app.domain.errors import AfaError, ServiceUnavailableError
from serve_app.domain.tiers import Tiers
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedisError, is_alive
from serve_app.store.accounts import Accounts, UnknownKeyError, UnknownOwnerError
from serve_app.store.client import connect

T = TypeVar("T")

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """What the operator's commands work with."""

    tiers: Tiers
    accounts: Accounts
    ledger: Ledger
    topups: Topups
    journal: Journal
    reconciler: Reconciler
    model_choices: ModelChoices


@contextmanager
def ledger_at_rest() -> Iterator[None]:
    """Run the Redis of a stopped local service during the block."""
    settings = Settings()
    url_path = settings.data_dir / "redis.url"
    if settings.redis_url is not None or not url_path.exists():
        yield
        return
    with told(LocalRedisError, OSError):
        redis = embedded_redis.start(settings.data_dir)
    try:
        if redis.is_new:
            write_private(url_path, redis.url)
        yield
    finally:
        if redis.is_new:
            redis.stop()


def with_ledger(work: Callable[[LedgerAccess], Awaitable[T]], *, claims_shards: bool = True) -> T:
    """Run ``work`` on the ledger; expected errors are reported and end the command.

    Args:
        work: What to do.
        claims_shards: False if ``work`` does that itself, once it may.
    """

    async def run() -> T:
        settings = Settings()
        files = LocalFiles(settings.data_dir)
        tiers = Tiers(load_table("tiers"))
        store = connect(
            files.ledger_url(settings), timeout_s=TIMEOUT_S, shards=settings.ledger_shards
        )
        accounts = Accounts(store, files.key_pepper(settings), tiers)
        ledger = Ledger(store, tiers, topup_replicas=settings.topup_replicas)
        try:
            if claims_shards:
                await store.claim_shards()
            access = LedgerAccess(
                tiers,
                accounts,
                ledger,
                Topups(store, ledger),
                Journal(store),
                Reconciler(store, Archive(files.journal_store_url(settings))),
                ModelChoices(store),
            )
            return await work(access)
        finally:
            await store.close()

    with told(NotRunningError, AfaError, UnknownKeyError, UnknownOwnerError, ValueError):
        try:
            return asyncio.run(run())
        except ServiceUnavailableError as error:
            if Settings().redis_url is not None:
                raise
            files = LocalFiles(Settings().data_dir)
            session = files.read_session()
            if session is not None and is_alive(session["pids"]["service"]):
                raise NotRunningError(
                    "the service runs, but its Redis does not answer, which the service starts "
                    f"again if it has ended: try again in a minute, or look into {files.log_path}"
                ) from error
            raise NotRunningError(
                "the service is not running, and its Redis with it; start it with `afa up`"
            ) from error
        except ResponseError as error:
            fail(f"Redis refuses this: {error}")


def with_account(account: str, work: Callable[[LedgerAccess], Awaitable[T]]) -> T:
    """Run ``work`` on the ledger as `with_ledger`, for an account that is in use."""

    async def run(access: LedgerAccess) -> T:
        await access.accounts.require(account)
        return await work(access)

    return with_ledger(run)
