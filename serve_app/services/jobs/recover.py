"""Bring on the jobs whose worker was lost, and clear up behind those that have failed so."""

from serve_app.ledger.jobs.queue import Jobs
from serve_app.services.audio.intake import UPLOADS
from serve_app.store.objects import ObjectStore


async def recover(jobs: Jobs, objects: ObjectStore) -> None:
    """Sweep once; an upload goes with its job."""
    for key in (await jobs.recover()).left_behind:
        if key.startswith(f"{UPLOADS}/"):
            await objects.delete(key)
