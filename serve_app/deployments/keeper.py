"""Runs the chores of the installation in one replica, which Serve restarts when it dies."""

import asyncio
import time
from functools import partial

from ray import serve

from serve_app.composition.completing import completing
from serve_app.composition.options import (
    KeeperOptions,
    LibraryOptions,
    StoreOptions,
    TrackOptions,
    UrlOptions,
)
from serve_app.composition.stores import Stores, open_stores
from serve_app.deployments.telemetry import tell_operators
from serve_app.domain.telemetry.metrics import AUDIT_MISMATCHES, AUDITED_AT
from serve_app.ledger.archive.export import Exporter, LostEntriesError, OtherArchiveError
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.clock import confirm_clock
from serve_app.ledger.ended_holds import forget_ended
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.ledger.journal import Journal
from serve_app.providers.payment_sandbox import SandboxPayments
from serve_app.providers.web.webhook_sender import WebhookSender
from serve_app.services.audio.assets import AssetsService
from serve_app.services.jobs.recover import recover
from serve_app.services.payments import PaymentsWorker
from serve_app.services.survey import survey
from serve_app.services.upkeep import Chore, Upkeep
from serve_app.store.objects import ObjectStore

SWEEP_S, DELIVER_S, EXPORT_S = 1.0, 1.0, 1.0
IDS_S = 5.0
SURVEY_S, FORGET_S, ORPHANS_S, AUDIT_S, CLOCK_S, LIBRARY_S = 5.0, 10.0, 3600.0, 300.0, 60.0, 60.0


@serve.deployment
class Keeper:
    """Recovers, reaps, delivers, pays, deletes, exports, audits and tidies in the background."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it; the loops need a running loop
        self,
        stores: StoreOptions,
        urls: UrlOptions,
        options: KeeperOptions,
        library: LibraryOptions,
        tracks: TrackOptions,
    ) -> None:
        tell_operators()
        opened = open_stores(stores, in_background=True)
        await opened.ledger_store.claim_shards()
        webhooks = Webhooks(
            opened.ledger_store, opened.jobs, WebhookSender(urls.guard()), pepper=stores.key_pepper
        )
        payments = PaymentsWorker(
            opened.topups, SandboxPayments(store=ObjectStore(options.payments))
        )
        assets = AssetsService(opened.assets, opened.objects)
        self._journal = Journal(opened.ledger_store)
        self._mismatch, self._n_mismatches, self._audited_at = "", 0, 0.0
        self._exporter = Exporter(opened.ledger_store, Archive(options.journal_store))
        self._is_stopped = False
        kept = library.open()
        completion = completing(kept, tracks, opened)
        self._upkeep = Upkeep(
            [
                Chore("clock", partial(confirm_clock, opened.ledger_store), CLOCK_S),
                Chore("jobs", partial(recover, opened.jobs, opened.objects), SWEEP_S),
                Chore("holds", opened.ledger.reap_due, SWEEP_S),
                Chore("ended holds", partial(forget_ended, opened.ledger_store), FORGET_S),
                Chore("webhooks", webhooks.deliver_due, DELIVER_S),
                Chore("payments", payments.run_once, SWEEP_S),
                Chore("expired assets", assets.delete_expired, SWEEP_S),
                Chore("orphaned objects", assets.delete_orphans, ORPHANS_S),
                Chore("journal", self._export, EXPORT_S),
                Chore("audit", self._audit, AUDIT_S),
                Chore("metrics", partial(self._measure, opened), SURVEY_S),
                Chore("library", partial(asyncio.to_thread, kept.maintain), LIBRARY_S),
                *([] if completion is None else [Chore("ids", completion.go_on, IDS_S)]),
            ]
        )
        self._upkeep.start()

    async def _audit(self) -> None:
        report = await self._journal.audit()
        self._n_mismatches, self._audited_at = len(report.mismatches), time.time()
        self._mismatch = "; ".join(f"{m.account}: {m.rule}" for m in report.mismatches)
        if self._mismatch:
            raise RuntimeError(f"the ledger's audit found {self._mismatch}")

    async def _export(self) -> None:
        try:
            await self._exporter.export()
        except (LostEntriesError, OtherArchiveError):
            self._is_stopped = True
            raise
        self._is_stopped = False

    async def _measure(self, opened: Stores) -> None:
        if self._audited_at:  # recorded again, since Ray forgets a value that is not
            AUDIT_MISMATCHES.record(self._n_mismatches)
            AUDITED_AT.record(self._audited_at)
        await survey(opened.ledger_store, opened.jobs)

    async def check_health(self) -> None:
        """Raise when a chore hangs, so that Serve replaces the replica."""
        stalled = self._upkeep.stalled()
        if stalled:
            raise RuntimeError(f"stalled: {', '.join(stalled)}")

    async def ready(self) -> bool:
        """Answer."""
        return True

    async def audited(self) -> bool:
        """Return whether the ledger's last audit was clean; the log has what was not."""
        return not self._mismatch

    async def archives(self) -> bool:
        """Return whether the journal is archived without help; if not, the log says what to do."""
        return not self._is_stopped
