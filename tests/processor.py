"""How long the test's thread was ready to run and had no processor; no fault of what is timed."""

from pathlib import Path

STATISTICS = Path("/proc/thread-self/schedstat")


def waited_s() -> float:
    """Give those seconds; 0 where the system does not tell.

    The second figure of ``schedstat`` (Documentation/scheduler/sched-stats of Linux).
    """
    return int(STATISTICS.read_text().split()[1]) / 1e9 if STATISTICS.exists() else 0.0
