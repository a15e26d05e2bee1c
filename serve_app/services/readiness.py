"""Which parts of the service can do their work, as reported by `/readyz`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

PROBE_TIMEOUT_S = 2.0
CACHE_S = 1.0
AUDIT, JOURNAL = "audit", "journal"
"""Parts that stay unready until somebody acts, while requests go on: no start waits for them."""


class AuditMismatchError(RuntimeError):
    """The ledger's last audit was not clean."""


class JournalStoppedError(RuntimeError):
    """Archiving has stopped: the ledger lacks archived entries, or the archive lacks entries."""


class Readiness:
    """Runs named probes concurrently; a probe is ready when it returns in time without raising."""

    def __init__(self, probes: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self._probes = probes
        self._checked_at = -CACHE_S
        self._checks: dict[str, str] = {}
        self._lock = asyncio.Lock()

    async def check(self) -> dict[str, str]:
        """Return each part's state: `ok` or what is wrong, at most a second old."""
        async with self._lock:
            if time.monotonic() - self._checked_at >= CACHE_S:
                states = await asyncio.gather(*(self._run(p) for p in self._probes.values()))
                self._checks = dict(zip(self._probes, states, strict=True))
                self._checked_at = time.monotonic()
            return self._checks

    async def _run(self, probe: Callable[[], Awaitable[object]]) -> str:
        try:
            await asyncio.wait_for(probe(), PROBE_TIMEOUT_S)
        except TimeoutError:
            return "no answer"
        except Exception as error:  # noqa: BLE001  any fault means "not ready"
            return type(error).__name__
        return "ok"
