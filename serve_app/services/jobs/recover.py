"""Recover jobs whose worker was lost, and clean up after those that failed for good."""

from serve_app.domain.telemetry.metrics import JOB_ATTEMPTS_LOST, JOBS_ENDED
from serve_app.ledger.jobs.queue import Jobs
from serve_app.services.audio.intake import UPLOADS
from serve_app.store.objects import ObjectStore


async def recover(jobs: Jobs, objects: ObjectStore) -> None:
    """Sweep once; an upload is deleted with its job."""
    found = await jobs.recover()
    if found.failed:
        JOBS_ENDED.record(found.failed, outcome="failed", code="given_up")
    if found.requeued:
        JOB_ATTEMPTS_LOST.record(found.requeued, code="worker_lost")
    for key in found.left_behind:
        if key.startswith(f"{UPLOADS}/"):
            await objects.delete(key)
