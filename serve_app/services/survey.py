"""Metrics of what is waiting and open in the whole installation: one process measures for all."""

from serve_app.domain.telemetry import metrics
from serve_app.ledger.census import take_census
from serve_app.ledger.jobs.queue import Jobs
from serve_app.store.client import Store


async def survey(store: Store, jobs: Jobs) -> None:
    """Measure the ledger and its lanes once.

    Raises:
        ServiceUnavailableError: The ledger is unavailable.
    """
    for stage, lanes in (await jobs.standings()).items():
        for lane in lanes:
            labels = {"stage": stage, "lane": lane.lane}
            metrics.LANE_WAITING.record(lane.waiting, **labels)
            metrics.LANE_RUNNING.record(lane.running, **labels)
            metrics.LANE_WAIT.record(lane.oldest_wait_s, **labels)
    census = await take_census(store)
    metrics.HOLDS.record(census.holds)
    metrics.HOLD_OVERDUE.record(census.overdue_s)
    metrics.UNFINISHED.record(census.jobs)
    metrics.UNEXPORTED.record(census.unexported_s)
